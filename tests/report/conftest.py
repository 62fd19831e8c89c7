"""The finished runs that the report's tests share."""

from pathlib import Path

import pytest

from pipeline.report.finished import Finished, open_run
from tests.report.runs import make_runs


@pytest.fixture(scope="session")
def folders(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """Run folders by data set."""
    return make_runs(Path(tmp_path_factory.mktemp("report")))


@pytest.fixture(scope="session")
def runs(folders: dict[str, str]) -> list[Finished]:
    """The opened runs."""
    return [open_run(name, folder) for name, folder in folders.items()]
