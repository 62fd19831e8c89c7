"""Tests of pipeline.readers.beir: queries and corpora."""

from pathlib import Path
from typing import Any

import pytest

from pipeline import readers
from pipeline.readers import BadLine
from tests.readers.files import Write, refusal


def queries(path: str) -> list[dict[str, Any]]:
    """The rows of a BEIR data set's queries."""
    return list(readers.questions(path, format="beir"))


def test_queries_are_questions_without_golden_answers(write: Write, tmp_path: Path) -> None:
    path = write({"_id": 1, "text": "Who?", "metadata": {"a": 1}}, name="queries.jsonl")
    made = [{"question_id": "1", "question": "Who?", "golden_answers": [], "metadata": {"a": 1}}]
    assert queries(path) == made
    assert queries(str(tmp_path)) == made
    assert readers.question_files(f"{tmp_path}/", "beir") == [path]


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ({"_id": "b", "text": ""}, "text must be a text that is not empty, got ''"),
        ({"id": "b", "text": "Who?"}, "_id must be a text or a number, got None"),
        ({"_id": "a", "text": "Who?"}, "id 'a' stands already in line 1"),
        ({"_id": "b", "text": "Who?", "metadata": 3}, "metadata must be an object, got 3"),
    ],
)
def test_a_bad_query_is_refused_or_collected(write: Write, line: Any, reason: str) -> None:
    path = write({"_id": "a", "text": "Why?"}, line)
    message = refusal(queries, path)
    assert message.startswith(":2: ") and reason in message
    bad: list[BadLine] = []
    assert len(list(readers.questions(path, bad.append, format="beir"))) == 1
    assert (bad[0].line, bad[0].place) == (2, "line 2")


def test_a_corpus_joins_title_and_text_and_takes_a_lone_title_for_the_text(write: Write) -> None:
    path = write(
        {"_id": "a", "title": "T", "text": "x"},
        {"_id": "b", "title": "", "text": "y\nz"},
        {"_id": "c", "title": "Title\nalone", "text": ""},
        {"_id": "d", "text": "no title"},
    )
    found = {row["passage_id"]: row["contents"] for row in readers.passages(path)}
    assert found == {"a": "T\nx", "b": "\ny\nz", "c": "Title alone", "d": "\nno title"}


def test_a_passage_without_a_word_is_refused(write: Write) -> None:
    message = refusal(readers.passages, write({"_id": "a", "title": " ", "text": ""}))
    assert message == ":1: text must be a text that is not empty, got ''"
