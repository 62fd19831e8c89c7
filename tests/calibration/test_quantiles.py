"""Tests of pipeline.calibration.quantiles: thresholds for a share or for tokens."""

import math

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeline.calibration.quantiles import describe, for_share, for_tokens
from pipeline.core.admission import admit
from pipeline.core.budget import truncate

# Coarse gains, so that ties are common.
POOLS = st.lists(
    st.lists(
        st.tuples(st.none() | st.integers(-4, 4).map(lambda i: i / 4), st.integers(1, 50)),
        min_size=1,
        max_size=5,
    ),
    min_size=1,
    max_size=6,
)
Pools = list[list[tuple[float | None, int]]]


def frame(pools: Pools) -> pl.DataFrame:
    rows = [
        (f"q{q}", position, gain, tokens)
        for q, pool in enumerate(pools)
        for position, (gain, tokens) in enumerate(pool)
    ]
    types = {"question_id": pl.String, "position": pl.Int64, "ig": pl.Float64, "tokens": pl.Int64}
    return pl.DataFrame(rows, schema=types, orient="row")


def admitted_tokens(pools: Pools, threshold: float, top_m: int) -> float:
    """Mean evidence tokens by the selection's own functions."""
    total = 0
    for pool in pools:
        kept = truncate(admit([gain for gain, _ in pool], threshold=threshold), top_m=top_m)
        total += sum(pool[position][1] for position in kept)
    return total / len(pools)


def measured(pools: Pools) -> list[float]:
    return [gain for pool in pools for gain, _ in pool if gain is not None]


def test_the_threshold_of_a_share_lies_between_the_values_by_hand() -> None:
    # Gains .4 .3 .2 .1 and one null: half of the measured are .4 and .3; between .3 and .2.
    pools: Pools = [[(0.4, 10), (0.1, 10)], [(0.2, 10), (0.3, 20), (None, 5)], [(None, 5)]]
    found = for_share(frame(pools), share=0.5, top_m=5)
    assert found.threshold == pytest.approx(0.25)
    assert (found.share, found.questions, found.candidates, found.unmeasured) == (0.5, 3, 6, 2)
    assert found.passages == pytest.approx(2 / 3)
    assert found.evidence_tokens == pytest.approx(30 / 3)
    assert found.empty_share == pytest.approx(1 / 3)


def test_equal_gains_are_admitted_together_or_not_at_all() -> None:
    pools: Pools = [[(0.2, 1), (0.2, 1), (0.1, 1), (0.0, 1)]]
    assert for_share(frame(pools), share=0.25, top_m=5).threshold == math.inf
    assert for_share(frame(pools), share=0.5, top_m=5).threshold == pytest.approx(0.15)
    assert for_share(frame(pools), share=1.0, top_m=5).threshold == 0.0


def test_a_target_in_tokens_by_hand() -> None:
    # By gain: 10, 20, 10, 10 tokens over 2 questions; a mean of 15 allows 30 in all: .3 is in.
    pools: Pools = [[(0.4, 10), (0.1, 10)], [(0.2, 10), (0.3, 20)]]
    found = for_tokens(frame(pools), tokens=15, top_m=5)
    assert found.threshold == pytest.approx(0.25)
    assert found.evidence_tokens == 15
    # With M = 1 the second passages cost nothing: everything measured may pass.
    assert for_tokens(frame(pools), tokens=15, top_m=1).threshold == 0.1


@given(pools=POOLS, share=st.floats(0.01, 1))
def test_no_lower_threshold_admits_so_small_a_share(pools: Pools, share: float) -> None:
    values = measured(pools)
    if not values:
        with pytest.raises(ValueError, match="'ig' is measured for none"):
            for_share(frame(pools), share=share, top_m=3)
        return
    found = for_share(frame(pools), share=share, top_m=3)
    assert sum(value >= found.threshold for value in values) <= share * len(values) + 1e-6
    lower = [value for value in values if value < found.threshold]
    if lower:
        assert sum(value >= max(lower) for value in values) > share * len(values) - 1e-6


@given(pools=POOLS, target=st.floats(0, 120), top_m=st.integers(1, 4))
def test_the_tokens_are_those_of_selection_and_no_lower_threshold_keeps_the_target(
    pools: Pools, target: float, top_m: int
) -> None:
    values = measured(pools)
    if not values:
        return
    found = for_tokens(frame(pools), tokens=target, top_m=top_m)
    assert found.evidence_tokens == pytest.approx(admitted_tokens(pools, found.threshold, top_m))
    assert found.evidence_tokens <= target + 1e-9
    lower = [value for value in values if value < found.threshold]
    if lower:
        assert admitted_tokens(pools, max(lower), top_m) > target


@given(pools=POOLS, threshold=st.integers(-4, 4).map(lambda i: i / 4))
def test_the_description_is_that_of_selection(pools: Pools, threshold: float) -> None:
    if not measured(pools):
        return
    found = describe(frame(pools), threshold, top_m=2)
    kept = [
        truncate(admit([gain for gain, _ in pool], threshold=threshold), top_m=2) for pool in pools
    ]
    assert found.passages == pytest.approx(sum(map(len, kept)) / len(pools))
    assert found.empty_share == pytest.approx(sum(not k for k in kept) / len(pools))


def test_another_signal_serves_as_well_and_tokens_may_be_unknown() -> None:
    renamed = frame([[(0.4, 1), (0.1, 1)]]).rename({"ig": "qlm"}).drop("tokens")
    found = for_share(renamed, share=0.5, top_m=1, signal="qlm")
    assert found.threshold == pytest.approx(0.25)
    assert math.isnan(found.evidence_tokens)


def test_targets_and_frames_that_cannot_be_used_are_refused() -> None:
    usable = frame([[(0.4, 1)]])
    with pytest.raises(ValueError, match="share = 0; allowed: above 0"):
        for_share(usable, share=0, top_m=1)
    with pytest.raises(ValueError, match="tokens = -1; allowed: 0 or more"):
        for_tokens(usable, tokens=-1, top_m=1)
    with pytest.raises(ValueError, match="no column 'tokens'"):
        for_tokens(usable.drop("tokens"), tokens=1, top_m=1)
    with pytest.raises(ValueError, match="1 have no token count"):
        for_tokens(usable.with_columns(tokens=pl.lit(None, pl.Int64)), tokens=1, top_m=1)
    with pytest.raises(ValueError, match="'ig' holds NaN"):
        for_share(usable.with_columns(ig=math.nan), share=1, top_m=1)
