"""An input that a test may change before it is written."""

from pathlib import Path

import pytest

from tests.stages.changed import Input


@pytest.fixture
def given(tmp_path: Path) -> Input:
    return Input(tmp_path / "given")
