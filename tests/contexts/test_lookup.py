"""Tests of pipeline.contexts.lookup: a question's context by its id and by its text."""

import datetime
from collections.abc import Sequence
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeline.contexts import Context, Contexts
from pipeline.contexts.lookup import plain
from pipeline.readers import InputError
from pipeline.runs.layout import part
from pipeline.runs.storage import Storage
from pipeline.schema import CONTEXT

DATE = datetime.date(2026, 11, 30)
TYPES = {field.name: field.type for field in CONTEXT.type}


def context(question_id: str, question: str, text: str = "[DOC 1] a") -> Context:
    return Context(question_id, question, text, 3, ["p1"], [0.5], [1], 1, "documents", "0123")


def write(folder: Path, shards: Sequence[Sequence[Context]], date: datetime.date = DATE) -> str:
    """A partition, row by row; its set's folder."""
    storage = Storage(str(folder))
    names = list(Context.__dataclass_fields__)
    types = [pa.string(), pa.string(), TYPES["text"], *(TYPES[name] for name in names[3:])]
    fields = pa.schema(list(map(pa.field, names, types)))
    for number, rows in enumerate(shards):
        table = pa.Table.from_pylist([vars(row) for row in rows], schema=fields)
        storage.write_table(part(f"date={date}", number), table)
    manifest = {"questions": sum(map(len, shards)), "first": repr(shards)}
    storage.write_json(f"date={date}/manifest.json", manifest)
    storage.write_bytes(f"date={date}/_SUCCESS", b"")
    return str(folder)


NORTH, SOUTH = context("q1", "Which wind?"), context("q2", "Which  sea?", "[DOC 1] b")
WEST = context("q3", "Which hill?")


@pytest.fixture
def found(tmp_path: Path) -> Contexts:
    return Contexts(write(tmp_path, [[NORTH], [], [SOUTH, WEST]]))


def test_a_context_is_found_by_its_id_and_by_its_text(found: Contexts) -> None:
    assert [found.by_id(name) for name in ("q1", "q2", "q3")] == [NORTH, SOUTH, WEST]
    assert found.by_question("Which hill?") == WEST
    assert len(found) == 3 and list(found) == [NORTH, SOUTH, WEST]


def test_white_space_and_composition_of_a_question_do_not_matter_and_case_does(
    tmp_path: Path,
) -> None:
    rows = [context("q1", "Où est\tle café ?")]
    found = Contexts(write(tmp_path, [rows]))
    assert found.by_question("  Où est le cafe\u0301 ?\n") == rows[0]
    with pytest.raises(KeyError, match="où est le café"):
        found.by_question("où est le café ?")


def test_what_is_not_there_is_a_key_error(found: Contexts) -> None:
    with pytest.raises(KeyError, match="q9"):
        found.by_id("q9")
    with pytest.raises(KeyError, match="Why"):
        found.by_question("Why?")


def test_a_question_under_several_ids_has_one_context_or_is_to_be_asked_by_id(
    tmp_path: Path,
) -> None:
    twice = [context("q1", "Why?"), context("q2", "Why? ")]
    found = Contexts(write(tmp_path / "same", [twice]))
    assert found.by_question("Why?") == twice[0]
    other = context("q2", "Why?", "[DOC 1] other")
    found = Contexts(write(tmp_path / "other", [twice[:1], [other]]))
    with pytest.raises(ValueError, match=r"several contexts: look up by id \(q1, q2\)"):
        found.by_question("Why?")
    assert found.by_id("q2") == other


def test_the_latest_finished_date_is_taken_unless_one_is_named(tmp_path: Path) -> None:
    later = datetime.date(2026, 12, 1)
    folder = write(tmp_path, [[NORTH]])
    write(tmp_path, [[SOUTH]], later)
    assert Contexts(folder).date == later
    assert list(Contexts(folder, "2026-11-30")) == list(Contexts(folder, DATE)) == [NORTH]
    with pytest.raises(
        InputError, match=r"date 2026-11-29 is finished here; allowed: 2026-11-30, 2026-12-01"
    ):
        Contexts(folder, "2026-11-29")


def test_a_folder_without_a_finished_date_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no date is finished here"):
        Contexts(str(tmp_path))


def test_more_parts_than_stay_in_memory_are_all_found(tmp_path: Path) -> None:
    rows = [context(f"q{i}", f"What is {i}?") for i in range(30)]
    found = Contexts(write(tmp_path, [[row] for row in rows]))
    assert [found.by_id(row.question_id) for row in reversed(rows)] == rows[::-1]
    assert [found.by_question(row.question) for row in rows] == rows


@given(st.text())
def test_the_plain_text_of_a_plain_text_is_itself(text: str) -> None:
    once = plain(text)
    assert plain(once) == once == once.strip()


def test_a_date_that_is_replaced_while_it_is_open_is_told(tmp_path: Path) -> None:
    found = Contexts(write(tmp_path, [[NORTH], [SOUTH]]))
    assert found.by_id("q1") == NORTH
    write(tmp_path, [[NORTH], [context("q2", "Which  sea?", "[DOC 1] c")]])
    with pytest.raises(InputError, match=f"date={DATE}: replaced since it was opened"):
        found.by_id("q2")
    assert Contexts(str(tmp_path)).by_id("q2").context == "[DOC 1] c"


def test_a_date_that_is_being_replaced_is_told(tmp_path: Path) -> None:
    found = Contexts(write(tmp_path, [[NORTH]]))
    (tmp_path / f"date={DATE}" / "_SUCCESS").unlink()
    with pytest.raises(InputError, match="replaced since it was opened"):
        found.by_id("q1")


def test_a_date_that_has_lost_a_part_is_refused(tmp_path: Path) -> None:
    write(tmp_path, [[NORTH], [SOUTH, WEST]])
    (tmp_path / part(f"date={DATE}", 1)).unlink()
    with pytest.raises(InputError, match="1 questions, its manifest tells 3: parts are missing"):
        Contexts(str(tmp_path))
