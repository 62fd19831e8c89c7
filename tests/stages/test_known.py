"""Tests of pipeline.stages.known: where a family's values are, and that it is told without fail."""

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeline import schema
from pipeline.runs import layout
from pipeline.runs.storage import Storage
from pipeline.stages import answer, known, probe_sets, rollouts
from pipeline.stages.known import Known, leaves, mapped
from pipeline.stages.stage import Family
from tests.runs.roots import set_time

FAMILY, OWN = Family({}, "key", lambda rows: []), "stages/x-f/own"


def key(number: int) -> str:
    return f"{number:015x}123456789"


def write(storage: Storage, sibling: str, shard: int, *numbers: int) -> str:
    """A part that holds these keys; its path."""
    path = layout.part(f"stages/x-f/{sibling}", shard)
    storage.write_table(path, pa.table({"key": pa.array(map(key, numbers), pa.string())}))
    return path


def holding(storage: Storage, *numbers: int, grows: bool = False) -> list[str]:
    """The parts of siblings that a worker would read."""
    with mapped(storage, {OWN: FAMILY}):
        found = known.read(storage, OWN)
    return [] if found is None else found.holding(map(key, numbers), grows=grows)


@pytest.fixture
def storage(tmp_path: Path) -> Storage:
    return Storage(str(tmp_path))


def test_a_key_is_looked_for_in_the_sibling_that_was_written_to_last(storage: Storage) -> None:
    paths = [write(storage, name, shard, shard, 7) for name in "ab" for shard in (0, 1)]
    for path, seconds in zip(paths, (1, 30, 20, 10), strict=True):
        set_time(storage, path, seconds)
    assert holding(storage, 7) == holding(storage, 7, 0) == [paths[0]]
    assert holding(storage, 0, 1, 9) == paths[:2]
    assert holding(storage, 0, grows=True) == [paths[0], paths[2]]
    assert holding(storage) == holding(storage, 9) == []


def test_what_has_no_siblings_has_no_map_and_is_read_once(storage: Storage) -> None:
    write(storage, "own", 0, 1)
    (Path(storage.root) / "stages/x-f/notes.txt").write_text("a file that is not ours")
    storage.write_bytes(f"{OWN}/{known.NAME}", b"of a driver that was killed")
    with mapped(storage, {OWN: FAMILY}):
        assert known.read(storage, OWN) is None
        assert storage.names(OWN) == [layout.part_name(0)]


def test_the_map_goes_with_the_run_even_where_it_fails(storage: Storage) -> None:
    write(storage, "a", 0, 1)
    with mapped(storage, {OWN: FAMILY}):
        assert storage.names(OWN) == [known.NAME]

    def fail() -> None:
        with mapped(storage, {OWN: FAMILY}):
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        fail()
    assert storage.names(OWN) == []


def test_beyond_the_limit_older_parts_are_not_looked_at_and_told_of(
    storage: Storage, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(known, "LIMIT", 4)
    monkeypatch.setattr(known, "_BATCH", 1)
    newest = [write(storage, "a", shard, 2 * shard, 2 * shard + 1) for shard in range(3)]
    assert holding(storage, *range(6)) == newest[:2]
    assert "4 keys are enough; not looked at: 1 older parts" in caplog.text


Parts = Mapping[tuple[str, int], Sequence[int]]
PARTS = st.dictionaries(
    st.tuples(st.sampled_from("abc"), st.integers(0, 2)), st.lists(st.integers(0, 20), max_size=6)
)


@given(parts=PARTS, wanted=st.sets(st.integers(0, 25)), grows=st.booleans())
def test_every_stored_key_is_found_and_no_part_is_read_in_vain(
    tmp_path_factory: pytest.TempPathFactory, parts: Parts, wanted: set[int], grows: bool
) -> None:
    storage = Storage(str(tmp_path_factory.mktemp("root")))
    held = {write(storage, *place, *numbers): {*numbers} for place, numbers in parts.items()}
    found = holding(storage, *wanted, grows=grows)
    assert len(found) == len(set(found)) and all(held[path] & wanted for path in found)
    everywhere = set().union(*held.values()) & wanted
    assert set().union(*(held[path] for path in found)) & wanted == everywhere
    if grows:
        assert set(found) == {path for path in held if held[path] & wanted}


def test_keys_of_equal_hashes_lead_to_a_part_that_may_not_hold_the_one() -> None:
    alike = Known(np.array([5]), np.array([0], np.uint32), ("p",), ())
    assert alike.holding([key(5), f"{key(5)[:15]}ffffff"], grows=False) == ["p"]


PROBES: list[object] = [{"keys": ["a", "b"]}, None, {"keys": []}, {"keys": ["c"]}]
ANSWERS = [[{"prompt_id": "a"}, {"prompt_id": "b"}], None, [], [{"prompt_id": "c"}]]
SETS = [{"key": "a"}, None, {"key": None}, {"key": "c"}]


@pytest.mark.parametrize(
    ("column", "values", "path", "found"),
    [
        (schema.PROBES, PROBES, rollouts.KEYS, (["a", "b", "c"], [0, 0, 3])),
        (schema.ANSWERS, ANSWERS, answer.KEYS, (["a", "b", "c"], [0, 0, 3])),
        (schema.SETS, SETS, probe_sets.KEYS, (["a", "c"], [0, 3])),
    ],
    ids=["probes", "answers", "sets"],
)
def test_the_keys_of_a_stage_are_read_alone_from_its_parts(
    column: pa.Field,
    values: list[object],
    path: str,
    found: tuple[list[str], list[int]],
    storage: Storage,
) -> None:
    whole = pa.table({column.name: pa.array(values, column.type)})
    storage.write_table("part.parquet", whole)
    read = storage.read_table("part.parquet", [path])
    assert read.nbytes < whole.nbytes
    for table in (read, whole, pa.concat_tables([whole.slice(0, 1), whole.slice(1)])):
        keys, place = leaves(table, path)
        assert (keys.to_pylist(), place.tolist()) == found
