"""Tests of pipeline.core.uncertainty: the steps, their mean, traces."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from numpy.typing import NDArray

from pipeline.core.uncertainty import (
    TRACE_KS,
    normalised_uncertainty,
    nu_grid,
    step_uncertainty,
    trace,
)

Doubles = NDArray[np.float64]

UNIT = st.floats(0, 1)


@st.composite
def logits(draw: st.DrawFn, *, min_k: int = 2, max_k: int = 20) -> Doubles:
    """Rows of 1 to 6 steps with min_k to max_k logits between -60 and 60."""
    shape = (draw(st.integers(1, 6)), draw(st.integers(min_k, max_k)))
    drawn: Doubles = draw(arrays(np.float64, shape, elements=st.floats(-60, 60)))
    return drawn


def plain_uncertainty(row: list[float], k: int) -> float:
    """Eq. 2-4 word for word: softmax over the k largest, entropy, divided by log k."""
    top = sorted(row, reverse=True)[:k]
    weights = [math.exp(z - top[0]) for z in top]
    probabilities = [weight / math.fsum(weights) for weight in weights]
    return -math.fsum(p * math.log(p) for p in probabilities if p > 0) / math.log(k)


def test_a_step_of_probabilities_half_quarter_quarter_has_the_entropy_derived_by_hand() -> None:
    # H = 1/2 log 2 + 2 * 1/4 log 4 = 3/2 log 2; u = (3/2 log 2) / log 3 = 0.946394630...
    # Cut to 2: p = (2/3, 1/3), H = log 3 - 2/3 log 2, u = log 3 / log 2 - 2/3 = 0.918295834...
    row_TK = np.log([[0.25, 0.5, 0.25]])
    assert step_uncertainty(row_TK, k=3)[0] == pytest.approx(1.5 * math.log(2) / math.log(3))
    assert step_uncertainty(row_TK, k=2)[0] == pytest.approx(0.9182958340544896)


def test_a_step_with_one_possible_token_is_certain() -> None:
    row_TK = np.array([[-np.inf, 3.0, -np.inf, -np.inf]])
    assert step_uncertainty(row_TK, k=4).tolist() == [0.0]


def test_entries_of_minus_infinity_have_probability_zero() -> None:
    # Two equal tokens among four: H = log 2, u = log 2 / log 4 = 1/2.
    row_TK = np.array([[1.0, -np.inf, 1.0, -np.inf]])
    assert step_uncertainty(row_TK, k=4)[0] == pytest.approx(0.5)


def test_no_steps_have_no_uncertainties() -> None:
    assert step_uncertainty(np.empty((0, 5)), k=3).shape == (0,)


def test_float32_rows_are_computed_in_float64() -> None:
    u_T = step_uncertainty(np.array([[1.0, 2.0]], dtype=np.float32), k=2)
    assert u_T.dtype == np.float64
    assert u_T[0] == pytest.approx(plain_uncertainty([1.0, 2.0], 2), abs=1e-15)


@given(rows_TK=logits(), data=st.data())
def test_a_step_agrees_with_the_equations_word_for_word(
    rows_TK: Doubles, data: st.DataObject
) -> None:
    k = data.draw(st.integers(2, rows_TK.shape[1]))
    expected = [plain_uncertainty(row.tolist(), k) for row in rows_TK]
    assert step_uncertainty(rows_TK, k=k) == pytest.approx(expected, abs=1e-12)


@given(
    rows_TK=arrays(
        np.float64,
        (3, 9),
        elements=st.one_of(st.floats(-1e6, 1e6), st.just(-np.inf)),
    ),
    top=st.floats(-1e6, 1e6),
)
def test_uncertainty_lies_between_zero_and_one(rows_TK: Doubles, top: float) -> None:
    rows_TK[:, 4] = top
    u_T = step_uncertainty(rows_TK, k=9)
    assert ((u_T >= 0) & (u_T <= 1)).all()


@given(level=st.floats(-1e4, 1e4), k=st.integers(2, 200))
def test_a_uniform_top_k_has_uncertainty_one(level: float, k: int) -> None:
    assert step_uncertainty(np.full((1, k), level), k=k)[0] == pytest.approx(1, abs=1e-12)


@given(noise_TK=arrays(np.float64, (40, 7), elements=st.floats(0, 1e-7)))
def test_a_nearly_uniform_top_k_does_not_exceed_one_by_rounding(noise_TK: Doubles) -> None:
    assert step_uncertainty(noise_TK, k=7).max() <= 1
    assert trace(noise_TK, ks=(2, 3, 7)).max() <= 1


@given(rows_TK=logits(), shift=st.floats(-1e3, 1e3))
def test_a_shift_of_all_logits_changes_nothing(rows_TK: Doubles, shift: float) -> None:
    k = rows_TK.shape[1]
    shifted_T = step_uncertainty(rows_TK + shift, k=k)
    assert shifted_T == pytest.approx(step_uncertainty(rows_TK, k=k), abs=1e-9)


@given(rows_TK=logits(min_k=3), seed=st.integers(0, 2**32 - 1))
def test_the_order_of_entries_and_whatever_is_beyond_the_top_k_change_nothing(
    rows_TK: Doubles, seed: int
) -> None:
    k = rows_TK.shape[1]
    smallest_T1 = rows_TK.min(axis=1, keepdims=True)
    wider_TK = np.concatenate([smallest_T1 - 1, rows_TK], axis=1)
    shuffled_TK = np.random.default_rng(seed).permuted(wider_TK, axis=1)
    assert (step_uncertainty(shuffled_TK, k=k) == step_uncertainty(rows_TK, k=k)).all()


@given(rows_TK=logits())
def test_inputs_are_left_as_they_were(rows_TK: Doubles) -> None:
    before_TK = rows_TK.copy()
    step_uncertainty(rows_TK, k=2)
    trace_JT = trace(rows_TK)
    trace_before_JT = trace_JT.copy()
    nu_grid(trace_JT)
    assert (rows_TK == before_TK).all()
    assert np.array_equal(trace_JT, trace_before_JT, equal_nan=True)


def test_more_entries_asked_than_returned_is_refused_with_both_numbers() -> None:
    with pytest.raises(ValueError, match=r"128 .* 20"):
        step_uncertainty(np.zeros((2, 20)), k=128)


@pytest.mark.parametrize("k", [1, 0, -3])
def test_a_k_below_two_is_refused(k: int) -> None:
    with pytest.raises(ValueError, match=f"k = {k}; allowed: 2 or more"):
        step_uncertainty(np.zeros((1, 4)), k=k)
    with pytest.raises(ValueError, match=f"k = {k}; allowed: 2 or more"):
        trace(np.zeros((1, 4)), ks=(4, k))


@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_a_logit_that_is_nan_or_infinite_is_refused_with_its_step(bad: float) -> None:
    rows_TK = np.zeros((3, 4))
    rows_TK[2, 1] = bad
    with pytest.raises(ValueError, match=f"step position 2 is {bad}"):
        step_uncertainty(rows_TK, k=2)
    with pytest.raises(ValueError, match=f"step position 2 is {bad}"):
        trace(rows_TK)


def test_a_step_in_which_nothing_is_possible_is_refused() -> None:
    with pytest.raises(ValueError, match="step position 0 is -inf"):
        step_uncertainty(np.full((1, 4), -np.inf), k=2)


def test_logits_that_are_not_a_table_are_refused() -> None:
    with pytest.raises(ValueError, match=r"\(4,\); allowed: \(T, K\)"):
        step_uncertainty(np.zeros(4), k=2)


@given(rows_TK=logits(), ks=st.lists(st.integers(2, 24), max_size=5))
def test_a_trace_holds_the_uncertainty_of_every_available_k_and_nan_elsewhere(
    rows_TK: Doubles, ks: list[int]
) -> None:
    trace_JT = trace(rows_TK, ks=ks)
    assert trace_JT.dtype == np.float32
    assert trace_JT.shape == (len(ks), rows_TK.shape[0])
    for u_T, k in zip(trace_JT, ks, strict=True):
        if k <= rows_TK.shape[1]:
            assert u_T == pytest.approx(step_uncertainty(rows_TK, k=k), abs=1e-6)
        else:
            assert np.isnan(u_T).all()


def test_the_default_trace_of_a_full_probe_has_seven_settings_and_32_steps() -> None:
    rows_TK = np.random.default_rng(7).normal(scale=4, size=(32, 129))
    trace_JT = trace(rows_TK)
    assert trace_JT.shape == (len(TRACE_KS), 32)
    assert trace_JT.nbytes == 896
    assert not np.isnan(trace_JT).any()


def test_nu_is_the_mean_over_the_steps() -> None:
    # (0.2 + 0.4 + 0.9) / 3 = 0.5
    assert normalised_uncertainty(np.array([0.2, 0.4, 0.9])) == pytest.approx(0.5)


@given(u_T=arrays(np.float64, st.integers(1, 40), elements=UNIT))
def test_nu_lies_between_the_least_and_the_most_uncertain_step(u_T: Doubles) -> None:
    assert u_T.min() - 1e-12 <= normalised_uncertainty(u_T) <= u_T.max() + 1e-12


@pytest.mark.parametrize("shape", [(0,), (2, 2)])
def test_nu_of_no_steps_or_of_several_rollouts_is_refused(shape: tuple[int, ...]) -> None:
    with pytest.raises(ValueError, match="T >= 1"):
        normalised_uncertainty(np.zeros(shape))


@pytest.mark.parametrize("bad", [-0.25, 1.5, np.nan])
def test_nu_of_values_that_are_no_uncertainties_is_refused(bad: float) -> None:
    with pytest.raises(ValueError, match=f"u = {bad}; allowed: 0 to 1"):
        normalised_uncertainty(np.array([0.5, bad]))


def test_the_grid_holds_the_cumulative_means() -> None:
    # Row 0: 0.2; (0.2 + 0.4) / 2 = 0.3; (0.2 + 0.4 + 0.9) / 3 = 0.5. Row 1 alike.
    grid_JT = nu_grid(np.array([[0.2, 0.4, 0.9], [1.0, 0.0, 0.5]]))
    assert grid_JT == pytest.approx(np.array([[0.2, 0.3, 0.5], [1.0, 0.5, 0.5]]))


@given(rows_TK=logits())
def test_the_grid_equals_a_fresh_probe_at_every_smaller_k_and_length(rows_TK: Doubles) -> None:
    ks = [k for k in (2, 3, 5, 8, 13, 20) if k <= rows_TK.shape[1]]
    grid_JT = nu_grid(trace(rows_TK, ks=ks))
    for j, k in enumerate(ks):
        for max_tokens in range(1, rows_TK.shape[0] + 1):
            fresh = normalised_uncertainty(step_uncertainty(rows_TK[:max_tokens], k=k))
            assert grid_JT[j, max_tokens - 1] == pytest.approx(fresh, abs=1e-6)


def test_the_grid_keeps_settings_that_were_not_available_undefined() -> None:
    grid_JT = nu_grid(trace(np.zeros((2, 5)), ks=(4, 8)))
    assert grid_JT[0].tolist() == [1.0, 1.0]
    assert np.isnan(grid_JT[1]).all()


@pytest.mark.parametrize("shape", [(3, 0), (4,)])
def test_a_grid_of_no_steps_or_of_no_table_is_refused(shape: tuple[int, ...]) -> None:
    with pytest.raises(ValueError, match="T >= 1"):
        nu_grid(np.zeros(shape))
