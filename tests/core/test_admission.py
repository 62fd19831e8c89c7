"""Tests of pipeline.core.admission: order and threshold of Algorithm 1."""

import math
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeline.core.admission import admit, admit_rounds, order

GAINS = st.lists(st.none() | st.floats(-1, 1), max_size=12)
THRESHOLD = st.floats(-1, 1)


def test_candidates_are_sorted_by_gain_with_ties_by_rank_and_unmeasured_ones_last() -> None:
    # Gains .3 (position 2), then the tie .1 (positions 1, 4 in retrieval order), then -.2, null.
    assert order([None, 0.1, 0.3, -0.2, 0.1]) == [2, 1, 4, 3, 0]


def test_a_gain_equal_to_the_threshold_is_admitted() -> None:
    # Algorithm 1 keeps IG >= Tp: .05 and .2 pass 0.05, .04 does not, null never does.
    assert admit([0.05, None, 0.2, 0.04], threshold=0.05) == [2, 0]


def test_a_threshold_of_minus_infinity_reranks_all_that_was_measured() -> None:
    assert admit([-0.9, None, 0.2], threshold=-math.inf) == [2, 0]


def test_a_threshold_of_infinity_admits_nothing() -> None:
    assert admit([-0.9, None, 1.0], threshold=math.inf) == []


def test_no_candidates_give_an_empty_order_and_no_admission() -> None:
    assert order([]) == []
    assert admit([], threshold=0.0) == []


@given(gains=GAINS)
def test_the_order_is_a_permutation_with_falling_gains(gains: list[float | None]) -> None:
    ranked = order(gains)
    assert sorted(ranked) == list(range(len(gains)))
    keys = [-math.inf if (gain := gains[i]) is None else gain for i in ranked]
    assert keys == sorted(keys, reverse=True)


@given(gains=GAINS)
def test_equal_gains_keep_their_retrieval_order(gains: list[float | None]) -> None:
    coarse = [None if gain is None else round(gain) for gain in gains]
    ranked = order(coarse)
    for left, right in pairwise(ranked):
        assert coarse[left] != coarse[right] or left < right


@given(gains=GAINS, threshold=THRESHOLD, data=st.data())
def test_a_permutation_of_the_candidates_permutes_the_admission_up_to_ties(
    gains: list[float | None], threshold: float, data: st.DataObject
) -> None:
    shuffle = data.draw(st.permutations(range(len(gains))))
    shuffled = [gains[position] for position in shuffle]
    admitted = [gains[position] for position in admit(gains, threshold=threshold)]
    assert [shuffled[position] for position in admit(shuffled, threshold=threshold)] == admitted


@given(gains=GAINS, threshold=THRESHOLD)
def test_every_admission_is_a_prefix_of_the_order(
    gains: list[float | None], threshold: float
) -> None:
    admitted = admit(gains, threshold=threshold)
    assert order(gains)[: len(admitted)] == admitted


@given(gains=GAINS, one=THRESHOLD, other=THRESHOLD)
def test_a_higher_threshold_admits_a_prefix(
    gains: list[float | None], one: float, other: float
) -> None:
    few = admit(gains, threshold=max(one, other))
    assert admit(gains, threshold=min(one, other))[: len(few)] == few


@given(gains=GAINS, threshold=THRESHOLD)
def test_what_is_admitted_is_exactly_what_reaches_the_threshold(
    gains: list[float | None], threshold: float
) -> None:
    reached = [i for i, gain in enumerate(gains) if gain is not None and gain >= threshold]
    assert sorted(admit(gains, threshold=threshold)) == reached


@given(gains=GAINS, threshold=THRESHOLD)
def test_gains_are_left_as_they_were(gains: list[float | None], threshold: float) -> None:
    before = list(gains)
    admit(gains, threshold=threshold)
    assert gains == before


def test_a_nan_gain_is_refused_with_its_position() -> None:
    with pytest.raises(ValueError, match="gain of position 1 is nan"):
        order([0.1, math.nan])


def test_a_nan_threshold_is_refused() -> None:
    with pytest.raises(ValueError, match="threshold = nan"):
        admit([0.1], threshold=math.nan)


def test_rounds_are_admitted_up_to_the_first_below_the_threshold() -> None:
    # The third round fell below .1: the fourth, though above it, stands on the third.
    assert admit_rounds([4, 0, 2, 1], [0.5, 0.1, 0.09, 0.3], threshold=0.1) == [4, 0]
    assert admit_rounds([4, 0], [0.5, 0.1], threshold=0.6) == []
    assert admit_rounds([4, 0], [0.5, -0.1], threshold=-math.inf) == [4, 0]
    assert admit_rounds([], [], threshold=0.0) == []


@given(gains=st.lists(st.floats(-1, 1), max_size=8), one=THRESHOLD, other=THRESHOLD)
def test_a_higher_threshold_admits_a_prefix_of_the_rounds(
    gains: list[float], one: float, other: float
) -> None:
    rounds = list(range(len(gains)))[::-1]
    few = admit_rounds(rounds, gains, threshold=max(one, other))
    many = admit_rounds(rounds, gains, threshold=min(one, other))
    assert many[: len(few)] == few and rounds[: len(many)] == many


def test_rounds_without_their_gains_and_nan_are_refused() -> None:
    with pytest.raises(ValueError, match="2 rounds and 1 gains"):
        admit_rounds([0, 1], [0.5], threshold=0.0)
    with pytest.raises(ValueError, match="allowed: no NaN"):
        admit_rounds([0], [math.nan], threshold=0.0)
    with pytest.raises(ValueError, match="threshold = nan"):
        admit_rounds([0], [0.5], threshold=math.nan)
