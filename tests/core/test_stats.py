"""Tests of pipeline.core.stats: bootstrap means and paired differences."""

import math
import tracemalloc

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pipeline.core.stats import (
    Mean,
    averaged_means,
    bootstrap_mean,
    bootstrap_means,
    paired_difference,
    paired_differences,
    resamples,
)

SCORE = st.floats(0, 1)
SCORES = st.lists(SCORE, min_size=1, max_size=20)
SEED = st.integers(0, 2**31)


def test_the_interval_of_two_values_is_the_one_derived_by_hand() -> None:
    # Resamples of (0, 1) have mean 0, 1/2, 1 with probability 1/4, 1/2, 1/4. The quantiles
    # .025 and .975 are 0 and 1; at level .4 the quantiles .3 and .7 are both 1/2.
    assert bootstrap_mean([0.0, 1.0], seed=1) == Mean(0.5, 0.0, 1.0, n=2, undefined=0)
    assert bootstrap_mean([0.0, 1.0], seed=1, level=0.4) == Mean(0.5, 0.5, 0.5, n=2, undefined=0)


def test_the_interval_of_many_values_is_about_two_standard_errors_wide() -> None:
    # 400 values half 0, half 1: standard error sqrt(.25 / 400) = .025, so .5 -+ 1.96 * .025.
    mean = bootstrap_mean([0.0, 1.0] * 200, seed=3)
    assert mean.value == 0.5
    assert mean.low == pytest.approx(0.451, abs=0.006)
    assert mean.high == pytest.approx(0.549, abs=0.006)


def test_undefined_values_are_left_out_and_counted() -> None:
    mean = bootstrap_mean([0.25, math.nan, 0.25, math.nan, math.nan], seed=1)
    assert mean == Mean(0.25, 0.25, 0.25, n=2, undefined=3)


@pytest.mark.parametrize("values", [[], [math.nan, math.nan]])
def test_the_mean_of_nothing_is_undefined_everywhere(values: list[float]) -> None:
    mean = bootstrap_mean(values, seed=1)
    assert all(math.isnan(number) for number in (mean.value, mean.low, mean.high))
    assert (mean.n, mean.undefined) == (0, len(values))


@settings(max_examples=40, deadline=None)
@given(values=SCORES, seed=SEED)
def test_the_interval_lies_within_the_values(values: list[float], seed: int) -> None:
    mean = bootstrap_mean(values, seed=seed, samples=50)
    assert min(values) - 1e-12 <= mean.low <= mean.high <= max(values) + 1e-12
    assert mean.value == pytest.approx(math.fsum(values) / len(values))


@settings(max_examples=40, deadline=None)
@given(values=SCORES, seed=SEED)
def test_the_same_seed_gives_the_same_interval_whatever_is_undefined(
    values: list[float], seed: int
) -> None:
    mean = bootstrap_mean(values, seed=seed, samples=50)
    again = bootstrap_mean([math.nan, *values], seed=seed, samples=50)
    assert again == Mean(mean.value, mean.low, mean.high, n=mean.n, undefined=1)


def test_another_seed_gives_another_interval() -> None:
    values = [0.0, 0.1, 0.35, 0.8, 1.0, 0.45, 0.6]
    assert bootstrap_mean(values, seed=1, samples=40) != bootstrap_mean(values, seed=2, samples=40)


@settings(max_examples=40, deadline=None)
@given(values=SCORES, seed=SEED, one=st.floats(0.05, 0.95), other=st.floats(0.05, 0.95))
def test_a_higher_level_gives_a_wider_interval(
    values: list[float], seed: int, one: float, other: float
) -> None:
    inner = bootstrap_mean(values, seed=seed, samples=50, level=min(one, other))
    outer = bootstrap_mean(values, seed=seed, samples=50, level=max(one, other))
    assert outer.low <= inner.low + 1e-12
    assert inner.high <= outer.high + 1e-12


def test_a_paired_difference_takes_question_by_question() -> None:
    # Each question gains exactly 1/4, so the interval has no width although the arms vary.
    difference = paired_difference([0.5, 1.0, 0.25], [0.25, 0.75, 0.0], seed=1)
    assert difference == Mean(0.25, 0.25, 0.25, n=3, undefined=0)


def test_a_pair_with_an_undefined_side_is_left_out_and_counted() -> None:
    difference = paired_difference([0.5, math.nan, 0.5], [0.25, 0.0, math.nan], seed=1)
    assert difference == Mean(0.25, 0.25, 0.25, n=1, undefined=2)


@settings(max_examples=40, deadline=None)
@given(pairs=st.lists(st.tuples(SCORE, SCORE), min_size=1, max_size=15), seed=SEED)
def test_swapping_the_arms_mirrors_the_difference(
    pairs: list[tuple[float, float]], seed: int
) -> None:
    a, b = [left for left, _ in pairs], [right for _, right in pairs]
    forth = paired_difference(a, b, seed=seed, samples=50)
    back = paired_difference(b, a, seed=seed, samples=50)
    mirrored = (-back.value, -back.high, -back.low)
    assert (forth.value, forth.low, forth.high) == pytest.approx(mirrored, abs=1e-12)


def test_arms_of_different_lengths_are_refused_with_both() -> None:
    with pytest.raises(ValueError, match="2 and 1 values"):
        paired_difference([0.1, 0.2], [0.1], seed=1)


def test_infinite_values_are_refused_and_not_taken_for_undefined_ones() -> None:
    with pytest.raises(ValueError, match="value inf"):
        bootstrap_mean([0.1, math.inf], seed=1)
    with pytest.raises(ValueError, match="value inf"):
        paired_difference([math.inf], [math.inf], seed=1)


@pytest.mark.parametrize("level", [0.0, 1.0, -0.5, 95.0, math.nan])
def test_a_level_outside_its_range_is_refused(level: float) -> None:
    with pytest.raises(ValueError, match=f"level = {level}"):
        bootstrap_mean([0.1], seed=1, level=level)


def test_less_than_one_sample_is_refused() -> None:
    with pytest.raises(ValueError, match="samples = 0; allowed: 1 or more"):
        bootstrap_mean([0.1], seed=1, samples=0)


TABLES = st.integers(1, 6).flatmap(
    lambda q: st.lists(
        st.lists(st.floats(0, 1) | st.just(math.nan), min_size=q, max_size=q),
        min_size=1,
        max_size=5,
    )
)


@settings(max_examples=40)
@given(table=TABLES, seed=SEED)
def test_many_arms_have_the_very_numbers_that_each_has_alone(
    table: list[list[float]], seed: int
) -> None:
    together = bootstrap_means(table, seed=seed, samples=30)
    assert repr(together) == repr([bootstrap_mean(a, seed=seed, samples=30) for a in table])
    differences = paired_differences(table, table[0], seed=seed, samples=30)
    alone = [paired_difference(a, table[0], seed=seed, samples=30) for a in table]
    assert repr(differences) == repr(alone)


@settings(max_examples=20)
@given(values=SCORES, seed=SEED)
def test_the_interval_is_that_of_resamples_drawn_one_by_one(values: list[float], seed: int) -> None:
    rng, n = np.random.default_rng(seed), len(values)
    means = [np.take(values, rng.integers(n, size=n)).mean() for _ in range(60)]
    found = bootstrap_mean(values, seed=seed, samples=60)
    expected = np.quantile(means, [0.025, 0.975])
    assert (found.low, found.high) == pytest.approx(tuple(expected), abs=1e-12)


@pytest.mark.parametrize("cells", [None, 10_000, 1 << 20])
def test_resamples_do_not_depend_on_how_many_are_drawn_at_once(cells: int | None) -> None:
    drawn = np.concatenate(list(resamples(9, samples=20, seed=4, cells=cells)))
    assert drawn.shape == (20, 9)
    assert (drawn.sum(axis=1) == 9).all()
    np.testing.assert_array_equal(drawn, next(resamples(9, samples=20, seed=4)))


def test_memory_does_not_grow_with_the_resamples() -> None:
    table = np.linspace(0, 1, 40 * 3000).reshape(40, 3000)

    def peak(samples: int) -> int:
        tracemalloc.start()
        bootstrap_means(table, seed=1, samples=samples)
        used = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        return used

    # The means themselves are 40 arms x 8 bytes a resample; a matrix would be 3,000 x 8 more.
    assert peak(500) - peak(50) < 450 * 3000


def test_no_arms_have_no_means_and_a_list_that_is_no_table_is_refused() -> None:
    assert bootstrap_means(np.empty((0, 3)), seed=1) == []
    with pytest.raises(ValueError, match=r"shape \(2,\); allowed: \(arms, questions\)"):
        bootstrap_means([0.1, 0.2], seed=1)


def test_data_sets_are_averaged_with_equal_weight_and_resampled_by_themselves() -> None:
    # Of (0, 1) a resample has mean 0, 1/2, 1 with chance 1/4, 1/2, 1/4; so the mean of two such
    # sets is 0 with chance 1/16 > .025, and 1/4 with chance 4/16: the quantile .3 is 1/4. Were both
    # sets drawn alike, a mean of 1/4 would never come up and that quantile would be 1/2.
    pair = [[0.0, 1.0]]
    assert averaged_means([pair, pair], seed=1) == [Mean(0.5, 0.0, 1.0, n=4, undefined=0)]
    (third,) = averaged_means([pair, pair], seed=1, samples=20_000, level=0.4)
    assert (third.low, third.high) == (0.25, 0.75)
    (uneven,) = averaged_means([[[1.0]], [[0.0] * 9]], seed=1)
    assert (uneven.value, uneven.low, uneven.high) == (0.5, 0.5, 0.5)  # a set weighs a half


def test_an_average_is_undefined_where_one_data_set_has_no_value() -> None:
    first, second = averaged_means(
        [[[0.5, math.nan], [0.5, 0.5]], [[math.nan], [0.1]]], seed=1, samples=50
    )
    assert math.isnan(first.value) and math.isnan(first.low) and math.isnan(first.high)
    assert (first.n, first.undefined) == (1, 2)
    assert second.value == pytest.approx(0.3) and (second.n, second.undefined) == (3, 0)


@given(values=SCORES, seed=SEED)
@settings(max_examples=30, deadline=None)
def test_the_average_over_one_data_set_has_its_mean(values: list[float], seed: int) -> None:
    (mean,) = averaged_means([[values]], seed=seed, samples=50)
    assert mean.value == bootstrap_mean(values, seed=seed, samples=50).value
    assert min(values) - 1e-12 <= mean.low <= mean.high <= max(values) + 1e-12


@pytest.mark.parametrize("tables", [[], [[[1.0]], [[1.0], [2.0]]], [[1.0, 2.0]]])
def test_strata_that_are_not_tables_of_the_same_arms_are_refused(tables: list[object]) -> None:
    with pytest.raises(ValueError, match=r"strata have shapes .*; allowed: \(arms, questions\)"):
        averaged_means(tables, seed=1)  # type: ignore[arg-type]
