"""Tests of pipeline.runs.garbage: what no run refers to goes, and nothing else."""

from pathlib import Path

import pytest

from pipeline.runs import garbage
from pipeline.runs.inventory import NoRuns
from pipeline.runs.lease import LeaseHeld
from pipeline.runs.storage import Storage
from tests.runs.roots import ANSWERS, PROBE, SOURCE, answers, hold, texts, write_part, write_run

OLD = "stages/probe-00000000000000dd"
OLD_SOURCE = "stages/source-00000000000000ee"


@pytest.fixture
def storage(tmp_path: Path) -> Storage:
    """A finished run, and the directories of runs that were deleted."""
    storage = Storage(str(tmp_path / "root"))
    write_run(storage, "demo", number=1, success=True)
    for folder in (SOURCE, PROBE, answers(1), OLD, OLD_SOURCE, answers(2)):
        write_part(storage, folder, 0)
    return storage


def paths(storage: Storage) -> list[str]:
    return [each.path for each in garbage.find(storage)]


def test_directories_that_no_run_refers_to_go_with_their_bytes_told(storage: Storage) -> None:
    storage.write_bytes(f"{OLD_SOURCE}/_DONE.json", b"{}")
    root = Path(storage.root)
    before = texts(root)
    found = garbage.find(storage)
    assert [each.path for each in found] == [answers(2), OLD, OLD_SOURCE]
    assert all(garbage.remove(storage, each) for each in found)
    after = texts(root)
    gone = {path: data for path, data in before.items() if path not in after}
    assert sum(each.bytes for each in found) == sum(map(len, gone.values()))
    assert {path.rpartition("/")[0] for path in gone} == {answers(2), OLD, OLD_SOURCE}
    assert not (root / OLD).exists() and paths(storage) == []
    assert all(after[path] == before[path] for path in after)


def test_a_family_s_directory_goes_with_its_last_member(storage: Storage) -> None:
    other = "stages/answer-00000000000000ff/0000000000000001"
    write_part(storage, other, 0)
    for each in garbage.find(storage):
        garbage.remove(storage, each)
    left = [f"stages/{name}" for name in storage.names("stages")]
    assert left == [ANSWERS, PROBE, SOURCE]
    assert storage.names(ANSWERS) == [answers(1).rpartition("/")[2]]


def test_what_an_unfinished_run_may_take_up_stays(storage: Storage) -> None:
    write_run(storage, "later", number=3, success=False)
    assert paths(storage) == [OLD, OLD_SOURCE]


def test_what_a_living_driver_holds_stays_and_a_dead_one_s_lease_saves_nothing(
    storage: Storage,
) -> None:
    hold(storage, OLD)
    hold(storage, OLD_SOURCE, pid=1)
    assert paths(storage) == [answers(2), OLD_SOURCE]


def test_what_came_to_be_held_or_referred_to_meanwhile_stays(storage: Storage) -> None:
    found = garbage.find(storage)
    hold(storage, OLD)
    write_run(storage, "new", number=2, success=False)
    removed = [each.path for each in found if garbage.remove(storage, each)]
    assert removed == [OLD_SOURCE]
    assert storage.exists(f"{answers(2)}/part-000000.parquet")


def test_unfinished_writes_go_where_no_driver_is_at_work(storage: Storage) -> None:
    scratch = ".part-000001.parquet.0123.tmp"
    run = "runs/demo-00000001"
    for folder in (PROBE, f"{run}/contexts", OLD):
        storage.write_bytes(f"{folder}/x", b"")
        (Path(storage.root) / folder / scratch).write_bytes(b"half")
    found = {each.path: each for each in garbage.find(storage)}
    assert found[f"{PROBE}/{scratch}"].bytes == 4
    assert f"{run}/contexts/{scratch}" in found and f"{OLD}/{scratch}" not in found
    hold(storage, run)
    assert f"{run}/contexts/{scratch}" not in paths(storage)
    assert garbage.remove(storage, found[f"{PROBE}/{scratch}"])
    assert not (Path(storage.root) / PROBE / scratch).exists()


def test_files_that_are_not_a_stage_s_stay(storage: Storage) -> None:
    storage.write_bytes("stages/mine/notes.txt", b"mine")
    storage.write_bytes("indexes/bm25-x/part-000000.parquet", b"an index")
    assert paths(storage) == [answers(2), OLD, OLD_SOURCE]


def test_nothing_is_found_while_a_manifest_is_unreadable_or_yet_to_come(storage: Storage) -> None:
    hold(storage, "runs/new-00000002")
    with pytest.raises(LeaseHeld, match="runs/new-00000002: process .* is starting it"):
        garbage.find(storage)
    hold(storage, "runs/new-00000002", pid=1)
    assert paths(storage) == [answers(2), OLD, OLD_SOURCE]
    storage.write_bytes("runs/demo-00000001/manifest.json", b"{")
    with pytest.raises(NoRuns, match=r"demo-00000001/manifest\.json: damaged"):
        garbage.find(storage)
