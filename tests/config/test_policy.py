"""Tests of pipeline.config.policy: what a policy, a grid and a policy file may say."""

import math
from typing import Any, get_args

import pytest
from pydantic import ValidationError

from pipeline.config import ArmsConfig, GridEntry, PolicyOptions, SelectionConfig
from pipeline.config.policy import SCORERS, Selector
from pipeline.core.blend import SIGNALS
from pipeline.stages import score


def options(**given: Any) -> PolicyOptions:
    """A policy without threshold and budget."""
    return PolicyOptions.model_validate(given)


def test_the_selectors_are_seven_of_their_own_and_every_scorer() -> None:
    own = ("retriever", "ig", "set_aware", "adarank", "listwise", "clues", "blend")
    assert set(get_args(Selector)) == {*own, *SCORERS}
    assert set(score.SCORERS) == set(SCORERS)
    assert set(SIGNALS) == {"retriever", "ig", "neg_nu", *SCORERS}


REFUSED: list[tuple[dict[str, Any], str]] = [
    ({"selector": "blend"}, "selector blend and the file `blend` need each other"),
    ({"selector": "ig", "blend": "b.json"}, "selector blend and the file `blend` need each other"),
    ({"fallback": "set_aware"}, "fallback set_aware has no signal"),
    ({"fallback": "blend"}, "fallback blend has no signal"),
    ({"selector": "qlm", "ig_top_k": 8}, "ig_top_k and ig_max_tokens are of selector ig alone"),
    ({"selector": "qlm", "ig_max_tokens": 8}, "are of selector ig alone"),
    ({"selector": "set_aware", "duplicate_penalty": 0.1}, "no duplicate_penalty"),
    ({"selector": "adarank", "duplicate_penalty": 0.1}, "adarank sees near-duplicates itself"),
    ({"on_refusal": "treat_as_uncertain"}, "treat_as_uncertain and refusal_nu0 need each other"),
    ({"refusal_nu0": 0.5}, "treat_as_uncertain and refusal_nu0 need each other"),
    (
        {"selector": "qlm", "on_refusal": "treat_as_uncertain", "refusal_nu0": 0.5},
        "treat_as_uncertain is of selector ig alone",
    ),
    ({"pass_rate": (0.5, 0.4)}, r"pass_rate \[0\.5, 0\.4\]; allowed: 0 <= low <= high <= 1"),
    ({"pass_rate": (0.5, 1.1)}, "allowed: 0 <= low <= high <= 1"),
    ({"pass_rate": (math.nan, 1.0)}, "allowed: 0 <= low <= high <= 1"),
    ({"nu0_limit": 1.1}, "less than or equal to 1"),
    ({"duplicate_penalty": -0.1}, "greater than or equal to 0"),
    ({"duplicate_penalty": math.inf}, "finite number"),
    ({"duplicate_penalty": math.nan}, "finite number"),
]


@pytest.mark.parametrize(("given", "said"), REFUSED)
def test_options_that_contradict_each_other_are_refused(given: dict[str, Any], said: str) -> None:
    with pytest.raises(ValidationError, match=said):
        options(**given)


PROBED: list[tuple[dict[str, Any], bool]] = [
    ({"selector": "ig"}, True),
    ({"selector": "set_aware"}, True),
    ({"selector": "qlm"}, False),
    ({"selector": "qlm", "fallback": "ig"}, True),
    ({"selector": "qlm", "nu0_limit": 0.0}, True),
    ({"selector": "qlm", "pass_rate": (0.1, 0.9)}, False),
    ({"selector": "qlm", "on_refusal": "fallback"}, True),
]


@pytest.mark.parametrize(("given", "probed"), PROBED)
def test_a_policy_is_probed_where_it_reads_what_the_model_thought(
    given: dict[str, Any], probed: bool
) -> None:
    assert options(**given).probed is probed


@pytest.mark.parametrize("threshold", [math.nan, "low"])
def test_a_threshold_is_a_number_or_an_infinity(threshold: Any) -> None:
    with pytest.raises(ValidationError):
        SelectionConfig(threshold=threshold, top_m=1, empty_context="frame")
    with pytest.raises(ValidationError):
        GridEntry(thresholds=(0.0, threshold))
    assert GridEntry(thresholds=(-math.inf, 0.0, math.inf)).thresholds == (-math.inf, 0.0, math.inf)


@pytest.mark.parametrize(
    "given",
    [
        {"top_m": ()},
        {"top_m": (0,)},
        {"token_guards": ()},
        {"token_guards": (0,)},
        {"grid": ({"selector": "ig", "top_m": (0,)},)},
        {"grid": ({"selector": "ig", "top_m": ()},)},
        {"grid": ({"selector": "ig", "thresholds": ()},)},
        {"grid": ({"selector": "ig", "label": "two words"},)},
        {"grid": ({"selector": "ig", "label": "ig[0]"},)},
        {"grid": ({"selector": "ig", "label": "../ig"},)},
        {"grid": ({"selector": "ig", "label": "_ig"},)},
        {"grid": ({"selector": "ig", "label": "$\\frac$"},)},
        {"grid": ({"selector": "bm52"},)},
    ],
)
def test_a_grid_that_makes_no_arms_or_no_names_is_refused(given: dict[str, Any]) -> None:
    good: dict[str, Any] = {"top_m": (1,), "empty_context": "frame"}
    assert ArmsConfig.model_validate(good).controls
    with pytest.raises(ValidationError):
        ArmsConfig.model_validate(good | given)


@pytest.mark.parametrize(
    ("given", "other"),
    [
        ({}, False),
        ({"nu0_limit": 0.1, "on_refusal": "fallback"}, False),
        ({"ig_top_k": 8}, True),
        ({"ig_max_tokens": 2}, True),
        ({"on_refusal": "treat_as_uncertain", "refusal_nu0": 0.0}, True),
    ],
)
def test_a_policy_takes_the_probe_s_uncertainty_unless_it_says_otherwise(
    given: dict[str, Any], other: bool
) -> None:
    assert options(**given).other_nu0 is other
