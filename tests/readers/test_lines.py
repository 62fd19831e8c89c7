"""Tests of pipeline.readers.lines, on FlashRAG questions: every bad line is named by file, line and
reason."""

import gzip
import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from pipeline import readers
from pipeline.readers import BadLine
from tests.readers.files import Write, encoded, refusal

GOOD = {"id": "q1", "question": "Who?", "golden_answers": ["Ada"], "metadata": {"split": "dev"}}


def test_a_question_line_becomes_our_columns(write: Write) -> None:
    assert list(readers.questions(write(GOOD))) == [
        {
            "question_id": "q1",
            "question": "Who?",
            "golden_answers": ["Ada"],
            "metadata": {"split": "dev"},
        }
    ]


def test_a_question_log_needs_neither_golds_nor_metadata(write: Write) -> None:
    (row,) = readers.questions(write({"id": "1", "question": "Who?"}))
    assert row["golden_answers"] == []
    assert row["metadata"] == {}


def test_numeric_ids_become_texts(write: Write) -> None:
    path = write({"id": 7, "question": "Who?"}, {"id": 0, "question": "Who?"})
    assert [row["question_id"] for row in readers.questions(path)] == ["7", "0"]


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ('{"id": "q2", "question": ', "not JSON: Expecting value at column 26"),
        ("[1, 2]", "expected an object, got list"),
        ('"text"', "expected an object, got str"),
        (b'{"id": "q2", "question": "caf\xe9"}', "not UTF-8 at byte 29 of the line"),
        ({**GOOD, "id": "q2", "question": ""}, "question must be a text that is not empty"),
        ({**GOOD, "id": "q2", "question": " \t"}, "question must be a text that is not empty"),
        ({**GOOD, "id": "q2", "question": 5}, "question must be a text that is not empty, got 5"),
        ({"id": "q2"}, "question must be a text that is not empty, got None"),
        ({"question": "Who?"}, "id must be a text or a number, got None"),
        ({**GOOD, "id": None}, "id must be a text or a number, got None"),
        ({**GOOD, "id": True}, "id must be a text or a number, got True"),
        ({**GOOD, "id": 1.5}, "id must be a text or a number, got 1.5"),
        ({**GOOD, "id": " "}, "id must be a text or a number, got ' '"),
        ({**GOOD, "id": "q1"}, "id 'q1' stands already in line 1"),
        (
            {**GOOD, "id": "q2", "golden_answers": "Ada"},
            "golden_answers must be a list of texts, got 'Ada'",
        ),
        (
            {**GOOD, "id": "q2", "golden_answers": ["Ada", 3]},
            "golden_answers must be a list of texts, got ['Ada', 3]",
        ),
        (
            {**GOOD, "id": "q2", "golden_answers": None},
            "golden_answers must be a list of texts, got None",
        ),
        ({**GOOD, "id": "q2", "metadata": ["dev"]}, "metadata must be an object, got ['dev']"),
        ('{"id": "q2", "question": "\\ud800?"}', "half a surrogate pair"),
        ('{"id": "q2", "metadata": {"a": ' + "[" * 10_000, "nested too deeply"),
    ],
)
def test_a_bad_question_is_refused_with_line_and_reason(
    write: Write, line: Any, reason: str
) -> None:
    message = refusal(readers.questions, write(GOOD, line))
    assert message.startswith(":2: ")
    assert reason in message


def test_a_number_and_a_text_that_read_alike_are_the_same_id(write: Write) -> None:
    path = write({"id": 1, "question": "Who?"}, {"id": "1", "question": "Where?"})
    assert refusal(readers.questions, path) == ":2: id '1' stands already in line 1"


def test_blank_lines_are_skipped_but_counted(write: Write) -> None:
    path = write("", GOOD, "   ", "oops")
    assert refusal(readers.questions, path).startswith(":4: not JSON")


def test_windows_line_ends_are_read(write: Write) -> None:
    path = write(encoded(GOOD) + b"\r", b"\r")
    assert len(list(readers.questions(path))) == 1


def test_a_last_line_without_newline_is_read(tmp_path: Path) -> None:
    path = tmp_path / "in.jsonl"
    path.write_bytes(encoded(GOOD) + b"\n" + encoded({**GOOD, "id": "q2"}))
    assert [row["question_id"] for row in readers.questions(str(path))] == ["q1", "q2"]
    path.write_bytes(encoded(GOOD) + b"\n\n" + b"oops")
    assert refusal(readers.questions, str(path)).startswith(":3: not JSON")


def test_an_empty_file_holds_no_rows(write: Write) -> None:
    assert list(readers.questions(write())) == []


def test_lines_longer_than_one_chunk_are_read_whole(write: Write) -> None:
    long = "x" * ((1 << 20) + 17)
    values = ({"id": 1, "contents": long}, {"id": 2, "contents": long + "y"})
    rows = list(readers.passages(write(*values)))
    assert [len(row["contents"]) for row in rows] == [len(long), len(long) + 1]


def test_gzipped_files_are_unpacked_and_bad_lines_still_named(tmp_path: Path) -> None:
    path = tmp_path / "in.jsonl.gz"
    path.write_bytes(gzip.compress(encoded(GOOD) + b"\noops\n"))
    assert refusal(readers.questions, str(path)).startswith(":2: not JSON")


@pytest.mark.parametrize("damage", ["cut", "not gzip"])
def test_a_damaged_gzip_file_is_refused_by_name(tmp_path: Path, damage: str) -> None:
    path = tmp_path / "in.jsonl.gz"
    packed = gzip.compress(b"".join(encoded({**GOOD, "id": i}) + b"\n" for i in range(999)))
    path.write_bytes(packed[:-200] if damage == "cut" else b"plain text")
    assert "cannot be read" in refusal(readers.questions, str(path))


def test_a_missing_file_a_folder_and_an_unknown_uri_are_refused_by_name(tmp_path: Path) -> None:
    assert refusal(readers.questions, str(tmp_path / "gone.jsonl")) == ": no such file"
    assert "cannot be read" in refusal(readers.questions, str(tmp_path))
    assert "cannot be read" in refusal(readers.questions, "nosuch://bucket/q.jsonl")


def test_a_file_uri_reads_like_its_path(write: Write) -> None:
    path = write(GOOD)
    assert list(readers.questions(f"file://{path}")) == list(readers.questions(path))


def test_on_bad_collects_and_reading_goes_on(write: Write) -> None:
    path = write("oops", GOOD, GOOD, {"id": "q3", "question": ""}, {**GOOD, "id": "q4"})
    bad: list[BadLine] = []
    rows = list(readers.questions(path, bad.append))
    assert [row["question_id"] for row in rows] == ["q1", "q4"]
    assert [(found.path, found.line) for found in bad] == [(path, 1), (path, 3), (path, 4)]
    assert str(bad[1]) == f"{path}:3: id 'q1' stands already in line 2"


def test_an_id_of_a_bad_line_may_be_used_again(write: Write) -> None:
    path = write({"id": "q1", "question": ""}, GOOD)
    bad: list[BadLine] = []
    assert [row["question_id"] for row in readers.questions(path, bad.append)] == ["q1"]


# Texts that cut lines elsewhere (U+2028, U+0085, \r), but any other character too.
TEXT = st.text(min_size=1) | st.text(alphabet="a\u2028\u2029\x85\r\n\x0b\x1c", min_size=1)
FILLED = TEXT.filter(lambda text: bool(text.strip()))
QUESTION = st.fixed_dictionaries(
    {
        "question": FILLED,
        "golden_answers": st.lists(TEXT, max_size=3),
        "metadata": st.dictionaries(TEXT, st.integers() | TEXT, max_size=2),
    }
)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(questions=st.lists(QUESTION, max_size=5), ascii_only=st.booleans())
def test_any_questions_written_and_read_come_back_equal(
    tmp_path: Path, questions: list[dict[str, Any]], ascii_only: bool
) -> None:
    path = tmp_path / "round.jsonl"
    rows = [{"id": f"q{i}", **question} for i, question in enumerate(questions)]
    lines = [json.dumps(row, ensure_ascii=ascii_only) + "\n" for row in rows]
    path.write_bytes("".join(lines).encode())
    read = [{"id": row.pop("question_id"), **row} for row in readers.questions(str(path))]
    assert read == rows
