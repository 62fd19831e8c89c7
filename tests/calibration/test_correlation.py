"""Tests of pipeline.calibration.correlation."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeline.calibration.correlation import spearman

VALUES = st.lists(st.integers(-5, 5).map(float), min_size=2, max_size=12)


def test_spearman_is_the_one_derived_by_hand() -> None:
    # Ranks 1 2 3 4 against 2 1 4 3: 1 - 6 * (1 + 1 + 1 + 1) / (4 * 15) = .6.
    assert spearman([0.1, 0.2, 0.3, 0.9], [5, 4, 8, 7]) == pytest.approx(0.6)


def test_pairs_with_an_undefined_side_are_left_out() -> None:
    assert spearman([1, 2, math.nan, 3], [1, 2, 0, math.nan]) == pytest.approx(1.0)


@pytest.mark.parametrize(("a", "b"), [([], []), ([1], [2]), ([1, 1], [1, 2]), ([1, 2], [3, 3])])
def test_without_two_different_ranks_there_is_no_correlation(
    a: list[float], b: list[float]
) -> None:
    assert math.isnan(spearman(a, b))


@given(values=VALUES)
def test_only_the_order_counts(values: list[float]) -> None:
    if len(set(values)) > 1:
        assert spearman(values, [value**3 for value in values]) == pytest.approx(1)
        assert spearman(values, [-value for value in values]) == pytest.approx(-1)


def test_lists_that_are_no_pairs_are_refused() -> None:
    with pytest.raises(ValueError, match="2 and 1 values; allowed: pairs"):
        spearman([1, 2], [1])
