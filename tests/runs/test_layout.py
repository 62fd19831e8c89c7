"""Tests of pipeline.runs.layout: where parts lie, and which shards are done."""

from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from pipeline.runs import layout
from pipeline.runs.storage import Storage


def test_folders_are_named_by_fingerprint() -> None:
    assert layout.stage_dir("probe", "0123456789abcdef") == "stages/probe-0123456789abcdef"
    assert layout.run_dir("demo", "0123456789abcdef") == "runs/demo-01234567"


def test_a_shard_always_has_the_same_name() -> None:
    assert layout.part("folder", 7) == "folder/part-000007.parquet"
    assert layout.part("folder", 1_234_567) == "folder/part-1234567.parquet"


@pytest.mark.parametrize(
    "name",
    [
        "part-1.parquet",
        "part-000001.parquet.tmp",
        ".part-000001.parquet.0123.tmp",
        "xpart-000001.parquet",
        "part-000001.json",
        "lease.json",
        "_DONE.json",
    ],
)
def test_only_whole_parts_count_as_done(tmp_path: Path, name: str) -> None:
    storage = Storage(str(tmp_path))
    storage.write_bytes(layout.part("folder", 3), b"")
    storage.write_bytes(f"folder/{name}", b"")
    assert layout.shards_done(storage, "folder") == {3}


def test_the_siblings_of_a_folder_are_the_others_of_its_family(tmp_path: Path) -> None:
    storage = Storage(str(tmp_path))
    for folder in ("stages/answer-f/b", "stages/answer-f/a", "stages/answer-f/c", "stages/probe-f"):
        storage.write_bytes(layout.part(folder, 0), b"")
    assert layout.siblings(storage, "stages/answer-f/b") == [
        "stages/answer-f/a",
        "stages/answer-f/c",
    ]
    assert layout.siblings(storage, "stages/answer-f/not-yet") == [
        *(f"stages/answer-f/{name}" for name in "abc"),
    ]
    assert layout.siblings(storage, "stages/answer-g/a") == []


def test_no_shard_is_done_in_a_folder_that_is_not_there(tmp_path: Path) -> None:
    assert layout.shards_done(Storage(str(tmp_path)), "folder") == set()


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(shards=st.sets(st.integers(0, 3_000_000), max_size=5))
def test_every_part_that_is_written_is_found(tmp_path: Path, shards: set[int]) -> None:
    storage = Storage(str(tmp_path))
    for shard in shards:
        storage.write_bytes(layout.part("all", shard), b"")
    done = layout.shards_done(storage, "all")
    for shard in shards:
        storage.delete(layout.part("all", shard))
    assert done == shards
