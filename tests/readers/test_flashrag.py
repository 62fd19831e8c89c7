"""Tests of pipeline.readers.flashrag: corpora and the retrieval cache."""

import json
from typing import Any

import pytest

from pipeline import readers
from tests.readers.files import Write, refusal
from tests.readers.test_lists import entry


def test_passages_have_contents_or_text(write: Write) -> None:
    path = write({"id": 1, "contents": '"T"\nx', "text": "y"}, {"id": 2, "text": "z\nw"})
    assert list(readers.passages(path)) == [
        {"passage_id": "1", "contents": '"T"\nx'},
        {"passage_id": "2", "contents": "\nz\nw"},
    ]


def test_a_title_beside_the_text_becomes_the_first_line(write: Write) -> None:
    path = write({"id": 1, "title": "T", "text": "x"}, {"id": 2, "title": "", "text": "x\ny"})
    assert [row["contents"] for row in readers.passages(path)] == ["T\nx", "\nx\ny"]


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ({"id": "p2", "contents": ""}, "contents must be a text that is not empty, got ''"),
        ({"id": "p2", "contents": "T\n \n"}, "must hold a text below the title's line, got 'T"),
        ({"id": "p2"}, "text must be a text that is not empty, got None"),
        ({"contents": "x"}, "id must be"),
        ({"id": "p1", "contents": "x"}, "id 'p1' stands already in line 1"),
    ],
)
def test_a_bad_passage_is_refused(write: Write, line: Any, reason: str) -> None:
    message = refusal(readers.passages, write({"id": "p1", "contents": "x"}, line))
    assert message.startswith(":2: ") and reason in message


def test_the_retrieval_cache_brings_passages_by_question(write: Write) -> None:
    cache = {
        "Who, [she]?": [{"id": 3, "contents": '"T"\nx', "score": 1.5}],
        'Say "}"!': [{"id": "b", "title": "U", "text": "y"}],
        "None?": [],
    }
    for indent in (None, 2):
        path = write(json.dumps(cache, indent=indent), name="cache.json")
        assert list(readers.candidates(path)) == [
            {
                "question": "Who, [she]?",
                "candidates": [entry("3", score=1.5, contents='"T"\nx')],
            },
            {"question": 'Say "}"!', "candidates": [entry("b", contents="U\ny")]},
            {"question": "None?", "candidates": []},
        ]


@pytest.mark.parametrize(
    ("member", "reason"),
    [
        ('"q": {}', "q must be a list of objects, got {}"),
        ('"q": [{"id": 1}]', "text must be a text that is not empty, got None"),
        (
            '"q": [{"id": 1, "contents": "x"}, {"id": 1, "contents": "x"}]',
            "passage '1' stands twice",
        ),
        ('"a": []', "id 'a' stands already in entry 1"),
        ('"q"', "not JSON"),
        ("", "expected a question and its list of passages"),
    ],
)
def test_a_bad_member_of_the_cache_is_named_by_line_and_entry(
    write: Write, member: str, reason: str
) -> None:
    path = write("{", '"a": [],', member, "}", name="cache.json")
    message = refusal(readers.candidates, path)
    assert message.startswith((":3: entry 2: ", ":4: entry 2: ")) and reason in message
