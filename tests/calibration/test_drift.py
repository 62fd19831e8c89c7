"""Tests of pipeline.calibration.drift: PSI, KS and what is flagged."""

import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from pipeline.calibration.drift import (
    Limits,
    Sample,
    drift,
    exceeded,
    ks,
    ks_chance,
    psi,
    psi_bins,
    psi_chance,
)

VALUES = st.lists(st.integers(-8, 8).map(lambda i: i / 8), min_size=1, max_size=40)
LIMITS = Limits()


def sample(questions: int, *, seed: int, shift: float = 0.0) -> Sample:
    """Made-up uncertainties of five candidates a question; `shift` moves NU(q | d)."""
    rng = np.random.default_rng(seed)
    nu0 = rng.beta(2, 5, questions)
    nu = np.clip(nu0[:, None] + rng.normal(shift, 0.1, (questions, 5)), 0, 1)
    ig = nu0[:, None] - nu
    return Sample(
        nu0=nu0,
        nu=nu.ravel(),
        ig=ig.ravel(),
        steps=np.minimum(rng.geometric(0.05, questions * 6), 32).astype(float),
        pass_rates=(ig >= 0.05).mean(axis=1),
        questions=questions,
    )


def test_psi_is_the_one_derived_by_hand() -> None:
    # Two bins cut at the median 2: reference 2 + 2, current 1 + 3; with .5 to each of two bins
    # p = (2.5/5, 2.5/5) and q = (1.5/5, 3.5/5): (.2) ln(.5/.3) + (-.2) ln(.5/.7).
    expected = 0.2 * math.log(0.5 / 0.3) - 0.2 * math.log(0.5 / 0.7)
    assert psi([1, 2, 3, 4], [1, 3, 4, 9], bins=2) == pytest.approx(expected)
    assert psi_bins([1, 2, 3, 4], bins=2) == 2


def test_a_value_that_fills_bins_gets_one_of_its_own() -> None:
    # T at its limit: below, at and above 32. Moving either way from the atom is seen.
    assert psi_bins([32.0] * 50) == 3
    assert psi([32.0] * 50, [31.0] * 50) > 1
    assert psi([32.0] * 50, [33.0] * 50) > 1
    assert psi([32.0] * 50, [32.0] * 50) == 0


@given(reference=VALUES, current=VALUES, bins=st.integers(2, 12))
def test_psi_is_never_negative_always_finite_and_zero_for_a_sample_and_itself(
    reference: list[float], current: list[float], bins: int
) -> None:
    assert 0 <= psi(reference, current, bins=bins) < math.inf
    assert psi(reference, reference, bins=bins) == 0


@given(reference=VALUES, current=VALUES)
def test_psi_depends_on_the_order_of_the_values_alone(
    reference: list[float], current: list[float]
) -> None:
    stretched = psi([8 * v**3 + 1 for v in reference], [8 * v**3 + 1 for v in current])
    assert psi(reference, current) == pytest.approx(stretched)


def test_without_drift_psi_follows_the_law_that_judges_it() -> None:
    rng, n, m = np.random.default_rng(0), 400, 300
    found = [psi(rng.normal(size=n), rng.normal(size=m)) for _ in range(400)]
    chances = [psi_chance(value, bins=10, questions=(n, m)) for value in found]
    assert 0.02 < np.mean(np.array(chances) < 0.05) < 0.08
    assert np.mean(found) == pytest.approx(9 * (1 / n + 1 / m), rel=0.15)


def test_ks_is_the_largest_gap_by_hand_and_its_chance_scipys() -> None:
    # At 2 the reference has 2 of 4 at or below, the current sample none of 3.
    assert ks([1, 2, 3, 4], [2.5, 3.5, 4.5]) == pytest.approx(0.5)
    rng = np.random.default_rng(1)
    one, other = rng.normal(size=200), rng.normal(0.2, 1, size=150)
    theirs = stats.ks_2samp(one, other, method="asymp")
    assert ks_chance(ks(one, other), questions=(200, 150)) == pytest.approx(theirs.pvalue, rel=0.15)


@pytest.mark.parametrize("questions", [(50, 50), (400, 60), (1000, 1000)])
def test_two_samples_of_the_same_kind_do_not_drift(questions: tuple[int, int]) -> None:
    found = drift(sample(questions[0], seed=1), sample(questions[1], seed=2), LIMITS)
    both = [name for name in ("nu0", "nu", "ig", "steps") for _ in ("psi", "ks")]
    assert [entry.signal for entry in found] == [*both, "pass_rate"]
    assert exceeded(found) == []


def test_a_large_psi_between_small_samples_is_no_drift() -> None:
    small = Limits(psi=0.01, ks=0.01, pass_rate=0.01)
    found = drift(sample(20, seed=3), sample(20, seed=77), small)
    assert max(entry.value for entry in found) > 0.25
    assert exceeded(found) == []


def test_passages_that_no_longer_help_are_flagged_where_they_show() -> None:
    found = drift(sample(300, seed=1), sample(300, seed=2, shift=0.15), LIMITS)
    flagged = {(entry.signal, entry.measure) for entry in exceeded(found)}
    assert {("ig", "psi"), ("ig", "ks"), ("pass_rate", "change")} <= flagged
    assert not flagged & {("nu0", "psi"), ("nu0", "ks"), ("steps", "psi")}
    (change,) = [entry for entry in found if entry.signal == "pass_rate"]
    assert change.current < change.reference


def test_drift_that_is_sure_but_small_is_not_flagged() -> None:
    found = drift(sample(5000, seed=1), sample(5000, seed=2, shift=0.012), LIMITS)
    (gap,) = [entry for entry in found if (entry.signal, entry.measure) == ("ig", "ks")]
    assert gap.chance < LIMITS.alpha and gap.value < gap.limit
    assert exceeded(found) == []


def test_pass_rates_that_do_not_vary_drift_only_when_they_differ() -> None:
    one = sample(30, seed=1)
    still = replace(one, pass_rates=np.zeros(30))
    moved = replace(one, pass_rates=np.ones(30))
    assert exceeded(drift(still, still, LIMITS)) == []
    assert [entry.signal for entry in exceeded(drift(still, moved, LIMITS))] == ["pass_rate"]


def test_what_was_not_measured_cannot_be_compared() -> None:
    whole = sample(10, seed=1)
    with pytest.raises(ValueError, match="ig was measured nowhere in the current run"):
        drift(whole, replace(whole, ig=np.empty(0)), LIMITS)
    with pytest.raises(ValueError, match="allowed: 1 or more numbers"):
        psi([1.0], [math.nan])
    with pytest.raises(ValueError, match="bins = 1; allowed: 2 or more"):
        psi([1.0], [1.0], bins=1)
