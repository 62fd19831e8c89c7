"""Tests of pipeline.core.ranking, also against ir_measures (trec_eval's code)."""

import math
from collections.abc import Callable
from typing import Any

import ir_measures
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeline.core.ranking import ndcg, ndcg_candidates, precision, recall, reciprocal_rank

GRADE = st.integers(-1, 3)
POOL = st.lists(GRADE, min_size=1, max_size=12)
CUTOFF = st.integers(1, 8)
METRICS: dict[str, Callable[..., float]] = {
    "ndcg": ndcg,
    "recall": recall,
    "precision": precision,
    "reciprocal_rank": reciprocal_rank,
}


def reference(measure: Any, rel: list[int], judged: list[int]) -> float:
    """A measure of one question by ir_measures: `rel` ranked as given, `judged` the pool."""
    ranked = {f"d{i}": float(len(rel) - i) for i in range(len(rel))}
    qrels = {f"d{i}": grade for i, grade in enumerate(judged)}
    (found,) = ir_measures.iter_calc([measure], {"q": qrels}, {"q": ranked})
    return float(found.value)


def test_ndcg_is_the_one_derived_by_hand() -> None:
    # Gains 2**rel - 1: ranked 0, 3, 1 at discounts log2(2), log2(3), log2(4); ideal 7, 3, 1.
    dcg = 0 + 3 / math.log2(3) + 1 / 2
    ideal = 7 + 3 / math.log2(3) + 1 / 2
    assert ndcg([0, 2, 1], [2, 1, 0, 3], k=5) == pytest.approx(dcg / ideal)


def test_the_candidates_ideal_leaves_out_what_was_never_retrieved() -> None:
    # The same ranking; the ideal order of the candidates alone has gains 3, 1, 0.
    dcg = 0 + 3 / math.log2(3) + 1 / 2
    assert ndcg_candidates([0, 2, 1], k=5) == pytest.approx(dcg / (3 + 1 / math.log2(3)))
    assert ndcg_candidates([0, 0, 1], k=2) == 0.0  # beyond the cut-off, yet in the ideal


def test_recall_precision_and_reciprocal_rank_by_hand() -> None:
    # Relevant at rank 2 of the first 2; three relevant passages are judged.
    rel, judged = [0, 1, 2], [1, 2, 1, 0]
    assert recall(rel, judged, k=2) == pytest.approx(1 / 3)
    assert precision(rel, judged, k=2) == pytest.approx(1 / 2)
    assert reciprocal_rank(rel, judged, k=2) == pytest.approx(1 / 2)
    assert reciprocal_rank(rel, judged, k=1) == 0.0
    assert recall(rel, judged, k=3, relevant_from=2) == 1.0


def test_ranks_that_were_not_filled_hold_nothing() -> None:
    assert precision([1], [1, 1], k=5) == pytest.approx(1 / 5)
    assert ndcg([], [1], k=5) == recall([], [1], k=5) == precision([], [1], k=5) == 0.0
    assert reciprocal_rank([], [1], k=5) == 0.0


@pytest.mark.parametrize("judged", [[], [0, 0], [-1]])
@pytest.mark.parametrize("name", METRICS)
def test_without_a_relevant_judgement_every_metric_is_undefined(
    name: str, judged: list[int]
) -> None:
    assert math.isnan(METRICS[name]([0, 0], judged, k=5))
    assert math.isnan(ndcg_candidates([0, 0], k=5))


@given(pool=POOL, data=st.data(), k=CUTOFF)
def test_graded_ndcg_agrees_with_trec_eval_under_the_same_gains(
    pool: list[int], data: st.DataObject, k: int
) -> None:
    depth = data.draw(st.integers(1, len(pool)))
    ours = ndcg(pool[:depth], pool, k=k)
    if max(pool) <= 0:
        assert math.isnan(ours)
        return
    measure = ir_measures.nDCG(gains={-1: 0, 0: 0, 1: 1, 2: 3, 3: 7}) @ k
    assert ours == pytest.approx(reference(measure, pool[:depth], pool), abs=1e-9)


@given(pool=POOL, data=st.data(), k=CUTOFF)
def test_the_binary_metrics_agree_with_trec_eval(
    pool: list[int], data: st.DataObject, k: int
) -> None:
    if max(pool) <= 0:
        return
    rel = pool[: data.draw(st.integers(1, len(pool)))]
    assert recall(rel, pool, k=k) == pytest.approx(reference(ir_measures.R @ k, rel, pool))
    assert precision(rel, pool, k=k) == pytest.approx(reference(ir_measures.P @ k, rel, pool))
    ours, theirs = reciprocal_rank(rel, pool, k=k), reference(ir_measures.RR @ k, rel, pool)
    assert ours == pytest.approx(theirs)


@given(pool=POOL, k=CUTOFF)
def test_the_ideal_order_has_ndcg_one_and_no_order_has_more(pool: list[int], k: int) -> None:
    if max(pool) <= 0:
        return
    assert ndcg(sorted(pool, reverse=True), pool, k=k) == pytest.approx(1)
    assert 0 <= ndcg(pool, pool, k=k) <= 1 + 1e-12


@given(pool=POOL, extra=st.lists(GRADE, max_size=5), k=CUTOFF)
def test_the_candidates_ideal_is_never_the_harder_one(
    pool: list[int], extra: list[int], k: int
) -> None:
    if max(pool) <= 0:
        return
    assert ndcg_candidates(pool, k=k) >= ndcg(pool, [*pool, *extra], k=k) - 1e-12


@pytest.mark.parametrize("name", METRICS)
def test_a_cutoff_below_one_and_grades_that_are_no_numbers_are_refused(name: str) -> None:
    with pytest.raises(ValueError, match="k = 0; allowed: 1 or more"):
        METRICS[name]([1], [1], k=0)
    with pytest.raises(ValueError, match="relevance nan"):
        METRICS[name]([math.nan], [1], k=1)
    with pytest.raises(ValueError, match="one dimension"):
        METRICS[name]([[1]], [1], k=1)


def test_a_grade_of_relevance_below_one_is_refused() -> None:
    with pytest.raises(ValueError, match="relevant_from = 0; allowed: 1 or more"):
        recall([1], [1], k=1, relevant_from=0)
