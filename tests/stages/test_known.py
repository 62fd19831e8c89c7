"""Tests of pipeline.stages.known: where a family's values are, and that it is told without fail."""

from collections.abc import Mapping, Sequence
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeline import schema
from pipeline.runs import layout
from pipeline.runs.storage import Storage
from pipeline.stages import answer, known, probe_sets, rollouts
from pipeline.stages.known import Known, leaves, mapped, sweep, take
from pipeline.stages.stage import Family, Stage
from tests.runs.roots import hold, set_time

OWN = "stages/x-f/own"
STAGE = Stage(
    name="x",
    needs=(),
    adds=pa.schema([("key", pa.string())]),
    depends_on={},
    build=lambda engines: lambda rows, earlier: rows,
    durable=True,
    family=Family({}, "key", lambda rows: rows["key"].to_pylist()),
)
FAMILIES = {OWN: Family({}, "key", lambda rows: [])}


class Refusing(Storage):
    """A store that lists its files and gives none out."""

    def read_table(self, path: str, columns: Sequence[str] | None = None) -> pa.Table:
        raise OSError(f"{path}: the token has expired")


class Keeping(Storage):
    """A store that deletes nothing."""

    def delete(self, path: str) -> None:
        raise OSError(f"{path}: not now")


def key(number: int) -> str:
    return f"{number:015x}123456789"


def keys(*numbers: int) -> pa.Table:
    return pa.table({"key": pa.array(map(key, numbers), pa.string())})


def write(storage: Storage, sibling: str, shard: int, *numbers: int) -> str:
    """A part that holds these keys; its path."""
    path = layout.part(f"stages/x-f/{sibling}", shard)
    storage.write_table(path, keys(*numbers))
    return path


def map_of(storage: Storage) -> Known | None:
    """What a worker of a run that starts now would be told."""
    with mapped(storage, FAMILIES) as maps:
        return known.read(storage, maps[OWN].path) if maps else None


def holding(storage: Storage, *numbers: int, grows: bool = False) -> list[str]:
    """The parts of siblings that a worker would look into first."""
    if (found := map_of(storage)) is None:
        return []
    return [found.paths[part] for part in found.holding(map(key, numbers), grows=grows)]


def taken(storage: Storage, known: Known, wanted: pa.Table) -> list[str]:
    """The keys that a stage is given of what it wants, sorted."""
    return sorted(
        k for table in take(storage, known, STAGE, wanted) for k in table["key"].to_pylist()
    )


def left(storage: Storage, folder: str = OWN) -> list[str]:
    """A folder's files beside its parts."""
    return [name for name in storage.names(folder) if not layout.is_part(name)]


@pytest.fixture
def storage(tmp_path: Path) -> Storage:
    return Storage(str(tmp_path))


def test_a_key_is_looked_for_in_the_sibling_that_was_written_to_last(storage: Storage) -> None:
    paths = [write(storage, name, shard, shard, 7) for name in "ab" for shard in (0, 1)]
    for path, seconds in zip(paths, (1, 30, 20, 10), strict=True):
        set_time(storage, path, seconds)
    # What else was written there, by now, makes no part younger.
    storage.write_bytes("stages/x-f/b/lease.json", b"{}")
    assert holding(storage, 7) == holding(storage, 7, 0) == [paths[0]]
    assert holding(storage, 0, 1, 9) == paths[:2]
    assert holding(storage, 0, grows=True) == [paths[0], paths[2]]
    assert holding(storage) == holding(storage, 9) == []


def test_what_has_no_siblings_has_no_map(storage: Storage) -> None:
    write(storage, "own", 0, 1)
    (Path(storage.root) / "stages/x-f/notes.txt").write_text("a file that is not ours")
    storage.write_bytes(f"{OWN}/{KILLED}", b"of a driver that was killed")
    with mapped(storage, FAMILIES) as maps:
        assert maps == {}
        assert left(storage) == []


def test_the_map_goes_with_the_run_even_where_it_fails(storage: Storage) -> None:
    write(storage, "a", 0, 1)

    def fail() -> None:
        with mapped(storage, FAMILIES) as maps:
            assert left(storage) == [maps[OWN].path.rpartition("/")[2], known.SIBLINGS]
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        fail()
    assert left(storage) == [known.SIBLINGS]


def test_a_store_that_keeps_the_map_does_not_hide_how_the_run_ended(
    storage: Storage, caplog: pytest.LogCaptureFixture
) -> None:
    write(storage, "a", 0, 1)

    def fail() -> None:
        with mapped(Keeping(storage.root), FAMILIES):
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        fail()
    (name, _) = left(storage)
    assert f"{name}: left behind" in caplog.text


def test_a_driver_that_lost_its_lease_leaves_the_map_of_the_one_that_took_it(
    storage: Storage,
) -> None:
    write(storage, "a", 0, 1)
    slow = mapped(storage, FAMILIES)
    before = slow.__enter__()[OWN].path
    with mapped(storage, FAMILIES) as maps:
        slow.__exit__(None, None, None)
        assert known.read(storage, maps[OWN].path).paths == ("stages/x-f/a/part-000000.parquet",)
        with pytest.raises(FileNotFoundError, match=before):
            known.read(storage, before)


KILLED = f"known-{'0' * 32}.parquet"


def test_maps_of_killed_drivers_go_and_those_of_living_ones_stay(storage: Storage) -> None:
    for name in ("own", "dead", "alive"):
        write(storage, name, 0, 1)
        storage.write_bytes(f"stages/x-f/{name}/{KILLED}", b"x")
    (Path(storage.root) / "stages/x-f/notes.txt").write_text("a file that is not ours")
    hold(storage, "stages/x-f/alive")
    hold(storage, "stages/x-f/dead", pid=1 << 22)
    sweep(storage, FAMILIES)
    assert left(storage) == []
    assert left(storage, "stages/x-f/dead") == ["lease.json"]
    assert left(storage, "stages/x-f/alive") == [KILLED, "lease.json"]


def test_the_siblings_that_a_folder_s_runs_have_mapped_are_all_named(storage: Storage) -> None:
    assert known.siblings(storage, OWN) == []
    write(storage, "b", 0, 1)
    storage.write_bytes("stages/x-f/empty/lease.json", b"{}")
    map_of(storage)
    assert known.siblings(storage, OWN) == ["stages/x-f/b"]
    storage.delete_folder("stages/x-f/b")
    write(storage, "a", 0, 1)
    map_of(storage)
    assert known.siblings(storage, OWN) == ["stages/x-f/a", "stages/x-f/b"]


def test_a_damaged_part_is_passed_over_and_told_of_without_advice(
    storage: Storage, caplog: pytest.LogCaptureFixture
) -> None:
    broken, whole = write(storage, "a", 0, 1), write(storage, "a", 1, 2)
    storage.write_bytes(broken, b"")
    with mapped(storage, FAMILIES) as maps:
        assert maps[OWN].damaged == (broken,)
        assert known.read(storage, maps[OWN].path).holding([key(1), key(2)], grows=False) == [1]
    assert caplog.text.count(f"{broken}: damaged, passed over") == 1
    assert whole not in caplog.text and "delete" not in caplog.text


def test_a_store_that_refuses_fails_the_run(storage: Storage) -> None:
    write(storage, "a", 0, 1)
    found = map_of(storage)
    assert found is not None
    refusing = Refusing(storage.root)
    with pytest.raises(OSError, match="the token has expired"), mapped(refusing, FAMILIES):
        pass
    with pytest.raises(OSError, match="the token has expired"):
        take(refusing, found, STAGE, keys(1))


def test_beyond_the_limit_older_parts_are_not_looked_at_and_told_of(
    storage: Storage, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(known, "LIMIT", 4)
    monkeypatch.setattr(known, "_BATCH", 1)
    newest = [write(storage, "a", shard, 2 * shard, 2 * shard + 1) for shard in range(3)]
    assert holding(storage, *range(6)) == newest[:2]
    assert "4 keys are enough; not looked at: 1 older parts" in caplog.text


Parts = Mapping[tuple[str, int], Sequence[int]]
PLACES = st.tuples(st.sampled_from("abc"), st.integers(0, 2))
PARTS = st.dictionaries(PLACES, st.lists(st.integers(0, 20), max_size=6))


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


@given(parts=PARTS, wanted=st.sets(st.integers(0, 25)), lost=st.sets(PLACES), cut=st.sets(PLACES))
def test_what_is_left_of_a_key_in_any_part_is_taken_and_nothing_else(
    tmp_path_factory: pytest.TempPathFactory,
    parts: Parts,
    wanted: set[int],
    lost: set[tuple[str, int]],
    cut: set[tuple[str, int]],
) -> None:
    storage = Storage(str(tmp_path_factory.mktemp("root")))
    paths = {place: write(storage, *place, *sorted({*numbers})) for place, numbers in parts.items()}
    if (found := map_of(storage)) is None:
        return
    for place in parts.keys() & cut:  # the driver could read them
        storage.write_bytes(paths[place], b"PAR1")
    for place in parts.keys() & lost:
        storage.delete(paths[place])
    there = set().union(*(parts[place] for place in parts.keys() - lost - cut)) & wanted
    assert {*taken(storage, found, keys(*wanted))} == {*map(key, there)}


def test_of_keys_with_equal_hashes_each_is_found_where_it_is(storage: Storage) -> None:
    older, newer = key(5), f"{key(5)[:15]}ffffff"
    for sibling, one in (("a", older), ("b", newer)):
        path = layout.part(f"stages/x-f/{sibling}", 0)
        storage.write_table(path, pa.table({"key": [one]}))
        set_time(storage, path, 10 if sibling == "a" else 20)
    found = map_of(storage)
    assert found is not None and found.hashes.tolist() == [5, 5]
    assert taken(storage, found, pa.table({"key": [older]})) == [older]
    assert taken(storage, found, pa.table({"key": [older, newer]})) == [older, newer]
    assert taken(storage, found, pa.table({"key": [f"{key(5)[:15]}000000"]})) == []


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
