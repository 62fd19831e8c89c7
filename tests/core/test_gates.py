"""Tests of pipeline.core.gates: the share that passes, and when a question is handed over."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeline.core.gates import certainty_hands_over, pass_rate, pass_rate_hands_over

SIGNALS = st.lists(st.none() | st.floats(-1, 1), max_size=8)
SHARE = st.floats(0, 1)


def test_the_pass_rate_is_the_share_of_candidates_at_or_above_the_threshold() -> None:
    # .2 and .5 reach .2, .1 does not, and what was not measured does not: 2 of 4.
    assert pass_rate([0.2, None, 0.5, 0.1], threshold=0.2) == 0.5
    assert pass_rate([0.2, 0.3], threshold=0.2) == 1.0
    assert pass_rate([None, None], threshold=-1.0) == 0.0


def test_of_no_candidates_none_passes() -> None:
    assert pass_rate([], threshold=0.0) == 0.0


@pytest.mark.parametrize(
    ("low", "high", "hands_over"),
    [(0.5, 0.5, False), (0.25, 0.75, False), (0.51, 1.0, True), (0.0, 0.49, True)],
)
def test_a_question_is_handed_over_when_its_pass_rate_lies_outside(
    low: float, high: float, hands_over: bool
) -> None:
    signals = [0.2, None, 0.5, 0.1]  # a pass rate of one half, as above
    assert pass_rate_hands_over(signals, threshold=0.2, low=low, high=high) is hands_over


@given(signals=SIGNALS, threshold=st.floats(-1, 1), bounds=st.tuples(SHARE, SHARE))
def test_a_wider_window_hands_over_no_more(
    signals: list[float | None], threshold: float, bounds: tuple[float, float]
) -> None:
    low, high = sorted(bounds)
    narrow = pass_rate_hands_over(signals, threshold=threshold, low=low, high=high)
    assert narrow >= pass_rate_hands_over(signals, threshold=threshold, low=low / 2, high=high)
    assert not pass_rate_hands_over(signals, threshold=threshold, low=0, high=1)


@pytest.mark.parametrize(("low", "high"), [(-0.1, 1), (0, 1.1), (0.6, 0.5), (float("nan"), 1)])
def test_a_window_that_is_none_is_refused(low: float, high: float) -> None:
    with pytest.raises(ValueError, match="allowed: 0 <= low <= high <= 1"):
        pass_rate_hands_over([0.1], threshold=0, low=low, high=high)


def test_a_certain_question_is_handed_over_below_the_limit_and_not_at_it() -> None:
    assert certainty_hands_over(0.19, limit=0.2)
    assert not certainty_hands_over(0.2, limit=0.2)
    assert not certainty_hands_over(0.0, limit=0.0)


@pytest.mark.parametrize("nu0", [-0.1, 1.1, float("nan")])
def test_an_uncertainty_outside_zero_and_one_is_refused(nu0: float) -> None:
    with pytest.raises(ValueError, match="allowed: 0 to 1"):
        certainty_hands_over(nu0, limit=0.5)
