"""Tests of pipeline.runs.inventory and .status: what a root holds, and how far its runs are."""

from pathlib import Path

import pytest

from pipeline.runs import inventory
from pipeline.runs.inventory import NoRuns
from pipeline.runs.status import status
from pipeline.runs.storage import Storage
from tests.runs.roots import (
    ANSWERS,
    PROBE,
    SOURCE,
    answers,
    damage,
    hold,
    set_time,
    texts,
    write_letters,
    write_part,
    write_run,
)


@pytest.fixture
def storage(tmp_path: Path) -> Storage:
    return Storage(str(tmp_path / "root"))


def test_a_finished_run_is_told_with_its_dead_and_the_counts_of_its_stages(
    storage: Storage,
) -> None:
    folder = write_run(storage, "demo", rows=5, success=True)
    for shard, rollouts in ((0, 12), (1, 6)):
        write_part(storage, PROBE, shard, rollouts=rollouts, seconds=1.5)
    write_part(storage, f"{folder}/contexts", 0, rows=1)
    write_part(storage, f"{folder}/contexts", 1, rows=1)
    write_letters(storage, folder, 0, a="too long", b="too long")
    write_letters(storage, folder, 1, c="hung")
    # Started at 100 s; the first part at 102 s, the last at 104 s: 2 rows in 4 s.
    times = {"manifest.json": 100, "contexts/part-000000.parquet": 102}
    for name, time in {**times, "contexts/part-000001.parquet": 104}.items():
        set_time(storage, f"{folder}/{name}", time)
    (run,) = inventory.runs(storage)
    assert status(storage, run) == {
        "run": "demo-00000001",
        "state": "complete",
        "held_by": None,
        "manifest": True,
        "questions": 5,
        "living": 2,
        "dead": {"probe": {"questions": 3, "reasons": {"too long": 2, "hung": 1}}},
        "shards": 2,
        "stages": {
            "probe": {"done": 2, "counts": {"rollouts": 18, "seconds": 3.0}},
            "answer": {"done": 0, "counts": {}},
            "finish": {"done": 2, "counts": {}},
        },
        "rows_per_second": 0.5,
        "seconds_left": None,
    }


def test_of_a_run_under_way_the_time_left_is_told_from_what_this_driver_did(
    storage: Storage,
) -> None:
    folder = write_run(storage, "demo", rows=10, shards=5, success=False)
    contexts = f"{folder}/contexts"
    for shard in (0, 1, 2):
        write_part(storage, contexts, shard)
    hold(storage, folder)
    set_time(storage, f"{folder}/manifest.json", 100)
    # Shard 0 is of an earlier driver; then 4 rows in 8 s, and 4 rows are left.
    for shard, time in ((0, 50), (1, 104), (2, 108)):
        set_time(storage, f"{contexts}/part-{shard:06d}.parquet", time)
    (run,) = inventory.runs(storage)
    found = status(storage, run)
    assert (run.state, found["held_by"] is not None) == ("running", True)
    assert (found["rows_per_second"], found["seconds_left"]) == (0.5, 8.0)


def test_shards_that_a_redrive_wrote_say_nothing_of_the_rate(storage: Storage) -> None:
    folder = write_run(storage, "demo", success=True)
    for shard, notes in ((0, {"redriven": 1}), (1, {})):
        write_part(storage, f"{folder}/contexts", shard, **notes)
    set_time(storage, f"{folder}/manifest.json", 100)
    set_time(storage, f"{folder}/contexts/part-000000.parquet", 9000)
    set_time(storage, f"{folder}/contexts/part-000001.parquet", 104)
    (run,) = inventory.runs(storage)
    assert status(storage, run)["rows_per_second"] == 0.5


def test_a_run_whose_driver_died_is_unfinished_and_one_that_starts_has_no_manifest(
    storage: Storage,
) -> None:
    dead = write_run(storage, "dead", success=False)
    hold(storage, dead, pid=1)
    hold(storage, "runs/new-00000002")
    runs = inventory.runs(storage)
    assert [(run.name, run.title, run.state) for run in runs] == [
        ("dead-00000001", "dead", "unfinished"),
        ("new-00000002", "new", "running"),
    ]
    assert status(storage, runs[0])["rows_per_second"] is None
    assert status(storage, runs[1])["manifest"] is False


def test_directories_are_told_with_size_parts_and_the_runs_that_refer_to_them(
    storage: Storage,
) -> None:
    write_run(storage, "a", number=1, success=True)
    write_run(storage, "b", number=2, success=True)
    for folder in (SOURCE, PROBE, answers(2), answers(3)):
        write_part(storage, folder, 0)
    write_part(storage, PROBE, 1)
    storage.write_bytes("stages/notes.txt", b"not ours")
    storage.write_bytes("stages/mine/notes.txt", b"not ours")
    hold(storage, answers(3))
    found = inventory.stage_dirs(storage, inventory.runs(storage))
    both = ("a-00000001", "b-00000002")
    assert [(d.folder, d.parts, d.runs, d.family) for d in found] == [
        (answers(2), 1, both[1:], ANSWERS),
        (answers(3), 1, (), ANSWERS),
        (PROBE, 2, both, None),
        (SOURCE, 1, both, None),
    ]
    assert [d.held_by is not None for d in found] == [False, True, False, False]
    sizes = [len(data) for path, data in texts(Path(storage.root)).items() if PROBE in path]
    assert found[2].bytes == sum(sizes)
    assert found[2].plain()["bytes"] == found[2].bytes


def test_an_object_store_is_read_alike() -> None:
    storage = Storage("mock:///root")
    folder = write_run(storage, "demo", success=True)
    write_part(storage, PROBE, 0, rollouts=3)
    write_part(storage, f"{folder}/contexts", 0)
    (run,) = inventory.runs(storage)
    assert status(storage, run)["stages"]["probe"] == {"done": 1, "counts": {"rollouts": 3}}
    assert [d.folder for d in inventory.stage_dirs(storage, [run])] == [PROBE]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"source": None}, "manifest.json: no run's manifest: it lacks 'source'"),
        ({"source": {"folder": "x"}}, "manifest.json: no run's manifest: it lacks 'rows'"),
        ({"stages": 3}, "manifest.json: no run's manifest: it lacks"),
    ],
)
def test_a_manifest_that_lacks_something_is_an_error_that_names_it(
    storage: Storage, changes: dict[str, object], message: str
) -> None:
    folder = write_run(storage, "demo", success=True)
    damage(storage, f"{folder}/manifest.json", **changes)
    with pytest.raises(NoRuns) as caught:
        inventory.runs(storage)
    assert f"{folder}/{message}" in str(caught.value)


def test_a_manifest_or_a_part_that_was_cut_short_is_an_error_that_names_it(
    storage: Storage,
) -> None:
    folder = write_run(storage, "demo", success=True)
    storage.write_bytes(f"{folder}/contexts/part-000000.parquet", b"PAR1")
    (run,) = inventory.runs(storage)
    with pytest.raises(OSError, match=r"contexts/part-000000\.parquet: damaged"):
        status(storage, run)
    storage.write_bytes(f"{folder}/manifest.json", b'{"source')
    with pytest.raises(NoRuns, match=r"manifest\.json: damaged"):
        inventory.runs(storage)


def test_a_folder_without_runs_is_an_error_that_says_what_is_allowed(storage: Storage) -> None:
    with pytest.raises(NoRuns, match="no runs here; allowed: a run.root"):
        inventory.runs(storage)
