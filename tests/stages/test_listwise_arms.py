"""Tests of listwise selectors in pipeline.stages: their arms, signals and choices."""

import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeline.config import GridEntry
from pipeline.stages import signals
from pipeline.stages.arms import main_arms, policy_under_test, prunes, rankers
from tests.stages.choices import by_policy, choose, kept, row
from tests.stages.test_arms import grid, selection


def ranked(positions: list[int], selector: str = "adarank", **more: Any) -> dict[str, Any]:
    """The row of five winds, of which a ranker named some."""
    more[f"ranking_{selector}"] = {"positions": positions}
    return row(**more)


ADARANK: dict[str, Any] = {"selector": "adarank", "threshold": -math.inf}


def test_the_model_s_list_is_the_evidence_in_its_order() -> None:
    assert by_policy(ranked([3, 0, 4]), **ADARANK) == [3, 0, 4]
    assert by_policy(ranked([3, 0, 4]), **ADARANK, top_m=2) == [3, 0]
    whole = {**ADARANK, "selector": "listwise"}
    assert by_policy(ranked([4, 3, 2, 1, 0], "listwise"), **whole) == [4, 3, 2, 1, 0]


def test_an_empty_list_follows_the_rule_for_empty_contexts() -> None:
    for rule, expected in (("frame", []), ("closed_book", []), ("top1", [0])):
        assert by_policy(ranked([]), **ADARANK, empty_context=rule) == expected
    arms = main_arms(selection(**ADARANK, empty_context="abstain"))
    (made,) = choose(arms, ranked([]))
    assert made["adarank"]["frame"] == "abstain" and made["adarank"]["prompt_id"] is None
    assert made["adarank"]["admitted"] == 0


def test_the_order_holds_the_named_and_then_the_others_by_rank() -> None:
    arms = main_arms(selection(**ADARANK))
    made, none = choose(arms, ranked([3, 0]), ranked([]))
    assert made["adarank"]["order"] == [3, 0, 1, 2, 4]
    assert none["adarank"]["order"] == [0, 1, 2, 3, 4]
    # As many as the model kept, of retrieval's order and at random.
    assert kept(made["retriever_same_size"]) == [0, 1]
    assert len(kept(made["random_same_size"])) == 2


@given(positions=st.lists(st.integers(0, 4), unique=True), top_m=st.integers(1, 6))
def test_evidence_is_a_prefix_of_what_the_model_named(positions: list[int], top_m: int) -> None:
    assert by_policy(ranked(positions), **ADARANK, top_m=top_m) == positions[:top_m]


def test_a_set_that_is_too_small_can_hand_over_to_retrieval_order() -> None:
    gated = {**ADARANK, "pass_rate": (0.1, 1.0)}
    assert by_policy(ranked([]), **gated, top_m=2) == [0, 1]
    assert by_policy(ranked([3]), **gated, top_m=2) == [3]


def test_a_listwise_order_serves_as_a_fallback() -> None:
    policy: dict[str, Any] = {"nu0_limit": 0.5, "fallback": "listwise", "threshold": 0.0}
    given_row = ranked([2, 1, 0, 3, 4], "listwise", probes={"nu0": 0.1, "nu": [], "answers": [""]})
    assert by_policy(given_row, **policy) == [2, 1, 0, 3, 4]


def test_a_passage_that_was_left_out_has_no_signal() -> None:
    assert signals.plain(ranked([3, 0]), "adarank") == [-1.0, None, None, 0.0, None]
    assert signals.columns("adarank") == ("ranking_adarank",)


def test_a_pruning_list_has_controls_of_its_size_and_a_full_order_has_none() -> None:
    arms = grid(GridEntry(selector="adarank"), GridEntry(selector="listwise"))
    assert list(arms)[2:8] == [
        *("adarank M1", "adarank M1 [retriever]", "adarank M1 [random]"),
        *("adarank M5", "adarank M5 [retriever]", "adarank M5 [random]"),
    ]
    assert [name for name in arms if name.startswith("listwise")] == ["listwise M1", "listwise M5"]
    assert arms["adarank M5"].stages == ("rank_adarank",)
    assert arms["adarank M5 [random]"].baseline == "retriever M5"
    assert not arms["adarank M5"].reads_rollouts
    assert prunes(arms["adarank M1"].plain()) and prunes(arms["adarank M1 [random]"].plain())
    assert not prunes(arms["listwise M1"].plain())
    bare = grid(GridEntry(selector="adarank"), controls=False)
    assert not any(arm.of for arm in bare.values())


def test_the_arm_that_reports_look_at_is_one_that_prunes() -> None:
    arms = grid(GridEntry(selector="listwise"), GridEntry(selector="adarank"))
    tested = policy_under_test([arm.plain() for arm in arms.values()])
    assert tested is not None and tested["arm"] == "adarank M5"


@pytest.mark.parametrize(
    ("entries", "expected"),
    [
        ([{"selector": "ig"}], []),
        ([{"selector": "listwise"}, {"selector": "adarank"}], ["adarank", "listwise"]),
        ([{"selector": "ig", "nu0_limit": 0.1, "fallback": "listwise"}], ["listwise"]),
        ([{"selector": "ig", "fallback": "adarank"}], ["adarank"]),  # select reads its column
    ],
)
def test_only_the_rankings_that_an_arm_names_are_made(
    entries: list[dict[str, Any]], expected: list[str]
) -> None:
    made = grid(*(GridEntry.model_validate(entry) for entry in entries))
    assert rankers(list(made.values())) == expected
