"""Tests of pipeline.stages.arms: the arms of a policy and of a grid, and what they cost."""

import json
import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeline.config import ArmsConfig, GridEntry, SelectionConfig
from pipeline.config.policy import SCORERS
from pipeline.stages.arms import (
    Arm,
    ArmError,
    grid_arms,
    main_arms,
    policy_stages,
    prunes,
    scorer_stage,
    scorers,
    spared_below,
)


def selection(**options: Any) -> SelectionConfig:
    """A policy."""
    defaults = {"threshold": 0.05, "top_m": 3, "empty_context": "top1"}
    return SelectionConfig.model_validate(defaults | options)


def grid(*entries: GridEntry, **options: Any) -> dict[str, Arm]:
    """The arms of a grid by name, in order."""
    defaults: dict[str, Any] = {"top_m": (1, 5), "empty_context": "frame", "grid": entries}
    return {arm.name: arm for arm in grid_arms(ArmsConfig(**(defaults | options)))}


def test_the_main_job_has_the_policy_its_controls_and_what_it_is_compared_with() -> None:
    policy = selection(token_guard=9, guard_rule="skip")
    arms = {arm.name: arm for arm in main_arms(policy)}
    assert {name: arm.kind for name, arm in arms.items()} == {
        "igp": "policy",
        "retriever": "policy",
        "retriever_top1": "policy",
        "retriever_same_size": "same_size",
        "random_same_size": "random_same_size",
        "no_evidence": "no_evidence",
        "closed_book": "closed_book",
    }
    assert arms["igp"].policy is policy
    order = {"selector": "retriever", "threshold": -math.inf, "empty_context": "frame"}
    order["guard_rule"] = "skip"
    assert arms["retriever"].policy == selection(**order, top_m=3, token_guard=9)
    assert arms["retriever_top1"].policy == selection(**order, top_m=1)
    for name in ("retriever_same_size", "random_same_size"):
        assert (arms[name].of, arms[name].policy) == ("igp", policy)
    assert {arm.baseline for arm in arms.values()} == {"retriever"}


def test_another_selector_s_policy_is_called_by_it() -> None:
    arms = main_arms(selection(selector="qlm_gain"))
    assert [arm.name for arm in arms][:2] == ["qlm_gain", "retriever"]
    assert {arm.of for arm in arms} == {None, "qlm_gain"}


def test_the_retriever_as_the_policy_needs_no_controls() -> None:
    policy = selection(selector="retriever", threshold=-math.inf)
    arms = {arm.name: arm for arm in main_arms(policy)}
    assert list(arms) == ["retriever", "retriever_top1", "no_evidence", "closed_book"]
    assert arms["retriever"].policy is policy


def test_the_arms_of_a_grid_by_name_and_order() -> None:
    names = grid(
        GridEntry(selector="ig", thresholds=(-math.inf, 0.05)),
        GridEntry(selector="qlm", top_m=(2,)),
        GridEntry(selector="ig", label="ig-gated", pass_rate=(0.2, 0.8), top_m=(5,)),
        token_guards=(None, 100),
    )
    budgets = ["M1", "M1 B100", "M5", "M5 B100"]
    assert list(names) == [
        *(f"retriever {budget}" for budget in [*budgets, "M2", "M2 B100"]),
        *(f"ig {budget}" for budget in budgets),
        *(
            f"ig 0.05 {b}{control}"
            for b in budgets
            for control in ("", " [retriever]", " [random]")
        ),
        *("qlm M2", "qlm M2 B100", "ig-gated M5", "ig-gated M5 B100"),
        *("oracle", "no_evidence", "closed_book"),
    ]


def test_every_arm_of_a_grid_is_compared_with_the_retriever_under_its_own_budget() -> None:
    arms = grid(GridEntry(selector="ig", thresholds=(0.05,)), token_guards=(None, 100))
    assert arms["ig 0.05 M5 B100"].baseline == "retriever M5 B100"
    assert arms["ig 0.05 M5 B100 [random]"].baseline == "retriever M5 B100"
    assert arms["retriever M1"].baseline == "retriever M1"
    for name in ("oracle", "no_evidence", "closed_book"):
        assert arms[name].baseline == "retriever M5"
    assert {arm.baseline for arm in arms.values()} <= set(arms)


def test_a_control_copies_the_size_of_its_own_arm_and_comes_after_it() -> None:
    arms = grid(GridEntry(selector="qlm", thresholds=(0.0, 0.1)))
    places = list(arms)
    for name, arm in arms.items():
        if arm.kind in ("same_size", "random_same_size"):
            assert name in (f"{arm.of} [retriever]", f"{arm.of} [random]")
            assert places.index(str(arm.of)) < places.index(name)
            assert arm.policy == arms[str(arm.of)].policy


def test_controls_and_the_oracle_can_be_left_out() -> None:
    entry = GridEntry(selector="ig", thresholds=(0.0,))
    kinds = {arm.kind for arm in grid(entry, controls=False, oracle=False).values()}
    assert kinds == {"policy", "no_evidence", "closed_book"}


def test_an_entry_hands_its_options_to_every_policy_of_it() -> None:
    entry = GridEntry(
        selector="ig",
        thresholds=(0.1,),
        nu0_limit=0.2,
        fallback="qlm",
        guard_rule="skip",
        empty_context="abstain",
    )
    arms = grid(entry, GridEntry(selector="qlm"))
    assert arms["ig 0.1 M5"].policy == selection(
        threshold=0.1,
        top_m=5,
        nu0_limit=0.2,
        fallback="qlm",
        guard_rule="skip",
        empty_context="abstain",
    )
    ours = arms["qlm M5"].policy
    assert ours is not None and ours.empty_context == "frame"  # the grid's


@pytest.mark.parametrize("rule", ["frame", "top1"])
def test_retrieval_order_named_as_an_entry_is_there_once(rule: str) -> None:
    entry = GridEntry(selector="retriever")
    assert list(grid(entry, empty_context=rule)) == list(grid(empty_context=rule))
    same = entry.model_copy(update={"empty_context": "frame"})
    assert list(grid(same, empty_context=rule)) == list(grid(empty_context=rule))


def test_retrieval_order_with_its_own_rule_for_empty_contexts_is_another_arm() -> None:
    entry = GridEntry(selector="retriever", empty_context="top1")
    with pytest.raises(ArmError, match=r"'retriever M1': give one grid entry a `label`"):
        grid(entry)
    arms = grid(entry.model_copy(update={"label": "always"}))
    policy = arms["always M5"].policy
    assert policy is not None and policy.empty_context == "top1"


def test_a_retriever_entry_with_options_of_its_own_is_not_swallowed() -> None:
    gated = GridEntry(selector="retriever", guard_rule="skip")
    with pytest.raises(ArmError, match=r"'retriever M1 B9': give one grid entry a `label`"):
        grid(gated, token_guards=(9,))
    arms = grid(gated.model_copy(update={"label": "skipping"}), token_guards=(9,))
    policy = arms["skipping M1 B9"].policy
    assert policy is not None and policy.guard_rule == "skip"


@pytest.mark.parametrize(
    "entries",
    [
        (GridEntry(selector="ig"), GridEntry(selector="ig", nu0_limit=0.1)),
        (GridEntry(selector="ig", thresholds=(0.1, 0.1)),),
        (GridEntry(selector="ig", thresholds=(0.1, 0.10000001)),),
        (GridEntry(selector="qlm", label="retriever"),),
    ],
)
def test_two_arms_of_one_name_are_refused(entries: tuple[GridEntry, ...]) -> None:
    with pytest.raises(ArmError, match="two arms would be called"):
        grid(*entries)


@given(
    thresholds=st.lists(st.sampled_from([-math.inf, -0.5, 0.0, 0.05]), min_size=1, unique=True),
    sizes=st.lists(st.integers(1, 9), min_size=1, max_size=3, unique=True),
    guards=st.lists(st.none() | st.integers(1, 9), min_size=1, max_size=3, unique=True),
)
def test_a_grid_is_the_product_of_its_thresholds_and_budgets(
    thresholds: list[float], sizes: list[int], guards: list[int | None]
) -> None:
    entry = GridEntry(selector="ig", thresholds=tuple(thresholds))
    arms = grid(entry, top_m=tuple(sizes), token_guards=tuple(guards))
    policies = [arm.policy for arm in arms.values() if arm.kind == "policy"]
    of_ig = [p for p in policies if p is not None and p.selector == "ig"]
    assert len(of_ig) == len(thresholds) * len(sizes) * len(guards)
    assert len(policies) - len(of_ig) == len(sizes) * len(guards)
    finite = sum(t > -math.inf for t in thresholds) * len(sizes) * len(guards)
    assert len(arms) == len(policies) + 2 * finite + 3


def test_an_arm_is_strict_json_with_its_policy() -> None:
    arms = grid(GridEntry(selector="ig", thresholds=(0.05,)))
    plain = arms["ig 0.05 M5 [random]"].plain()
    json.dumps([arm.plain() for arm in arms.values()], allow_nan=False)
    assert plain.pop("policy")["threshold"] == 0.05
    assert plain == {
        "arm": "ig 0.05 M5 [random]",
        "kind": "random_same_size",
        "control_of": "ig 0.05 M5",
        "baseline": "retriever M5",
        "stages": ["probe"],
        "reads_rollouts": True,
    }
    assert arms["retriever M5"].plain()["policy"]["threshold"] == "-Infinity"
    assert arms["closed_book"].plain()["policy"] is None


PAID: list[tuple[dict[str, Any], tuple[str, ...]]] = [
    ({"selector": "retriever"}, ()),
    ({"selector": "ig"}, ("probe",)),
    ({"selector": "set_aware"}, ("probe", "probe_sets")),
    ({"selector": "coverage"}, ("score_coverage",)),
    ({"selector": "qlm_gain"}, ("score_qlm",)),
    ({"selector": "answer_prior"}, ("score_answer_pmi", "probe")),
    ({"selector": "qlm", "nu0_limit": 0.1}, ("score_qlm", "probe")),
    ({"selector": "qlm", "on_refusal": "fallback"}, ("score_qlm", "probe")),
    # A fallback costs where a gate may hand over to it, and a pass shared by two scorers once.
    ({"selector": "qlm", "fallback": "yes_no"}, ("score_qlm",)),
    (
        {"selector": "qlm", "fallback": "yes_no", "pass_rate": (0.1, 1)},
        ("score_qlm", "score_yes_no"),
    ),
    ({"selector": "qlm", "fallback": "qlm_gain", "pass_rate": (0.1, 1)}, ("score_qlm",)),
]


@pytest.mark.parametrize(("options", "stages"), PAID)
def test_an_arm_pays_for_the_stages_that_its_signals_come_from(
    options: dict[str, Any], stages: tuple[str, ...]
) -> None:
    assert policy_stages(selection(**options)) == stages


def test_an_arm_of_a_blend_pays_for_the_signals_of_its_blend() -> None:
    policy = selection(selector="blend", blend="/b.json")
    assert policy_stages(policy, ("retriever",)) == ()
    assert policy_stages(policy, ("neg_nu",)) == ("probe",)
    blended = Arm("it", "policy", policy, blended=("qlm", "ig", "qlm_gain", "coverage"))
    assert blended.stages == ("score_qlm", "score_coverage", "probe")
    assert scorers([blended]) == {"qlm", "qlm_gain", "coverage"}


def test_an_arm_without_a_policy_pays_nothing_and_a_control_what_its_arm_pays() -> None:
    arms = grid(GridEntry(selector="ig", thresholds=(0.05,)))
    assert arms["ig 0.05 M5 [random]"].stages == ("probe",)
    for name in ("oracle", "no_evidence", "closed_book", "retriever M5"):
        assert arms[name].stages == ()


def test_the_scorers_that_arms_need_are_their_selectors_and_fallbacks() -> None:
    arms = grid(
        GridEntry(selector="ig", thresholds=(0.0,), fallback="coverage"),
        GridEntry(selector="qlm_gain"),
    )
    assert scorers(list(arms.values())) == {"coverage", "qlm_gain"}
    assert scorers(list(grid().values())) == set()


def test_every_scorer_comes_from_one_stage_and_two_pairs_share_a_pass() -> None:
    assert {name: scorer_stage(name) for name in SCORERS} == {
        **{name: f"score_{name}" for name in SCORERS},
        "qlm_gain": "score_qlm",
        "answer_prior": "score_answer_pmi",
    }


IG_GATED: dict[str, Any] = {"selector": "ig", "thresholds": (0.05,), "nu0_limit": 0.3}
SPARED: list[tuple[list[dict[str, Any]], list[str], float | None]] = [
    ([IG_GATED], [], 0.3),
    ([IG_GATED, {**IG_GATED, "label": "lower", "nu0_limit": 0.2}], [], 0.2),
    ([IG_GATED, {"selector": "set_aware", "thresholds": (0.0,), "nu0_limit": 0.4}], [], 0.3),
    # An arm that never reads the rollouts with a passage misses none of them.
    ([IG_GATED, {"selector": "qlm"}, {"selector": "coverage", "on_refusal": "fallback"}], [], 0.3),
    ([{"selector": "qlm", "nu0_limit": 0.3}], ["qlm"], 0.3),
    # Somebody reads them all.
    ([IG_GATED, {"selector": "ig", "label": "open"}], [], None),
    ([IG_GATED, {"selector": "set_aware"}], [], None),
    ([{**IG_GATED, "fallback": "ig"}], [], None),
    ([{**IG_GATED, "ig_max_tokens": 2}], [], None),
    ([{**IG_GATED, "on_refusal": "treat_as_uncertain", "refusal_nu0": 0.5}], [], None),
    ([IG_GATED], ["answer_pmi"], None),
    ([IG_GATED], ["neg_nu"], None),
    ([], [], None),
]


@pytest.mark.parametrize(("entries", "signals", "limit"), SPARED)
def test_rollouts_are_spared_below_the_smallest_gate_where_nobody_else_reads_them(
    entries: list[dict[str, Any]], signals: list[str], limit: float | None
) -> None:
    arms = list(grid(*(GridEntry(**entry) for entry in entries)).values())
    assert spared_below(arms, signals) == limit


def test_an_arm_reads_the_rollouts_that_its_signals_are_made_of() -> None:
    def reads(*blended: str, **options: Any) -> bool:
        return Arm("it", "policy", selection(**options), blended=blended).reads_rollouts

    assert reads() and reads(selector="set_aware") and reads(selector="answer_prior")
    assert reads("neg_nu", selector="blend", blend="/b.json")
    assert reads(selector="qlm", fallback="ig", nu0_limit=0.1)
    assert not reads(selector="qlm", nu0_limit=0.1)
    assert not reads("qlm", selector="blend", blend="/b.json")
    assert not Arm("oracle", "oracle").reads_rollouts


@pytest.mark.parametrize(
    ("tp", "pruned"), [(-math.inf, False), (-0.5, True), (0.05, True), (math.inf, True)]
)
def test_an_arm_prunes_unless_its_threshold_is_minus_infinity(tp: float, pruned: bool) -> None:
    arms = grid(GridEntry(selector="ig", label="x", thresholds=(tp,)))
    (found,) = [
        arm for arm in arms.values() if arm.name.startswith("x ") and arm.name.endswith("M1")
    ]
    assert prunes(json.loads(json.dumps(found.plain()))) == pruned
