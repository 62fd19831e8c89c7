"""Tests of pipeline.readers.trec: runs and judgements."""

from typing import Any

import pytest

from pipeline import readers
from tests.readers.files import Write, refusal
from tests.readers.test_lists import entry


def judgements(path: str) -> list[tuple[str, str, int]]:
    """A file's judgements as triples."""
    return [(r["question_id"], r["passage_id"], r["relevance"]) for r in readers.qrels(path)]


def test_a_run_is_ordered_by_score_and_ties_by_rank(write: Write) -> None:
    path = write(
        "q2 Q0 x 1 0.5 t",
        "q1 Q0 a 3 1.5 t",
        "q1 Q0 b 2 1.5 t",
        "q1\tQ0\tc  1 1e1 t",
        name="a.run",
    )
    assert list(readers.candidates(path)) == [
        {"question_id": "q2", "candidates": [entry("x", score=0.5)]},
        {
            "question_id": "q1",
            "candidates": [
                entry("c", score=10.0),
                entry("b", score=1.5),
                entry("a", score=1.5),
            ],
        },
    ]


def test_questions_of_the_side_list_have_no_candidates(write: Write) -> None:
    path = write("q1 Q0 a 1 1 t", name="a.run")
    write("q2", "q3", name="a.run.empty")
    assert [(r["question_id"], len(r["candidates"])) for r in readers.candidates(path)] == [
        ("q1", 1),
        ("q2", 0),
        ("q3", 0),
    ]
    assert readers.candidate_files(path) == [path, f"{path}.empty"]
    write("q1", name="a.run.empty")
    assert refusal(readers.candidates, path) == ".empty: names 'q1', which has passages"


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ("q1 Q0 b 2 1", "expected the columns qid Q0 docid rank score tag, got 5 of them"),
        ("q1 Q0 b two 1 t", "rank must be a whole number, got 'two'"),
        ("q1 Q0 b 2 high t", "score must be a number, got 'high'"),
        ("q1 Q0 b 2 nan t", "score must be a number, got 'nan'"),
        ("q1 Q0 a 2 1 t", "id ('q1', 'a') stands already in line 1"),
        (b"q1 Q0 \xff 2 1 t", "not UTF-8 at byte 6"),
    ],
)
def test_a_bad_line_of_a_run_is_refused(write: Write, line: Any, reason: str) -> None:
    message = refusal(readers.candidates, write("q1 Q0 a 1 1 t", line, name="a.run"))
    assert message.startswith(":2: ") and reason in message


def test_judgements_of_both_forms_are_told_apart(write: Write) -> None:
    beir = write("query-id\tcorpus-id\tscore\r", "q 1\tp\t2\r", "q2\tp\t0", name="test.tsv")
    assert judgements(beir) == [("q 1", "p", 2), ("q2", "p", 0)]
    trec = write("q1 0 p 2", "q1\t0\tr\t-1", name="qrels.txt")
    assert judgements(trec) == [("q1", "p", 2), ("q1", "r", -1)]


@pytest.mark.parametrize(
    ("lines", "place", "reason"),
    [
        (["q1\tp\t1"], ":1: ", "expected BEIR's header"),
        ([], ":1: ", "expected BEIR's header"),
        (["query-id\tcorpus-id\tscore", "q1\tp\thigh"], ":2: ", "score must be a whole number"),
        (["query-id\tcorpus-id\tscore", "q1\tp"], ":2: ", "expected query-id, corpus-id, score"),
        (["query-id\tcorpus-id\tscore", "q1\t\t1"], ":2: ", "expected query-id, corpus-id, score"),
        (["query-id\tcorpus-id\tscore", "q1\tp\t1", "", "q1\tp\t0"], ":4: ", "already in line 2"),
        (["q1 0 p 1", "q1 0 p"], ":2: ", "expected the columns qid 0 docid rel, got 3"),
        (["q1 0 p 1", "q1 0 r 0.5"], ":2: ", "relevance must be a whole number, got '0.5'"),
    ],
)
def test_bad_judgements_are_refused_with_their_line(
    write: Write, lines: list[str], place: str, reason: str
) -> None:
    message = refusal(readers.qrels, write(*lines, name="qrels"))
    assert message.startswith(place) and reason in message
