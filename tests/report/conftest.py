"""The finished runs that the report's tests share."""

from pathlib import Path

import pytest

from pipeline.report.finished import Finished, open_run
from pipeline.report.html import Report
from pipeline.report.write import build
from tests.report.runs import SAMPLES, SEED, TITLE, make_runs


@pytest.fixture(scope="session")
def folders(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """Run folders by data set."""
    return make_runs(Path(tmp_path_factory.mktemp("report")))


@pytest.fixture(scope="session")
def runs(folders: dict[str, str]) -> list[Finished]:
    """The opened runs."""
    return [open_run(name, folder) for name, folder in folders.items()]


@pytest.fixture(scope="session")
def report(runs: list[Finished]) -> Report:
    """The report of both runs."""
    return build(runs, seed=SEED, samples=SAMPLES, title=TITLE)
