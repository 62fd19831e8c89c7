"""Tests of pipeline.writers.trec: what is written reads back, and outside tools see our order."""

from itertools import pairwise
from pathlib import Path

import ir_measures
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from ir_measures import RR, nDCG

from pipeline import readers
from pipeline.writers import write_qrels, write_run
from pipeline.writers.trec import Ranking, falling

RANKINGS: list[tuple[str, Ranking]] = [
    ("q1", [("b", 2.0), ("a", 2.0), ("c", 2.0), ("z", -1.5)]),
    ("q2", []),
    ("q3", [("a", None), ("b", None)]),
]
FLOAT32 = st.floats(width=32, min_value=-(2.0**100), max_value=2.0**100)


def read(path: str) -> list[tuple[str, list[str]]]:
    """Question and passage ids of a run, in the reader's order."""
    rows = readers.candidates(path)
    return [(row["question_id"], [c["passage_id"] for c in row["candidates"]]) for row in rows]


def test_a_run_has_ranks_from_one_and_falling_scores(tmp_path: Path) -> None:
    path = tmp_path / "a.run"
    write_run(str(path), RANKINGS, tag="ours")
    assert path.read_text().splitlines() == [
        "q1 Q0 b 1 2.0 ours",
        "q1 Q0 a 2 1.9999999 ours",
        "q1 Q0 c 3 1.9999998 ours",
        "q1 Q0 z 4 -1.5 ours",
        "q3 Q0 a 1 -1.0 ours",
        "q3 Q0 b 2 -2.0 ours",
    ]


def test_questions_without_passages_stand_in_the_side_list_and_read_back(tmp_path: Path) -> None:
    path = str(tmp_path / "a.run")
    write_run(path, RANKINGS)
    assert Path(f"{path}.empty").read_text() == "q2\n"
    assert read(path) == [("q1", ["b", "a", "c", "z"]), ("q3", ["a", "b"]), ("q2", [])]
    write_run(path, RANKINGS[:1])
    assert not Path(f"{path}.empty").exists()


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(scores=st.lists(st.lists(FLOAT32, max_size=6), max_size=4))
def test_any_ranking_written_and_read_keeps_its_order(
    tmp_path: Path, scores: list[list[float]]
) -> None:
    path = str(tmp_path / "any.run")
    rankings: list[tuple[str, Ranking]] = [
        (f"q{i}", [(f"p{j}", score) for j, score in enumerate(sorted(row, reverse=True))])
        for i, row in enumerate(scores)
    ]
    write_run(path, rankings)
    assert dict(read(path)) == {name: [p for p, _ in ranking] for name, ranking in rankings}


@given(scores=st.lists(FLOAT32, max_size=20))
def test_written_scores_fall_and_stay_where_they_fell(scores: list[float]) -> None:
    ordered = sorted(scores, reverse=True)
    made = falling(ordered)
    assert all(a > b for a, b in pairwise(made))
    distinct = len(set(ordered)) == len(ordered)
    assert not distinct or made == [np.float32(score) for score in ordered]


def test_ir_measures_sees_our_order_in_spite_of_ties(tmp_path: Path) -> None:
    run, qrels = str(tmp_path / "a.run"), str(tmp_path / "qrels")
    write_run(run, [("q1", [("b", 2.0), ("a", 2.0), ("c", 2.0)]), ("q2", [("x", 1.0)])])
    write_qrels(qrels, [("q1", {"a": 1, "b": 0}), ("q2", {"x": 2})])
    found = ir_measures.calc_aggregate(
        [RR, nDCG @ 5], ir_measures.read_trec_qrels(qrels), ir_measures.read_trec_run(run)
    )
    # q1: the relevant passage is second, 1/2 and 1/log2(3); q2: first, 1 and 1.
    assert found[RR] == pytest.approx((1 / 2 + 1) / 2)
    assert found[nDCG @ 5] == pytest.approx((1 / np.log2(3) + 1) / 2)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    grades=st.dictionaries(
        st.sampled_from("abc"),
        st.dictionaries(st.sampled_from("xyz"), st.integers(-2, 4), min_size=1),
    ).filter(bool)
)
def test_any_judgements_come_back_equal(tmp_path: Path, grades: dict[str, dict[str, int]]) -> None:
    path = str(tmp_path / "qrels")
    write_qrels(path, grades.items())
    found: dict[str, dict[str, int]] = {}
    for row in readers.qrels(path):
        found.setdefault(row["question_id"], {})[row["passage_id"]] = row["relevance"]
    assert found == grades
    theirs = [(q.query_id, q.doc_id, q.relevance) for q in ir_measures.read_trec_qrels(path)]
    assert theirs == [(q, p, rel) for q, passages in grades.items() for p, rel in passages.items()]


@pytest.mark.parametrize(
    ("ranking", "message"),
    [
        ([("a", 1.0), ("b", 2.0)], "scores must not rise down a ranking: 2.0 is after 1.0"),
        ([("a", float("nan"))], "score must be a finite number of 32 bits, got nan"),
        ([("a", 1e39)], "score must be a finite number of 32 bits"),
        ([("a", 1.0), ("b", None)], "score must be a finite number of 32 bits, got None"),
        ([("a", 1.0), ("a", 0.5)], "passage 'a' stands twice"),
        ([("a b", 1.0)], "passage 'a b' cannot stand in a TREC file"),
        ([("", 1.0)], "passage '' cannot stand in a TREC file"),
    ],
)
def test_a_ranking_that_trec_cannot_hold_is_refused(
    tmp_path: Path, ranking: Ranking, message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        write_run(str(tmp_path / "a.run"), [("q", ranking)])
    assert not list(tmp_path.iterdir())


def test_ids_that_trec_cannot_hold_are_refused(tmp_path: Path) -> None:
    path = str(tmp_path / "x")
    with pytest.raises(ValueError, match="question 'q 1' cannot stand"):
        write_run(path, [("q 1", [])])
    with pytest.raises(ValueError, match="question 'q' stands twice"):
        write_run(path, [("q", []), ("q", [])])
    with pytest.raises(ValueError, match="tag 'a b' cannot stand"):
        write_run(path, [("q", [])], tag="a b")
    with pytest.raises(ValueError, match=r"passage 'p\\tx' cannot stand"):
        write_qrels(path, [("q", {"p\tx": 1})])


def test_a_uri_is_written_like_its_path(tmp_path: Path) -> None:
    write_run(f"file://{tmp_path}/deep/a.run", RANKINGS)
    assert read(str(tmp_path / "deep" / "a.run")) == read(f"file://{tmp_path}/deep/a.run")
    with pytest.raises(ValueError, match="names no file"):
        write_run(f"file://{tmp_path}/", RANKINGS)
