"""Tests of pipeline.core.discrimination, also against scikit-learn."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.metrics import roc_auc_score

from pipeline.core.discrimination import (
    auc,
    bootstrap_auc,
    pairwise_accuracy,
    within_question_z,
)
from pipeline.core.stats import Mean

# Few distinct scores, so that ties are common.
PASSAGES = st.lists(
    st.tuples(st.integers(-3, 3).map(float), st.booleans(), st.integers(0, 4)), max_size=30
)
SCORES = st.lists(st.none() | st.floats(-1e3, 1e3), max_size=10)


def test_auc_is_the_one_derived_by_hand() -> None:
    # Labelled 2, 1; not labelled 1, 0. Pairs: 2>1, 2>0, 1=1, 1>0: 3.5 of 4.
    assert auc([2, 1, 1, 0], [True, True, False, False]) == pytest.approx(3.5 / 4)


def test_equal_scores_say_as_much_as_a_coin() -> None:
    assert auc([1, 1, 1], [True, False, False]) == 0.5
    assert pairwise_accuracy([1, 1, 1], [True, False, False], ["q"] * 3) == 0.5


@pytest.mark.parametrize("labels", [[], [True, True], [False]])
def test_with_one_kind_of_passage_there_is_no_auc(labels: list[bool]) -> None:
    scores, questions = [0.5] * len(labels), ["q"] * len(labels)
    assert math.isnan(auc(scores, labels))
    assert math.isnan(pairwise_accuracy(scores, labels, questions))
    found = bootstrap_auc(scores, labels, questions, seed=1, samples=10)
    assert math.isnan(found.value) and math.isnan(found.low) and found.undefined == 10


@given(passages=PASSAGES)
def test_auc_agrees_with_scikit_learn(passages: list[tuple[float, bool, int]]) -> None:
    scores, labels = [p[0] for p in passages], [p[1] for p in passages]
    if len(set(labels)) == 2:
        assert auc(scores, labels) == pytest.approx(float(roc_auc_score(labels, scores)))


def test_pairs_are_formed_within_questions_alone() -> None:
    # a: 5 > 4 right. b: 1 > 2 wrong, 1 = 1 half. 1.5 of 3; across questions 5 beats all.
    scores, labels = [5, 4, 1, 2, 1], [True, False, True, False, False]
    assert pairwise_accuracy(scores, labels, ["a", "a", "b", "b", "b"]) == pytest.approx(0.5)


@given(passages=PASSAGES)
def test_pairwise_accuracy_of_one_question_is_its_auc(
    passages: list[tuple[float, bool, int]],
) -> None:
    scores, labels = [p[0] for p in passages], [p[1] for p in passages]
    within = pairwise_accuracy(scores, labels, [0] * len(passages))
    assert within == pytest.approx(auc(scores, labels), nan_ok=True)


@given(passages=PASSAGES, shifts=st.lists(st.integers(-50, 50), min_size=5, max_size=5))
def test_pairwise_accuracy_ignores_each_questions_own_scale(
    passages: list[tuple[float, bool, int]], shifts: list[int]
) -> None:
    scores, labels, questions = ([p[i] for p in passages] for i in range(3))
    shifted = [score + shifts[int(q)] for score, q in zip(scores, questions, strict=True)]
    plain = pairwise_accuracy(scores, [bool(b) for b in labels], questions)
    assert pairwise_accuracy(shifted, [bool(b) for b in labels], questions) == pytest.approx(
        plain, nan_ok=True
    )


@settings(max_examples=25)
@given(passages=PASSAGES, seed=st.integers(0, 999))
def test_a_resampled_auc_is_that_of_the_drawn_questions_written_out(
    passages: list[tuple[float, bool, int]], seed: int
) -> None:
    scores, labels, questions = ([p[i] for p in passages] for i in range(3))
    marked = [bool(label) for label in labels]
    found = bootstrap_auc(scores, marked, questions, seed=seed, samples=30)
    names = list(dict.fromkeys(questions))
    if math.isnan(found.value):
        return
    rng, areas = np.random.default_rng(seed), []
    for _ in range(30):
        drawn = [names[i] for i in rng.integers(len(names), size=len(names))]
        rows = [p for name in drawn for p in passages if p[2] == name]
        areas.append(auc([p[0] for p in rows], [p[1] for p in rows]))
    defined = [area for area in areas if not math.isnan(area)]
    assert found.n == len(names) and found.undefined == 30 - len(defined)
    if defined:
        low, high = np.quantile(defined, [0.025, 0.975])
        assert (found.low, found.high) == pytest.approx((low, high))


def test_passages_of_one_question_are_drawn_together() -> None:
    # One question in two copies of the same order: any resample has AUC 1, the interval no width.
    found = bootstrap_auc([1, 0] * 2, [True, False] * 2, ["a", "a", "b", "b"], seed=1, samples=50)
    assert found == Mean(1.0, 1.0, 1.0, n=2, undefined=0)


def test_scores_that_are_no_numbers_and_lists_of_other_lengths_are_refused() -> None:
    with pytest.raises(ValueError, match="a score is nan"):
        auc([math.nan], [True])
    with pytest.raises(ValueError, match="1 scores for 2 labels"):
        auc([1.0], [True, False])
    with pytest.raises(ValueError, match="1 questions for 2 scores"):
        pairwise_accuracy([1.0, 2.0], [True, False], ["q"])
    with pytest.raises(ValueError, match="samples = 0"):
        bootstrap_auc([1.0, 2.0], [True, False], ["q", "q"], seed=1, samples=0)


def test_z_scores_are_those_derived_by_hand() -> None:
    # Mean 2, population variance ((-1)**2 + 0 + 1) / 3: z = -+ sqrt(3/2).
    assert within_question_z([1, None, 2, 3]) == pytest.approx(
        [-math.sqrt(1.5), None, 0, math.sqrt(1.5)]
    )


@pytest.mark.parametrize("scores", [[], [None], [7.0], [0.1] * 3, [0.1, None, 0.1]])
def test_equal_scores_have_z_zero_and_unmeasured_ones_none(scores: list[float | None]) -> None:
    assert within_question_z(scores) == [None if score is None else 0.0 for score in scores]


@given(scores=SCORES)
def test_z_scores_keep_the_order_and_have_mean_zero(scores: list[float | None]) -> None:
    z = within_question_z(scores)
    pairs = sorted(
        (a, b) for a, b in zip(scores, z, strict=True) if a is not None and b is not None
    )
    assert [score is None for score in scores] == [value is None for value in z]
    assert [b for _, b in pairs] == sorted(b for _, b in pairs)
    assert math.fsum(b for _, b in pairs) == pytest.approx(0, abs=1e-6)


def test_a_score_that_is_not_finite_is_refused() -> None:
    with pytest.raises(ValueError, match="score inf; allowed: a finite number"):
        within_question_z([1.0, math.inf])
