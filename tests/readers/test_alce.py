"""Tests of pipeline.readers.alce: questions with documents, and which golden answers they have."""

import json
from typing import Any

import pytest

from pipeline import readers
from tests.readers.files import Write, refusal
from tests.readers.test_lists import entry

DOCS = [{"title": "T", "text": "x"}, {"id": "d", "title": "U", "text": "y", "score": 2}]
PAIRS = [
    {"question": "Who in 1843?", "short_answers": ["Ada", "Lovelace"]},
    {"short_answers": ["Ada"]},
]


def questions(path: str) -> list[dict[str, Any]]:
    """The rows of an ALCE file."""
    return list(readers.questions(path, format="alce"))


def one(write: Write, **fields: Any) -> dict[str, Any]:
    """The row of a file with one entry."""
    (row,) = questions(write([{"question": "Who?", "docs": DOCS, **fields}]))
    return row


def test_documents_are_candidates_and_those_without_id_are_known_by_contents(write: Write) -> None:
    first, second = one(write)["candidates"]
    assert second == entry("d", score=2.0, contents="U\ny")
    assert first == entry(first["passage_id"], contents="T\nx")
    assert len(first["passage_id"]) == 16
    other = one(write, question="Where?")["candidates"][0]
    assert other["passage_id"] == first["passage_id"]


@pytest.mark.parametrize(
    ("fields", "golds"),
    [
        ({"qa_pairs": PAIRS, "answer": "Ada wrote it."}, ["Ada", "Lovelace"]),
        ({"answers": [["Ada", "A. Lovelace"], ["Babbage"]]}, ["Ada", "A. Lovelace", "Babbage"]),
        ({"answers": ["Ada"]}, ["Ada"]),
        ({"claims": ["Ada wrote the first programme."]}, []),
        ({}, []),
    ],
)
def test_golden_answers_are_short_answers_or_answers_and_all_is_kept(
    write: Write, fields: dict[str, Any], golds: list[str]
) -> None:
    row = one(write, **fields)
    assert row["golden_answers"] == golds
    assert row["metadata"] == fields


@pytest.mark.parametrize("key", ["id", "sample_id", "question_id"])
def test_an_id_is_kept_else_the_entry_has_its_number(write: Write, key: str) -> None:
    assert one(write, **{key: 12})["question_id"] == "12"
    assert one(write)["question_id"] == "0"


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        ({"docs": None}, "docs must be a list of objects, got None"),
        ({"docs": [{"title": "T", "text": ""}]}, "text must be a text that is not empty, got ''"),
        ({"docs": [DOCS[0], DOCS[0]]}, "stands twice in docs"),
        ({"question": ""}, "question must be a text"),
        ({"answers": "Ada"}, "answers must be a list, got 'Ada'"),
        ({"answers": [3]}, "answers must be a list of texts, got [3]"),
        ({"qa_pairs": {}}, "qa_pairs must be a list of objects, got {}"),
        ({"qa_pairs": [{"short_answers": "Ada"}]}, "short_answers must be a list of texts"),
        ({"claims": "Ada wrote it."}, "claims must be a list of texts, got 'Ada wrote it.'"),
        ({"claims": ["Ada wrote it.", " "]}, "claims must be texts that are not empty, got ["),
    ],
)
def test_a_bad_entry_is_refused_by_line_and_number(
    write: Write, fields: dict[str, Any], reason: str
) -> None:
    path = write("[", {"question": "Who?", "docs": DOCS, **fields}, "]")
    message = refusal(questions, path)
    assert message.startswith(":2: entry 1: ") and reason in message


def test_a_bad_entry_with_an_id_is_refused_by_it_too(write: Write) -> None:
    good = {"question": "Who?", "docs": DOCS, "sample_id": "a1"}
    path = write(json.dumps([good, good | {"sample_id": "b2", "docs": None}]))
    message = refusal(questions, path)
    assert message == ":1: entry 2: sample_id 'b2': docs must be a list of objects, got None"
