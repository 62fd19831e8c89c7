"""Fixtures of runs over an input that has changed."""

import shutil
from pathlib import Path

import pytest

from tests.stages.changed import Input
from tests.stages.plans import run


@pytest.fixture
def changed(tmp_path: Path) -> Input:
    return Input(tmp_path / "changed")


@pytest.fixture(scope="module")
def before(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The root of a run over the examples as they are."""
    folder = tmp_path_factory.mktemp("before")
    run(Input(folder / "examples").config(folder / "out"))
    return folder / "out"


@pytest.fixture
def root(before: Path, tmp_path: Path) -> Path:
    """A copy of it."""
    return Path(shutil.copytree(before, tmp_path / "root"))
