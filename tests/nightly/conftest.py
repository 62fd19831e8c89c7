"""Three nights that many tests read: a first one, an unchanged one, one with wrong passages."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest

from pipeline.config import NightlyConfig
from pipeline.nightly.evaluate import Result
from pipeline.runs.storage import Storage
from tests.nightly.world import config, make, write_data

DATES = ("2026-11-29", "2026-11-30", "2026-12-01")


@dataclass(frozen=True)
class Made:
    """The nights, in the order of DATES. Read only."""

    data: Path
    root: Path
    configs: Sequence[NightlyConfig]
    results: Sequence[Result]

    @property
    def storage(self) -> Storage:
        return Storage(str(self.root))

    def folder(self, place: int) -> Path:
        return self.root / self.results[place].night.folder


@pytest.fixture(scope="session")
def three(tmp_path_factory: pytest.TempPathFactory) -> Made:
    folder = tmp_path_factory.mktemp("nightly")
    data, root = folder / "data", folder / "root"
    configs = [config(data, root, date) for date in DATES]
    results = []
    for cfg, off_by in zip(configs, (0, 0, 7), strict=True):
        write_data(data, off_by=off_by)
        results.append(make(cfg))
    return Made(data, root, configs, results)
