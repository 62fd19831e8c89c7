"""Tests of pipeline.readers.lists: our own candidates.jsonl."""

from typing import Any

import pytest

from pipeline import readers
from tests.readers.files import Write, refusal


def entry(passage_id: str, **known: Any) -> dict[str, Any]:
    """A candidate of which no more than this is known."""
    blank = {"score": None, "label": None, "answer": None, "contents": None}
    return {"passage_id": passage_id, **blank, **known}


@pytest.mark.parametrize("ids", ["id", "question_id"])
@pytest.mark.parametrize("key", ["candidates", "passages"])
def test_candidate_lists_keep_their_order_and_scores(write: Write, ids: str, key: str) -> None:
    path = write({ids: 1, key: [{"id": "b", "score": 2}, {"id": 7}]}, {ids: 2, key: []})
    assert list(readers.candidates(path)) == [
        {"question_id": "1", "candidates": [entry("b", score=2.0), entry("7")]},
        {"question_id": "2", "candidates": []},
    ]


def test_types_and_answers_of_a_pool_are_kept(write: Write) -> None:
    pool = [{"id": "a", "type": "misinfo", "answer": "1066"}, {"id": "b", "type": "noise"}]
    (row,) = readers.candidates(write({"id": "q", "candidates": pool}))
    assert row["candidates"] == [
        entry("a", label="misinfo", answer="1066"),
        entry("b", label="noise"),
    ]


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ({"id": "q2"}, "passages must be a list of objects, got None"),
        ({"id": "q2", "candidates": {"id": "a"}}, "candidates must be a list of objects"),
        ({"id": "q2", "candidates": ["a"]}, "candidates must be a list of objects, got ['a']"),
        ({"id": "q2", "candidates": [{"score": 1}]}, "id must be a text or a number, got None"),
        (
            {"id": "q2", "candidates": [{"id": "a", "score": "high"}]},
            "score of 'a' must be a number, got 'high'",
        ),
        (
            {"id": "q2", "candidates": [{"id": "a", "score": True}]},
            "score of 'a' must be a number, got True",
        ),
        ('{"id": "q2", "candidates": [{"id": "a", "score": NaN}]}', "must be a number, got nan"),
        ({"id": "q2", "candidates": [{"id": "a"}, {"id": "a"}]}, "passage 'a' stands twice"),
        ({"id": "q2", "candidates": [{"id": "a", "type": 1}]}, "type must be a text, got 1"),
        ({"id": "q2", "candidates": [{"id": "a", "answer": []}]}, "answer must be a text, got []"),
        ({"candidates": []}, "id must be a text or a number, got None"),
        ({"id": "q1", "candidates": []}, "id 'q1' stands already in line 1"),
    ],
)
def test_a_bad_candidate_list_is_refused(write: Write, line: Any, reason: str) -> None:
    message = refusal(readers.candidates, write({"id": "q1", "candidates": []}, line))
    assert message.startswith(":2: ") and reason in message
