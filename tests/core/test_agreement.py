"""Tests of pipeline.core.agreement: how far two passes over the same rollouts agree."""

import math
from itertools import combinations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeline.core.admission import admit, order
from pipeline.core.agreement import Cut, Probed, Said, Spread, compare, spread

CUTS = (Cut(-math.inf, 2), Cut(0.0, 1), Cut(0.25, 5))
# Coarse uncertainties, so that ties and gains at a threshold are common.
NU = st.none() | st.integers(0, 8).map(lambda i: i / 8)
SAID = st.none() | st.builds(Said, st.integers(1, 3), st.sampled_from("ab"))


@st.composite
def two_passes(draw: st.DrawFn) -> tuple[list[Probed], list[Probed]]:
    """The same questions twice, with up to four candidates each."""
    sizes = draw(st.lists(st.integers(1, 5), max_size=4))

    def one() -> list[Probed]:
        return [
            Probed(tuple(draw(NU) for _ in range(n)), tuple(draw(SAID) for _ in range(n)))
            for n in sizes
        ]

    return one(), one()


def probed(*nu: float | None, texts: str = "") -> Probed:
    """A question whose rollouts say one letter each."""
    letters = texts or "x" * len(nu)
    said = [None if u is None else Said(1, text) for u, text in zip(nu, letters, strict=True)]
    return Probed(nu, tuple(said))


def test_two_passes_by_hand() -> None:
    # Question 0. IG before: .25, .0, -.25, order 0 1 2; after: -.25, .0, .125, order 2 1 0: all
    # three pairs turned. |dIG| .5, 0, .375. |dNU| 0, .5, 0, .375; candidates 0 and 2 say others.
    # Question 1. IG .5 and .5 both times.
    before = [probed(0.5, 0.25, 0.5, 0.75, texts="xaxb"), probed(0.5, 0.0)]
    after = [probed(0.5, 0.75, 0.5, 0.375, texts="xcxd"), probed(0.5, 0.0)]
    found = compare(before, after, CUTS)
    assert (found.questions, found.rollouts, found.incomparable) == (2, 6, 0)
    assert (found.texts, found.steps) == (2, 0)
    assert found.nu == spread([0, 0.5, 0, 0.375, 0, 0])
    assert found.nu_alike == 0
    assert found.ig == spread([0.5, 0, 0.375, 0])
    assert (found.pairs, found.flips, found.flipped) == (3, 3, 1)
    # -inf: all admitted, the first two are 0 1, then 2 1. Tp 0: {0, 1} then {1, 2}, the first is 0,
    # then 2. Tp .25: {0} then none; in question 1 nothing changes anywhere.
    changed = [(entry.candidates, entry.questions) for entry in found.cuts]
    assert changed == [(0, 1), (2, 1), (1, 1)]
    assert [entry.cut for entry in found.cuts] == list(CUTS)
    assert found.admissions == 2


def test_what_one_pass_did_not_measure_is_left_out_and_counted() -> None:
    # Candidate 1 lacks a value before, candidate 2 after: only candidate 0 has a gain in both.
    before = [probed(0.5, 0.25, None, 0.0)]
    after = [probed(0.5, 0.25, 1.0, None)]
    found = compare(before, after, CUTS)
    assert (found.rollouts, found.incomparable) == (2, 2)
    assert (found.ig.count, found.ig.max, found.pairs, found.flips) == (1, 0, 0, 0)
    assert [entry.candidates for entry in found.cuts] == [0, 0, 0]


def test_without_the_first_rollout_no_gain_can_be_compared() -> None:
    found = compare([probed(None, 0.25, 0.5)], [probed(0.5, 0.25, 0.5)], CUTS)
    assert (found.rollouts, found.incomparable, found.ig.count) == (2, 1, 0)
    assert math.isnan(found.ig.max) and math.isnan(found.ig.mean)


def test_token_ids_decide_where_both_sides_have_them_and_the_text_elsewhere() -> None:
    kept = Said(2, "yes", (5, 2))
    assert kept.differs(Said(2, "yes", (6, 2)))  # two ids may decode to one text
    assert not kept.differs(Said(2, "yes"))
    assert kept.differs(Said(3, "yes"))
    assert kept.differs(Said(2, "no"))


def test_the_largest_change_of_like_rollouts_is_told_from_that_of_others() -> None:
    before = [Probed((0.5, 0.5), (Said(2, "a"), Said(2, "b")))]
    after = [Probed((0.625, 1.0), (Said(2, "a"), Said(3, "c")))]
    found = compare(before, after, ())
    assert (found.nu_alike, found.nu.max) == (0.125, 0.5)
    assert (found.texts, found.steps, found.admissions) == (1, 1, 0)


def test_gains_are_compared_in_the_float32_in_which_they_are_stored() -> None:
    nu0, nu = float(np.float32(0.3)), float(np.float32(0.1))
    (gain,) = probed(nu0, nu).gains
    assert gain == float(np.float32(nu0 - nu)) != nu0 - nu


def test_a_spread_has_the_quantiles_of_numpy_and_nan_without_values() -> None:
    values = [0.0, 1.0, 2.0, 3.0, 10.0]
    p50, p90, p99 = np.quantile(values, (0.5, 0.9, 0.99)).tolist()
    assert spread(values) == Spread(5, 3.2, p50, p90, p99, 10.0)
    assert spread([]).count == 0 and math.isnan(spread([]).p99)


@pytest.mark.parametrize(
    ("before", "after", "message"),
    [
        ([], [probed(0.5)], "0 and 1 questions"),
        ([probed(0.5)], [probed(0.5, 0.5)], r"question 0: lists of \[1, 2\] rollouts"),
    ],
)
def test_passes_over_other_questions_are_refused(
    before: list[Probed], after: list[Probed], message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        compare(before, after, ())


@given(two_passes())
def test_a_pass_agrees_with_itself(passes: tuple[list[Probed], list[Probed]]) -> None:
    one, _ = passes
    found = compare(one, one, CUTS)
    assert (found.texts, found.steps, found.flips, found.flipped, found.admissions) == (0,) * 5
    assert all(entry.questions == 0 for entry in found.cuts)
    for largest in (found.nu.max, found.nu_alike, found.ig.max):
        assert largest == 0 or math.isnan(largest)


@given(two_passes())
def test_it_does_not_matter_which_pass_came_first(
    passes: tuple[list[Probed], list[Probed]],
) -> None:
    one, other = passes
    assert repr(compare(one, other, CUTS)) == repr(compare(other, one, CUTS))  # NaN is NaN


@given(two_passes())
def test_flips_are_the_pairs_that_a_loop_over_all_finds(
    passes: tuple[list[Probed], list[Probed]],
) -> None:
    pairs = flips = 0
    for one, other in zip(*passes, strict=True):
        a, b = one.gains, other.gains
        kept = [i for i in range(len(a)) if a[i] is not None and b[i] is not None]
        first, second = ([i for i in order(gains) if i in kept] for gains in (a, b))
        for i, j in combinations(kept, 2):
            pairs += 1
            flips += (first.index(i) < first.index(j)) != (second.index(i) < second.index(j))
    found = compare(*passes, CUTS)
    assert (found.pairs, found.flips) == (pairs, flips)


@given(two_passes(), st.integers(-8, 8).map(lambda i: i / 8 + 1 / 16))
def test_no_admission_changes_while_gains_move_less_than_their_distance_to_the_threshold(
    passes: tuple[list[Probed], list[Probed]], threshold: float
) -> None:
    found = compare(*passes, [Cut(threshold, 2)])
    distance = min(
        (abs(g - threshold) for row in passes[0] for g in row.gains if g is not None), default=1.0
    )
    if not found.ig.max >= distance:
        assert found.admissions == 0
    everything = sum(len(admit(row.gains, threshold=-math.inf)) for side in passes for row in side)
    assert found.admissions <= everything
