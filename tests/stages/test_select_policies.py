"""Tests of pipeline.stages.select under every policy: selectors, gates, duplicates, budgets."""

import math
from itertools import pairwise
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeline import schema
from pipeline.config import ArmsConfig, GridEntry, SelectionConfig
from pipeline.config.policy import SCORERS, EmptyContext
from pipeline.core.blend import Blend
from pipeline.engines.fake import FakeTokenizer
from pipeline.stages.arms import Arm, grid_arms, main_arms
from pipeline.stages.select import Select, is_single, single, stage
from tests.stages.choices import GAINS, PASSAGES, by_policy, choose, kept, probes, row, settings
from tests.stages.tables import candidate, table

SIGNAL = st.lists(st.none() | st.floats(-1, 1, width=32), max_size=5)
# By score: 2, 0, 4, 3; 1 was not measured.
SCORES = [0.5, None, 0.75, -0.25, 0.25]


@pytest.mark.parametrize("scorer", SCORERS)
def test_a_scorer_orders_and_admits_by_its_own_column(scorer: str) -> None:
    measured = row() | {f"score_{scorer}": SCORES}
    assert by_policy(measured, selector=scorer) == [2, 0, 4]
    assert by_policy(measured, selector=scorer, threshold=-math.inf) == [2, 0, 4, 3]
    assert by_policy(measured, selector=scorer, threshold=0.3, top_m=1) == [2]


def test_the_retriever_s_order_is_admitted_whole_and_cut_by_the_budget() -> None:
    order: dict[str, Any] = {"selector": "retriever", "threshold": -math.inf}
    assert by_policy(row(), **order, top_m=3) == [0, 1, 2]
    assert by_policy(row(), **order, token_guard=5) == [0, 1]  # 3 + 2 words


def test_a_blend_orders_by_its_log_odds() -> None:
    blend = Blend(("qlm",), (-1.0,), 0.5, (0.0,), (1.0,))  # 1/2 - qlm: the scores turned round
    path = "/weights.json"
    using = settings(blends={path: blend})
    found = by_policy(row() | {"score_qlm": SCORES}, using, selector="blend", blend=path)
    assert found == [3, 4, 0]  # 3/4, 1/4 and 0; -1/4 is below the threshold of 0


@pytest.mark.parametrize(
    ("threshold", "admitted"), [(0.0, [3, 0, 2]), (0.1, [3]), (0.6, []), (-math.inf, [3, 0, 2, 1])]
)
def test_set_aware_rounds_stop_at_the_first_below_the_threshold(
    threshold: float, admitted: list[int]
) -> None:
    rounds = {"positions": [3, 0, 2, 1], "gains": [0.5, 0.0625, 0.25, -0.5]}
    given_row = row(sets=rounds, probes=probes(0.5))
    assert by_policy(given_row, selector="set_aware", threshold=threshold) == admitted
    assert by_policy(given_row, selector="set_aware", threshold=threshold, top_m=1) == admitted[:1]


def test_the_order_of_set_aware_is_its_rounds_and_then_the_retriever_s() -> None:
    policy = SelectionConfig(selector="set_aware", threshold=0.2, top_m=5, empty_context="frame")
    rounds = {"positions": [3, 0], "gains": [0.5, 0.0625]}
    (arms,) = choose([Arm("it", "policy", policy)], row(sets=rounds, probes=probes(0.5)))
    assert arms["it"]["order"] == [3, 0, 1, 2, 4]


TWIN = "the wind that blows from the north is cold"


def test_a_near_duplicate_of_a_better_passage_loses_the_penalty() -> None:
    texts = [TWIN, "quite another text about the sun", f"Yes, {TWIN}"]
    passages = [candidate(f"p{i}", text) for i, text in enumerate(texts)]
    given_row = row([0.5, 0.25, 0.375]) | {"candidates": passages}
    assert by_policy(given_row) == [0, 2, 1]
    assert by_policy(given_row, duplicate_penalty=0.25) == [0, 1, 2]  # 3/8 - 1/4 = 1/8
    assert by_policy(given_row, duplicate_penalty=0.5) == [0, 1]  # below the threshold


@pytest.mark.parametrize(
    ("window", "found"),
    [((0.0, 1.0), [1, 4, 0]), ((0.7, 1.0), [0, 1, 2, 3, 4]), ((0.0, 0.5), [0, 1, 2, 3, 4])],
)
def test_outside_the_pass_rate_s_window_the_fallback_orders_without_a_threshold(
    window: tuple[float, float], found: list[int]
) -> None:
    assert by_policy(row(), pass_rate=window) == found  # 3 of 5 reach the threshold


def test_the_fallback_may_be_any_scorer_and_keeps_the_budget() -> None:
    given_row = row() | {"score_qlm": SCORES}
    handed: dict[str, Any] = {"pass_rate": (0.7, 1.0), "fallback": "qlm"}
    assert by_policy(given_row, **handed) == [2, 0, 4, 3]
    assert by_policy(given_row, **handed, top_m=2) == [2, 0]


def test_a_fallback_that_measured_nothing_admits_nothing_and_orders_nothing() -> None:
    policy = SelectionConfig(
        threshold=0.0, top_m=5, empty_context="top1", pass_rate=(0.7, 1.0), fallback="qlm"
    )
    given_row = row() | {"score_qlm": [None] * 5}
    (arms,) = choose([Arm("it", "policy", policy)], given_row)
    assert (arms["it"]["admitted"], kept(arms["it"]), arms["it"]["order"]) == (0, [0], None)


def test_below_the_limit_of_certainty_the_fallback_orders() -> None:
    for nu0, found in ((0.125, [0, 1, 2, 3, 4]), (0.25, [1, 4, 0])):
        assert by_policy(row(probes=probes(nu0)), nu0_limit=0.25) == found


def test_an_arm_and_its_controls_say_where_certainty_alone_handed_over() -> None:
    policy = SelectionConfig(threshold=0.0, top_m=2, empty_context="frame", nu0_limit=0.25)
    for nu0, certain in ((0.125, True), (0.25, False)):
        (arms,) = choose(main_arms(policy), row(probes=probes(nu0)))
        for name in ("igp", "retriever_same_size", "random_same_size"):
            assert arms[name]["certain"] is certain
        assert arms["retriever"]["certain"] is False


def test_where_its_gate_hands_over_a_policy_needs_no_gain() -> None:
    given_row = row([None] * 5, probes=probes(0.125, [None] * 5))
    assert by_policy(given_row, nu0_limit=0.25, top_m=2) == [0, 1]


def test_the_gate_and_the_gains_see_one_and_the_same_uncertainty() -> None:
    # Under MT = 1: NU(q) = 1/8, below the limit. As probed it is 1/2, above it.
    u = [[0.125, 0.875], [0.0625, 0.9375], [0.5]]
    given_row = row([0.0, 0.0], probes=probes(0.5, [0.5, 0.5], u=u))
    assert by_policy(given_row, nu0_limit=0.25, threshold=0.01) == []
    assert by_policy(given_row, nu0_limit=0.25, threshold=0.01, ig_max_tokens=1) == [0, 1]
    assert by_policy(given_row, nu0_limit=0.1, threshold=0.01, ig_max_tokens=1) == [0]
    # A refusal counts as NU(q) = 3/4: the gate stays shut, and the gains are 3/4 - NU(q | d).
    refused: dict[str, Any] = {"on_refusal": "treat_as_uncertain", "refusal_nu0": 0.75}
    certain = row([0.0, 0.0], probes=probes(0.125, [0.5, 0.5], answer=REFUSAL, u=u))
    assert by_policy(certain, nu0_limit=0.25, threshold=0.3, **refused) == [0, 1]
    lifted: dict[str, Any] = {"nu0_limit": 0.25, "ig_max_tokens": 1, **refused}
    assert by_policy(certain, threshold=0.6, **lifted) == [0]  # 11/16 and 1/4


REFUSAL = "I'm sorry, but I cannot answer that."


@pytest.mark.parametrize(
    ("rule", "found"),
    [
        ({"on_refusal": "keep"}, [1, 4, 0]),
        ({"on_refusal": "fallback"}, [0, 1, 2, 3, 4]),
        # NU(q) = 1/8 becomes 1/2: every gain grows by 3/8, and that of passage 3 to 1/8.
        ({"on_refusal": "treat_as_uncertain", "refusal_nu0": 0.5}, [1, 4, 0, 3]),
    ],
)
def test_a_refusal_without_evidence_is_treated_by_its_rule_and_other_answers_are_not(
    rule: dict[str, Any], found: list[int]
) -> None:
    assert by_policy(row(probes=probes(0.125, answer=REFUSAL)), **rule) == found
    assert by_policy(row(probes=probes(0.125)), **rule) == [1, 4, 0]


def test_refusals_are_known_by_the_patterns_of_the_config_too() -> None:
    given_row = row(probes=probes(0.125, answer="No comment."))
    assert by_policy(given_row, on_refusal="fallback") == [1, 4, 0]
    using = settings(refusal_patterns=["no comment"])
    assert by_policy(given_row, using, on_refusal="fallback") == [0, 1, 2, 3, 4]


@pytest.mark.parametrize(
    ("rule", "evidence", "frame", "asks"),
    [
        ("frame", [], "documents", True),
        ("closed_book", [], "closed_book", True),
        ("top1", [0], "documents", True),
        ("abstain", [], "abstain", False),
    ],
)
@pytest.mark.parametrize("selector", ["ig", "qlm", "set_aware"])
def test_every_selector_shares_the_rules_for_an_empty_set(
    selector: str, rule: EmptyContext, evidence: list[int], frame: str, asks: bool
) -> None:
    measured = row(score_qlm=SCORES, probes=probes(0.5), sets={"positions": [1], "gains": [0.5]})
    policy = SelectionConfig.model_validate(
        {"selector": selector, "threshold": 0.9, "top_m": 2, "empty_context": rule}
    )
    (arms,) = choose([Arm("it", "policy", policy)], measured)
    assert (kept(arms["it"]), arms["it"]["frame"]) == (evidence, frame)
    assert (arms["it"]["prompt_id"] is not None, arms["it"]["admitted"]) == (asks, 0)


def test_a_first_passage_beyond_the_token_guard_leaves_nothing_to_fall_back_on() -> None:
    assert by_policy(row(), threshold=0.9, empty_context="top1", token_guard=2) == []


def test_the_oracle_shows_each_candidate_alone_and_itself_where_there_is_none() -> None:
    grid = ArmsConfig(top_m=(1,), empty_context="frame")
    with_three, empty = choose(grid_arms(grid), row(GAINS[:3]), row([], question_id="none"))
    assert [name for name in with_three if is_single(name)] == [single(i) for i in range(3)]
    assert [kept(with_three[single(i)]) for i in range(3)] == [[0], [1], [2]]
    assert with_three[single(0)]["prompt_id"] == with_three["retriever M1"]["prompt_id"]
    assert "oracle" not in with_three
    assert kept(empty["oracle"]) == []
    assert empty["oracle"]["prompt_id"] == empty["no_evidence"]["prompt_id"]


@given(signal=SIGNAL, seed=st.integers(0, 3))
def test_the_random_controls_of_one_question_are_nested_in_each_other(
    signal: list[float | None], seed: int
) -> None:
    grid = ArmsConfig(
        top_m=(1, 2, 3),
        empty_context="frame",
        grid=(GridEntry(selector="ig", thresholds=(-0.5, 0.0, 0.5)),),
    )
    (arms,) = choose(grid_arms(grid), row(signal), using=settings(seed=seed))
    chances = sorted((kept(arm) for name, arm in arms.items() if "[random]" in name), key=len)
    for smaller, larger in pairwise(chances):
        assert set(smaller) <= set(larger)
    for name in arms:
        if "[random]" in name:
            assert len(kept(arms[name])) == len(kept(arms[name.removesuffix(" [random]")]))


@given(
    signal=SIGNAL,
    thresholds=st.lists(st.floats(-1, 1), min_size=1, max_size=4, unique_by=lambda t: f"{t:g}"),
)
def test_a_grid_over_one_selector_asks_at_most_one_prompt_more_than_it_has_candidates(
    signal: list[float | None], thresholds: list[float]
) -> None:
    grid = ArmsConfig(
        top_m=(1, 2, 3, 5),
        empty_context="frame",
        grid=(GridEntry(selector="qlm", thresholds=(-math.inf, *thresholds)),),
        controls=False,
    )
    (arms,) = choose(grid_arms(grid), row(signal) | {"score_qlm": signal})
    prompts = {arm["prompt_id"] for name, arm in arms.items() if name.startswith("qlm")}
    assert len(prompts) <= len(signal) + 1


@given(
    signal=SIGNAL,
    thresholds=st.tuples(st.floats(-1, 1), st.floats(-1, 1)),
    sizes=st.tuples(st.integers(0, 5), st.integers(0, 5)),
    guard=st.none() | st.integers(1, 12),
)
def test_a_higher_threshold_or_a_smaller_budget_keeps_a_prefix(
    signal: list[float | None],
    thresholds: tuple[float, float],
    sizes: tuple[int, int],
    guard: int | None,
) -> None:
    low, high = sorted(thresholds)
    small, large = sorted(sizes)
    many = by_policy(row(signal), threshold=low, top_m=large, token_guard=guard)
    for stricter in (
        {"threshold": high, "top_m": large, "token_guard": guard},
        {"threshold": low, "top_m": small, "token_guard": guard},
        {
            "threshold": low,
            "top_m": large,
            "token_guard": 1 if guard is None else max(1, guard // 2),
        },
    ):
        few = by_policy(row(signal), **stricter)
        assert many[: len(few)] == few


@given(gains=st.lists(st.floats(-1, 1, width=32), max_size=5, unique=True), data=st.data())
def test_a_permutation_of_the_candidates_permutes_the_evidence_of_ig(
    gains: list[float], data: st.DataObject
) -> None:
    shuffle = data.draw(st.permutations(range(len(gains))))
    turned = row([gains[i] for i in shuffle]) | {"candidates": [PASSAGES[i] for i in shuffle]}
    before = by_policy(row(gains), top_m=3)
    assert [shuffle[i] for i in by_policy(turned, top_m=3)] == before


def test_an_arm_that_hands_over_has_controls_of_the_size_it_kept() -> None:
    policy = SelectionConfig(threshold=0.0, top_m=4, pass_rate=(0.7, 1.0), empty_context="frame")
    (arms,) = choose(main_arms(policy), row())
    assert kept(arms["igp"]) == [0, 1, 2, 3] == kept(arms["retriever_same_size"])
    assert len(kept(arms["random_same_size"])) == 4


NEEDS: list[tuple[dict[str, Any], list[str]]] = [
    ({"selector": "retriever"}, []),
    ({"selector": "ig"}, ["probes", "gains"]),
    ({"selector": "set_aware"}, ["probes", "sets", "gains"]),
    ({"selector": "qlm_gain"}, ["score_qlm_gain"]),
    ({"selector": "qlm", "fallback": "coverage"}, ["score_qlm", "score_coverage"]),
    ({"selector": "qlm", "nu0_limit": 0.1}, ["score_qlm", "probes", "gains"]),
    ({"selector": "qlm", "on_refusal": "fallback"}, ["score_qlm", "probes", "gains"]),
    ({"selector": "blend", "blend": "/b.json"}, ["score_yes_no", "probes"]),
]


@pytest.mark.parametrize(("options", "columns"), NEEDS)
def test_the_stage_needs_what_its_policies_read_and_nothing_else(
    options: dict[str, Any], columns: list[str]
) -> None:
    policy = SelectionConfig.model_validate(
        {"threshold": 0.0, "top_m": 1, "empty_context": "frame", **options}
    )
    blend = Blend(("yes_no", "neg_nu_z"), (1.0, 1.0), 0.0, (0.0, 0.0), (1.0, 1.0))
    using = settings(blends={"/b.json": blend} if "blend" in options else {})
    made = stage([Arm("it", "policy", policy)], using)
    assert list(made.needs) == ["question", "candidates", *columns]


def test_the_stage_depends_on_arms_seed_format_model_blends_and_only_then_on_refusals() -> None:
    def depends_on(**options: Any) -> Any:
        shared = {k: options.pop(k) for k in list(options) if k in ("seed", "refusal_patterns")}
        defaults = {"threshold": 0.0, "top_m": 1, "empty_context": "frame"}
        policy = SelectionConfig.model_validate(defaults | options)
        return stage([Arm("it", "policy", policy)], settings(**shared)).depends_on

    assert depends_on() == depends_on(refusal_patterns=["no"])
    different = [
        depends_on(),
        depends_on(top_m=2),
        depends_on(seed=1),
        depends_on(on_refusal="fallback"),
        depends_on(on_refusal="fallback", refusal_patterns=["no"]),
    ]
    assert all(one != other for i, one in enumerate(different) for other in different[:i])


def test_what_is_counted_is_the_policy_under_test_and_not_the_grid_s_first_arm() -> None:
    grid = ArmsConfig(
        top_m=(1, 5),
        empty_context="top1",
        grid=(
            GridEntry(selector="qlm", thresholds=(0.6,)),
            GridEntry(selector="ig", thresholds=(0.3,)),
        ),
    )
    arms = grid_arms(grid)
    rows = [row(score_qlm=SCORES), row([-0.5] * 5, score_qlm=SCORES), row([], score_qlm=[])]
    columns = ["question_id", "question", "candidates", "gains", "score_qlm"]
    made = Select(arms, settings(), FakeTokenizer())(table(rows, columns))
    # Of IG 0.3 at M = 5: two passages, none, none. Retrieval order has 5, 5 and none.
    assert dict(stage(arms, settings()).counts(made)) == {"admitted": 2, "empty": 2}
    dead = made.append_column("x", pa.nulls(3)).set_column(
        made.column_names.index("arms"), "arms", pa.nulls(3, schema.ARMS.type)
    )
    assert dict(stage(arms, settings()).counts(dead)) == {"admitted": 0, "empty": 0}
    only = grid_arms(ArmsConfig(top_m=(2,), empty_context="frame"))
    found = Select(only, settings(), FakeTokenizer())(table(rows, columns))
    assert dict(stage(only, settings()).counts(found)) == {"admitted": 4, "empty": 1}
