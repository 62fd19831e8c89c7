"""Tests of pipeline.runs.storage: writes appear whole or not at all, locally and by URI."""

import threading
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest

from pipeline.runs.storage import Damaged, Storage


@pytest.fixture(params=["folder", "file URI", "object store"])
def storage(request: pytest.FixtureRequest, tmp_path: Path) -> Storage:
    """An empty folder; pyarrow's in-memory file system stands for an object store."""
    roots = {
        "folder": str(tmp_path / "root"),
        "file URI": f"file://{tmp_path}/root",
        "object store": "mock:///root",
    }
    return Storage(roots[request.param])


@pytest.fixture
def local(tmp_path: Path) -> Storage:
    """An empty local folder."""
    return Storage(str(tmp_path))


def in_threads(count: int, work: Callable[[int], None]) -> None:
    """Runs work(0), work(1), ... at once and waits for all of them."""
    gate = threading.Barrier(count)

    def start(number: int) -> None:
        gate.wait()
        work(number)

    threads = [threading.Thread(target=start, args=(number,)) for number in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def test_what_is_written_is_read_back(storage: Storage) -> None:
    table = pa.table({"a": [1, None], "b": [["x"], []]})
    storage.write_bytes("deep/down/file", b"\x00\xff")
    storage.write_json("value.json", {"é": [1.5, None]})
    storage.write_table("deep/t.parquet", table)
    assert storage.read_bytes("deep/down/file") == b"\x00\xff"
    assert storage.read_json("value.json") == {"é": [1.5, None]}
    assert storage.read_table("deep/t.parquet").equals(table)
    assert storage.read_table("deep/t.parquet", ["b"]).equals(table.select(["b"]))
    assert storage.columns("deep/t.parquet") == ["a", "b"]
    assert storage.names("deep") == ["down", "t.parquet"]


def test_notes_are_kept_in_a_table_and_change_nothing_of_it(storage: Storage) -> None:
    table = pa.table({"a": [1, 2], "b": ["x", None]})
    notes = {"rows": 2, "seconds": 0.25, "é": None}
    storage.write_table("noted.parquet", table, notes=notes)
    assert storage.read_notes("noted.parquet") == notes
    assert storage.read_table("noted.parquet").equals(table)
    assert storage.read_table("noted.parquet", ["b"]).equals(table.select(["b"]))
    assert storage.is_table("noted.parquet")
    assert storage.columns("noted.parquet") == ["a", "b"]


def test_a_table_without_notes_has_none_and_does_not_hand_on_those_it_was_read_with(
    storage: Storage,
) -> None:
    storage.write_table("noted.parquet", pa.table({"a": [1]}), notes={"rows": 1})
    storage.write_table("copy.parquet", storage.read_table("noted.parquet"))
    storage.write_table("empty.parquet", pa.table({"a": [1]}), notes={})
    assert storage.read_notes("copy.parquet") == {} == storage.read_notes("empty.parquet")
    with pytest.raises(FileNotFoundError):
        storage.read_notes("gone.parquet")


WHOLE = pa.table({"a": [f"{i:08x}" for i in range(2000)]})
DAMAGES: dict[str, Callable[[bytes], bytes]] = {
    "empty": lambda whole: b"",
    "cut short": lambda whole: whole[: len(whole) // 2],
    "pages": lambda whole: whole[:4] + bytes(1000) + whole[1004:],
    "footer": lambda whole: whole[:-200] + b"\xff" * 192 + whole[-8:],
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_damaged_table_is_told_from_one_that_the_store_does_not_give(
    storage: Storage, damage: str
) -> None:
    storage.write_table("part", WHOLE)
    storage.write_bytes("part", DAMAGES[damage](storage.read_bytes("part")))
    with pytest.raises(Damaged, match="/part: damaged, delete it and run again: "):
        storage.read_table("part")
    assert storage.is_table("part") == (damage == "pages")  # the footer alone is looked at
    if damage != "pages":
        with pytest.raises(Damaged):
            storage.footer("part")
    storage.write_bytes("folder/file", b"")
    for read in (storage.read_table, storage.footer, storage.is_table):
        with pytest.raises(OSError, match="folder") as refused:
            read("folder")
        assert not isinstance(refused.value, Damaged)


def test_a_second_write_replaces_the_first(storage: Storage) -> None:
    storage.write_bytes("file", b"a longer text")
    storage.write_bytes("file", b"new")
    assert storage.read_bytes("file") == b"new"
    assert storage.names("") == ["file"]


def test_what_is_not_there_is_told_from_what_is_empty(storage: Storage) -> None:
    storage.write_bytes("a/empty", b"")
    assert storage.read_bytes("a/empty") == b""
    assert storage.exists("a/empty") and storage.exists("a") and storage.exists("")
    assert not storage.exists("a/gone")
    assert storage.names("gone") == []
    with pytest.raises(FileNotFoundError):
        storage.read_bytes("a/gone")


def test_deleting_removes_a_file_and_minds_no_absent_one(storage: Storage) -> None:
    storage.write_bytes("a/file", b"x")
    storage.delete("a/file")
    storage.delete("a/file")
    assert not storage.exists("a/file")


def test_an_exclusive_write_leaves_a_file_that_is_there(storage: Storage) -> None:
    assert storage.create_exclusive("a/file", b"first")
    assert not storage.create_exclusive("a/file", b"second")
    assert storage.read_bytes("a/file") == b"first"
    assert storage.names("a") == ["file"]


def test_a_place_is_named_as_it_was_given(storage: Storage, tmp_path: Path) -> None:
    assert storage.uri("a/b") == f"{storage.root}/a/b"
    assert storage.uri("") == storage.root
    assert Storage(str(tmp_path)).uri("a") == f"{tmp_path}/a"


def test_a_reader_never_sees_a_half_written_file(local: Storage) -> None:
    versions = {b"a" * 2_000_000, b"b" * 1_000_000}
    local.write_bytes("file", min(versions))
    writing = threading.Event()
    seen: set[bytes] = set()

    def work(number: int) -> None:
        if number == 0:
            for _ in range(10):
                for version in sorted(versions):
                    local.write_bytes("file", version)
            writing.set()
        else:
            while not writing.is_set():
                seen.add(local.read_bytes("file"))

    in_threads(2, work)
    assert seen <= versions and seen


def test_of_many_exclusive_writers_one_wins_and_its_data_stay(local: Storage) -> None:
    for turn in range(20):
        won: list[int] = []

        def work(number: int, path: str = f"{turn}/file", won: list[int] = won) -> None:
            if local.create_exclusive(path, str(number).encode() * 1000):
                won.append(number)

        in_threads(4, work)
        assert len(won) == 1
        assert local.read_bytes(f"{turn}/file") == str(won[0]).encode() * 1000


def test_a_failing_write_leaves_the_old_contents_and_no_temporary_file(
    local: Storage, tmp_path: Path
) -> None:
    (tmp_path / "taken" / "inside").mkdir(parents=True)  # a folder cannot be replaced by a file
    with pytest.raises(OSError, match="taken"):
        local.write_bytes("taken", b"x")
    assert [path.name for path in tmp_path.iterdir()] == ["taken"]
    assert not local.create_exclusive("taken", b"x")
    assert [path.name for path in tmp_path.iterdir()] == ["taken"]


def test_names_leave_out_what_a_killed_writer_left(local: Storage, tmp_path: Path) -> None:
    local.write_bytes("parts/b", b"")
    local.write_bytes("parts/a", b"")
    (tmp_path / "parts" / ".c.0123456789abcdef.tmp").write_bytes(b"half")
    assert local.names("parts") == ["a", "b"]
