"""Tests of pipeline.readers.dpr: a retriever's output, and the tab-separated corpus."""

import gzip
import json
from pathlib import Path
from typing import Any

import pytest

from pipeline import readers
from pipeline.readers import BadLine
from tests.readers.files import Write, refusal
from tests.readers.test_lists import entry

CTXS = [
    {"id": "wiki:1", "title": "T", "text": "x", "score": "82.5", "has_answer": True},
    {"id": 2, "title": "", "text": "y"},
]
GOOD = {"question": "Who?", "answers": ["Ada"], "ctxs": CTXS}


def questions(path: str) -> list[dict[str, Any]]:
    """The rows of a retriever's output."""
    return list(readers.questions(path, format="dpr"))


def test_passages_come_with_the_question_and_entries_are_known_by_number(write: Write) -> None:
    made = {
        "question_id": "0",
        "question": "Who?",
        "golden_answers": ["Ada"],
        "metadata": {},
        "candidates": [entry("wiki:1", score=82.5, contents="T\nx"), entry("2", contents="\ny")],
    }
    for text in (json.dumps([GOOD, GOOD]), json.dumps([GOOD, GOOD], indent=4)):
        assert questions(write(text)) == [made, made | {"question_id": "1"}]
    assert questions(write(GOOD, GOOD)) == [made, made | {"question_id": "1"}]


@pytest.mark.parametrize("key", ["id", "question_id", "q_id"])
def test_an_id_is_kept(write: Write, key: str) -> None:
    (row,) = questions(write([{**GOOD, key: 7}]))
    assert row["question_id"] == "7"


@pytest.mark.parametrize(
    ("bad", "reason"),
    [
        ({**GOOD, "question": " "}, "question must be a text that is not empty, got ' '"),
        ({**GOOD, "answers": "Ada"}, "answers must be a list of texts, got 'Ada'"),
        ({"question": "Who?"}, "ctxs must be a list of objects, got None"),
        ({**GOOD, "ctxs": [{"id": 1, "title": "T", "text": ""}]}, "text must be a text"),
        ({**GOOD, "ctxs": [{"title": "T", "text": "x"}]}, "id must be a text or a number"),
        ({**GOOD, "ctxs": [CTXS[0], CTXS[0]]}, "passage 'wiki:1' stands twice in ctxs"),
        ({**GOOD, "ctxs": [{**CTXS[0], "score": "high"}]}, "score of 'wiki:1' must be a number"),
        ({**GOOD, "id": "0"}, "id '0' stands already in entry 1"),
        ([], "expected an object, got list"),
    ],
)
def test_a_bad_entry_is_named_by_line_and_number(write: Write, bad: Any, reason: str) -> None:
    path = write("[", json.dumps(GOOD) + ",", bad, "]")
    message = refusal(questions, path)
    assert message.startswith(":3: entry 2: ") and reason in message
    found: list[BadLine] = []
    assert len(list(readers.questions(path, found.append, format="dpr"))) == 1
    assert found[0].place == "entry 2"


def test_a_bad_line_of_json_lines_is_named_by_line(write: Write) -> None:
    assert refusal(questions, write(GOOD, "oops")) == ":2: not JSON: Expecting value at column 1"


def test_the_corpus_is_read_with_its_quotes(write: Write, tmp_path: Path) -> None:
    lines = ["id\ttext\ttitle", '1\t"""Ada"" wrote."\tAda\r', '2\tA 5" disk.\t', '3\tx\t"Heroes"']
    path = write(*lines, name="psgs.tsv")
    found = [{"passage_id": row["passage_id"], **row} for row in readers.passages(path)]
    assert found == [
        {"passage_id": "1", "contents": 'Ada\n"Ada" wrote.'},
        {"passage_id": "2", "contents": '\nA 5" disk.'},
        {"passage_id": "3", "contents": "Heroes\nx"},
    ]
    packed = tmp_path / "psgs.tsv.gz"
    packed.write_bytes(gzip.compress(Path(path).read_bytes()))
    assert list(readers.passages(str(packed))) == found


@pytest.mark.parametrize(
    ("lines", "place", "reason"),
    [
        (["1\tx\tT"], ":1: ", "expected the header id, text, title"),
        ([], ":1: ", "expected the header id, text, title"),
        ([b"id\ttext\t\xfftitle"], ":1: ", "not UTF-8 at byte 8 of the line"),
        (['id\ttext\t"title'], ":1: ", "not tab-separated"),
        (["id\ttext\ttitle", "1\tx"], ":2: ", "with tabs between, got 2 columns"),
        (["id\ttext\ttitle", "1\t \tT"], ":2: ", "text must be a text that is not empty"),
        (["id\ttext\ttitle", "\tx\tT"], ":2: ", "id must be a text or a number, got ''"),
        (["id\ttext\ttitle", '1\t"open\tT'], ":2: ", "not tab-separated"),
        (["id\ttext\ttitle", "1\tx\tT", "1\ty\tT"], ":3: ", "id '1' stands already in line 2"),
    ],
)
def test_a_bad_line_of_the_corpus_is_refused(
    write: Write, lines: list[str | bytes], place: str, reason: str
) -> None:
    message = refusal(readers.passages, write(*lines, name="psgs.tsv"))
    assert message.startswith(place) and reason in message
