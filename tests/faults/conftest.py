"""Fixtures of the tests of faults."""

import pytest

from tests.faults import small


@pytest.fixture
def here(monkeypatch: pytest.MonkeyPatch) -> None:
    """The driver walks the plan's shards in this process, as `run_local` does, without Ray."""
    monkeypatch.setattr("pipeline.cluster.execute.execute", small.one_process)


@pytest.fixture(scope="session")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """The finished rows of a run that nothing happened to."""
    folder = tmp_path_factory.mktemp("undisturbed")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("pipeline.cluster.execute.execute", small.one_process)
        assert small.drive(folder) == 0
    found = small.rows(folder / "out")
    assert len(found) == len(small.IDS)
    return found
