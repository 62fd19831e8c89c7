"""Tests of pipeline.report.summary: a run's numbers per arm, against values found by hand."""

import json
import math
from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import pyarrow as pa
import pytest

from pipeline.config import EvaluateConfig, SelectionConfig
from pipeline.loading import load
from pipeline.report.summary import policy_under_test, summarise
from pipeline.stages.arms import Arm, grid_arms, main_arms
from tests.report import rows as made
from tests.report.rows import metric, probe

NAN = math.nan
COLUMNS = ("question_id", "metrics", "probes", "refused", "empty_golds")
POLICY = SelectionConfig(selector="ig", threshold=0.05, top_m=2, empty_context="frame")
DECLARED = main_arms(POLICY)
ARMS = tuple(one.name for one in DECLARED)


def row(name: str, probes: dict[str, Any], **arms: dict[str, Any]) -> dict[str, Any]:
    """One question; an arm that is not given scores 0 with 10 tokens and no evidence."""
    measured = [arms.get(arm, metric(arm, 0.0, 10, 0)) for arm in ARMS]
    values = {"metrics": measured, "probes": probes, "refused": False, "empty_golds": 1}
    return {"question_id": name, **values}


def part(rows: Sequence[dict[str, Any]]) -> pa.Table:
    """Rows as a part of the finished run."""
    return made.part(rows, COLUMNS)


# Probe tokens: 3+5+1+2 = 11, 4+2 = 6 under the free rule, 3+5+3+2 = 13; 30 in all, 10 a question.
ROWS = [
    row(
        "q0",
        probe(0.5, [3, 5], [1, 2]),
        igp=metric("igp", 1.0, 20, 1),
        retriever=metric("retriever", 0.5, 60, 2),
    ),
    row(
        "q1",
        probe(0.25, [4], [2], free_rule=True),
        igp=metric("igp", 0.5, 10, 0, refusal=True),
        retriever=metric("retriever", 0.25, 60, 2),
    ),
    row(
        "q2",
        probe(0.75, [3, 5], [3, 2]),
        igp=metric("igp", 0.0, 30, 1, refusal=True),
        retriever=metric("retriever", 0.75, 60, 2),
    ),
]


ROWS = [one | {"refused": one["question_id"] in ("q1", "q2")} for one in ROWS]


def summary(rows: Sequence[dict[str, Any]] = ROWS) -> dict[str, Any]:
    """The summary of rows in one part."""
    return summarise([part(rows)], arms=made.plain(DECLARED), seed=7, samples=200)


def arm(metrics: dict[str, Any], name: str) -> dict[str, Any]:
    """One arm of a summary."""
    (found,) = [one for one in metrics["arms"] if one["arm"] == name]
    assert isinstance(found, dict)
    return found


def test_the_means_of_an_arm_by_hand() -> None:
    igp = arm(summary(), "igp")
    assert igp["f1"]["value"] == pytest.approx(0.5)  # (1 + .5 + 0) / 3
    assert igp["em"]["value"] == igp["sub_em"]["value"] == pytest.approx(1 / 3)
    assert igp["tk"] == pytest.approx(20)  # (20 + 10 + 30) / 3
    assert igp["f1_minus_baseline"]["value"] == pytest.approx(0)  # (.5 + .25 - .75) / 3
    assert (igp["n"], igp["f1"]["n"], igp["f1"]["undefined"]) == (3, 3, 0)


def test_nte_is_quality_per_token_against_the_retriever_with_and_without_probes() -> None:
    metrics = summary()
    igp, retriever = arm(metrics, "igp"), arm(metrics, "retriever")
    # F1 .5 over .5, TK 20 over 60, and 20 + 10 probe tokens over 60.
    assert igp["nte"] == pytest.approx(3)
    assert igp["nte_with_probes"] == pytest.approx(2)
    assert retriever["nte"] == retriever["nte_with_probes"] == pytest.approx(1)


def test_arms_that_need_no_probe_do_not_pay_for_them() -> None:
    rows = [
        row(
            "q",
            probe(0.5, [30], [0]),
            **{name: metric(name, 1.0, 60, 1) for name in ARMS},
        )
    ]
    metrics = summary(rows)
    paid = {one["arm"] for one in metrics["arms"] if one["nte_with_probes"] != one["nte"]}
    assert paid == {"igp", "retriever_same_size", "random_same_size"}
    assert arm(metrics, "igp")["nte_with_probes"] == pytest.approx(60 / 90)


def test_shares_of_empty_contexts_and_of_refusals_among_them() -> None:
    metrics = summary()
    igp = arm(metrics, "igp")
    assert igp["empty_share"] == pytest.approx(1 / 3)
    assert igp["refusal_share_without_evidence"] == 1.0  # of q1 alone: q2 refused with evidence
    retriever = arm(metrics, "retriever")
    assert retriever["empty_share"] == 0
    assert retriever["refusal_share_without_evidence"] is None
    assert arm(metrics, "no_evidence")["refusal_share_without_evidence"] == 0.0


def test_the_probe_by_hand() -> None:
    assert summary()["probe"] == pytest.approx(
        {
            "rollouts": 5,
            "tokens_per_question": 10,
            "mean_nu0": 0.5,
            "free_rule_share": 1 / 3,
            "refusal_share": 2 / 3,
            "empty_share_of_refused": 1 / 2,
            "empty_share_of_others": 0,
        }
    )


def test_without_refusals_their_share_of_empty_contexts_is_undefined() -> None:
    shares = summary(ROWS[:1])["probe"]
    assert shares["empty_share_of_refused"] is None
    assert shares["empty_share_of_others"] == 0.0


def test_undefined_scores_are_left_out_of_the_mean_and_counted() -> None:
    undefined = row(
        "q3",
        probe(0.5, [3], [1]),
        igp=metric("igp", NAN, 20, 1),
        retriever=metric("retriever", NAN, 60, 2),
    )
    igp = arm(summary([*ROWS, undefined]), "igp")
    assert igp["f1"]["value"] == pytest.approx(0.5)
    assert (igp["n"], igp["f1"]["n"], igp["f1"]["undefined"]) == (4, 3, 1)
    assert igp["f1_minus_baseline"]["undefined"] == 1
    assert igp["tk"] == pytest.approx(20)


def test_nte_takes_quality_and_tokens_over_the_same_questions() -> None:
    # A long prompt of a question without golds says nothing about quality per token.
    unlabelled = row(
        "q3",
        probe(0.5, [900], [1]),
        **{name: metric(name, NAN, 1000, 1) for name in ARMS},
    )
    both, alone = arm(summary([*ROWS, unlabelled]), "igp"), arm(summary(), "igp")
    assert (both["nte"], both["nte_with_probes"]) == (alone["nte"], alone["nte_with_probes"])
    assert both["tk"] == pytest.approx(265)  # (20 + 10 + 30 + 1000) / 4


def test_golds_that_normalise_to_nothing_are_counted() -> None:
    assert summary()["empty_golds"] == 3


def test_what_has_no_value_is_none_and_not_zero() -> None:
    log = row("q", probe(0.5, [3], [1]), **{name: metric(name, NAN, 0, 0) for name in ARMS})
    igp = arm(summary([log]), "igp")
    assert igp["f1"] == {"value": None, "low": None, "high": None, "n": 0, "undefined": 1}
    assert igp["nte"] is None and igp["nte_with_probes"] is None
    assert igp["tk"] == 0.0
    hopeless = summary([row("q", probe(0.5, [3], [1]))])
    assert arm(hopeless, "igp")["f1"]["value"] == 0.0
    assert arm(hopeless, "igp")["nte"] is None  # the baseline's F1 is 0


def test_intervals_hold_the_mean_and_depend_on_the_seed_alone() -> None:
    f1 = arm(summary(), "igp")["f1"]
    assert 0 <= f1["low"] <= f1["value"] <= f1["high"] <= 1
    assert f1["low"] < f1["high"]
    assert summary() == summary()


@pytest.mark.parametrize("cuts", [[1], [2], [1, 2], [0, 0, 3]])
def test_the_summary_is_the_same_however_the_rows_are_cut(cuts: list[int]) -> None:
    bounds = [0, *cuts, len(ROWS)]
    parts = [part(ROWS[i:j]) for i, j in pairwise(bounds)]
    assert summarise(parts, arms=made.plain(DECLARED), seed=7, samples=200) == summary()


def test_the_arms_come_in_their_order_and_the_summary_is_json() -> None:
    metrics = summary()
    assert [one["arm"] for one in metrics["arms"]] == list(ARMS)
    assert metrics["questions"] == 3
    assert json.loads(json.dumps(metrics, allow_nan=False)) == metrics


@pytest.mark.parametrize("parts", [[], [part([])]])
def test_a_run_without_living_questions_has_an_empty_summary(parts: list[pa.Table]) -> None:
    empty = summarise(parts, arms=made.plain(DECLARED), seed=7, samples=200)
    assert empty == {"questions": 0, "arms": [], "probe": {}}


def test_f1_minus_controls_is_paired_with_the_arms_of_equal_size() -> None:
    controls = arm(summary(), "igp")["f1_minus_controls"]
    assert set(controls) == {"same_size", "random_same_size"}
    assert controls["same_size"]["value"] == pytest.approx(0.5)  # the controls score 0
    assert controls["same_size"]["n"] == 3
    assert arm(summary(), "retriever")["f1_minus_controls"] == {}


def test_a_run_without_probes_has_no_probe_and_no_refusals() -> None:
    arms = main_arms(POLICY.model_copy(update={"selector": "retriever"}))
    rows = [
        {
            "question_id": "q",
            "metrics": [metric(one.name, 0.5, 9, 1) for one in arms],
            "refused": None,
            "empty_golds": 0,
        }
    ]
    block = made.part(rows, ("question_id", "metrics", "refused", "empty_golds"))
    metrics = summarise([block], arms=made.plain(arms), seed=1, samples=100)
    assert metrics["probe"] == {}
    assert arm(metrics, "retriever")["nte"] == pytest.approx(1)


def test_wrong_answers_and_ndcg_are_means_over_the_questions_that_have_them() -> None:
    questions = [
        row("a", probe(0.5, [3], [1]), igp=metric("igp", 1.0, 9, 1, wrong=True, ndcg=0.25)),
        row("b", probe(0.5, [3], [1]), igp=metric("igp", 0.5, 9, 1, wrong=False, ndcg=1.0)),
        row("c", probe(0.5, [3], [1]), igp=metric("igp", 0.0, 9, 1, ndcg=0.5)),
        row("d", probe(0.5, [3], [1]), igp=metric("igp", 0.0, 9, 1, wrong=False)),
    ]
    igp = arm(summary(questions), "igp")
    assert igp["wrong"]["value"] == pytest.approx(1 / 3)
    assert (igp["wrong"]["n"], igp["wrong"]["undefined"]) == (3, 1)
    assert igp["ndcg"]["value"] == pytest.approx(1.75 / 3)
    assert (igp["ndcg"]["n"], igp["ndcg"]["undefined"]) == (3, 1)
    assert igp["ndcg_candidates"]["value"] is None
    # ranks of NDCG 1 3 2, of F1 3 2 1: rho = 1 - 6 (4 + 1 + 1) / (3 (9 - 1)) = -0.5
    assert igp["spearman_ndcg_f1"] == {"value": pytest.approx(-0.5), "n": 3}
    assert arm(summary(questions), "retriever")["wrong"]["value"] is None


def test_the_policy_under_test_is_the_middle_one_that_prunes_by_ig_at_the_largest_m() -> None:
    def named(name: str, **update: Any) -> Arm:
        return Arm(name, "policy", POLICY.model_copy(update=update), None, "retriever")

    def tested(*arms: Arm) -> str | None:
        plain = json.loads(json.dumps(made.plain(arms)))
        found = policy_under_test(plain)
        return None if found is None else str(found["arm"])

    low, middle, high = (named(f"ig {tp}", top_m=3) for tp in ("low", "mid", "high"))
    small, reranking = named("small", top_m=1), named("reranking", threshold=-math.inf)
    ordered, vetoed = named("o", top_m=5, order_by="adarank"), named("v", top_m=5, veto="adarank")
    qlm, replay = named("qlm", selector="qlm", top_m=5), named("replay", top_m=5, ig_max_tokens=4)
    retriever = named("retriever", selector="retriever", threshold=-math.inf)
    rest = (retriever, reranking, qlm, replay, ordered, vetoed)
    assert tested(*rest, small, low, middle, high) == "ig mid"
    assert tested(*rest, small) == "small"
    assert tested(retriever, reranking, qlm) == "qlm"
    assert tested(retriever, reranking) == "reranking"
    assert tested(retriever) is None


def test_variants_with_gates_do_not_shift_the_policy_under_test() -> None:
    given = ["data=sets"]  # the paths are not read
    shipped = load(EvaluateConfig, "conf/evaluate/small.yaml", given)
    found = policy_under_test([arm.plain() for arm in grid_arms(shipped.arms)])
    assert found is not None and found["arm"] == "ig 0.05 M5"
