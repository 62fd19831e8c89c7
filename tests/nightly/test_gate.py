"""The gate's arithmetic: tolerance and significance, both."""

import math
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeline.config import GateConfig
from pipeline.nightly.gate import Compared, Drifted, compare, is_worse, judge, judged
from pipeline.nightly.scores import read
from tests.nightly.conftest import Made

F1 = Compared("f1", 0.5, 0.4, -0.1, -0.15, -0.05, 100, 0, 0.01, worse=True)
FINE = replace(F1, night=0.5, difference=0.0, low=-0.01, high=0.01, worse=False)


@pytest.mark.parametrize(
    ("metric", "difference", "low", "high", "expected"),
    [
        ("f1", -0.05, -0.08, -0.02, True),
        ("f1", -0.05, -0.12, 0.02, False),  # large, and perhaps chance
        ("f1", -0.005, -0.008, -0.002, False),  # certain, and within the tolerance
        ("f1", -0.01, -0.02, -0.005, False),  # the tolerance itself
        ("f1", 0.05, 0.02, 0.08, False),
        ("prompt_tokens", 0.05, 0.02, 0.08, True),  # more is worse
        ("wrong", -0.05, -0.08, -0.02, False),
        ("f1", math.nan, math.nan, math.nan, False),
    ],
)
def test_worse_is_beyond_the_tolerance_and_beyond_chance(
    metric: str, difference: float, low: float, high: float, expected: bool
) -> None:
    assert is_worse(metric, difference, low, high, tolerance=0.01) is expected


@given(st.floats(-1, 1), st.floats(0, 1), st.floats(0, 1), st.floats(0, 1), st.floats(0, 1))
def test_a_larger_tolerance_never_makes_a_night_worse(
    difference: float, down: float, up: float, one: float, other: float
) -> None:
    small, large = sorted((one, other))
    low, high = difference - down, difference + up
    if is_worse("f1", difference, low, high, tolerance=large):
        assert is_worse("f1", difference, low, high, tolerance=small)


@given(st.floats(-1, 1), st.floats(0, 1), st.floats(0, 1), st.floats(0, 0.5))
def test_a_metric_to_be_low_is_judged_as_its_negative(
    difference: float, down: float, up: float, tolerance: float
) -> None:
    low, high = difference - down, difference + up
    assert is_worse("wrong", difference, low, high, tolerance=tolerance) == is_worse(
        "f1", -difference, -high, -low, tolerance=tolerance
    )


def test_a_verdict_is_the_gravest_and_names_every_reason() -> None:
    drift = Drifted(flagged=("drift of nu",), unchecked=())
    few = replace(FINE, metric="sub_em", n=3)
    gate = GateConfig()
    assert judge([FINE], Drifted(), gate).verdict == "passed"
    assert judge([FINE], drift, gate).verdict == "drifted"
    assert judge([FINE, few], drift, gate).verdict == "not_comparable"
    found = judge([F1, few], drift, gate)
    assert (found.verdict, found.passed) == ("worse", False)
    assert found.reasons == (
        "f1: 0.5000 -> 0.4000, difference -0.1000 [-0.1500, -0.0500] over 100 questions, "
        "tolerance 0.01",
        "sub_em: defined for 3 questions of both nights, gate.min_questions is 20",
        "drift of nu",
    )


def test_too_few_questions_matter_only_where_a_tolerance_asks() -> None:
    assert judge([replace(FINE, n=0, tolerance=None)], Drifted(), GateConfig()).passed


def test_drift_that_could_not_be_checked_is_no_pass() -> None:
    drift = Drifted(unchecked=("drift: not checked: no probes",))
    assert judge([FINE], drift, GateConfig()).verdict == "not_comparable"


def test_both_nights_are_compared_question_by_question(three: Made) -> None:
    sides = [read(str(three.folder(place) / "scores.parquet")) for place in (0, 2)]
    found = {
        one.metric: one
        for one in compare(*sides, arm="igp", gate=GateConfig(), seed=1, samples=200)
    }
    sub_em = found["sub_em"]
    assert (sub_em.n, sub_em.undefined) == (40, 0)
    assert sub_em.baseline is not None and sub_em.night is not None
    assert sub_em.difference == pytest.approx(sub_em.night - sub_em.baseline)
    assert (found["ndcg"].n, found["ndcg"].undefined, found["ndcg"].difference) == (0, 40, None)


def test_an_arm_that_the_baseline_lacks_is_not_comparable(three: Made) -> None:
    sides = [read(str(three.folder(place) / "scores.parquet")) for place in (0, 2)]
    found = judged(*sides, arm="oracle", drift=Drifted(), gate=GateConfig(), seed=1, samples=200)
    assert (found.verdict, found.compared) == ("not_comparable", ())
    assert "no arm 'oracle'; there are: igp, retriever" in found.reasons[0]
