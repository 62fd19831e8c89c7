"""Tests of pipeline.report.measured, seen through the summary: whose tokens, whose questions."""

import pytest

from pipeline.report.summary import columns, summarise
from pipeline.stages.arms import Arm
from tests.report import rows as made
from tests.report.rows import metric, probe
from tests.report.test_summary import COLUMNS, DECLARED, POLICY, ROWS, arm, part


def test_an_arm_pays_for_every_stage_that_it_cannot_do_without() -> None:
    names = (*COLUMNS, "sets", "score_tokens_qlm", "score_tokens_yes_no")
    arms = [
        Arm("greedy", "policy", POLICY.model_copy(update={"selector": "set_aware"}), None, "plain"),
        Arm("qlm", "policy", POLICY.model_copy(update={"selector": "qlm"}), None, "plain"),
        Arm("gated", "policy", POLICY.model_copy(update={"nu0_limit": 0.6}), None, "plain"),
        Arm("open", "policy", POLICY.model_copy(update={"nu0_limit": 0.5}), None, "plain"),
        Arm("plain", "policy", POLICY.model_copy(update={"selector": "retriever"}), None, "plain"),
    ]
    question = {
        "question_id": "q",
        "metrics": [metric(one.name, 1.0, 100, 1) for one in arms],
        "probes": probe(0.5, [30, 20], [4, 6]),
        "sets": {"tokens": 70},
        "score_tokens_qlm": 25,
        "score_tokens_yes_no": 1000,
        "empty_golds": 0,
    }
    metrics = summarise([made.part([question], names)], arms=made.plain(arms), seed=1, samples=100)
    paid = {one["arm"]: one["selection_tokens"] for one in metrics["arms"]}
    # NU(q) = 0.5 is below the gate of 0.6: only the first rollout, 30 + 4 tokens, is needed.
    assert paid == {"greedy": 60 + 70, "qlm": 25, "gated": 34, "open": 60, "plain": 0}
    assert arm(metrics, "qlm")["nte_with_probes"] == pytest.approx(100 / 125)


def test_a_stage_without_a_record_of_its_tokens_is_refused() -> None:
    arms = [Arm("qlm", "policy", POLICY.model_copy(update={"selector": "qlm"}), None, None)]
    rows = [{"question_id": "q", "metrics": [metric("qlm", 1.0, 9, 1)], "empty_golds": 0}]
    block = made.part(rows, ("question_id", "metrics", "refused", "empty_golds"))
    with pytest.raises(ValueError, match="stage 'score_qlm' left no tokens"):
        summarise([block], arms=made.plain(arms), seed=1, samples=100)


def test_an_arm_that_a_question_lacks_is_undefined_there() -> None:
    # The oracle takes the best of the candidates: without any it has no answer.
    arms = [Arm("oracle", "oracle"), Arm("no_evidence", "no_evidence")]
    rows = [
        {
            "question_id": "a",
            "metrics": [metric("oracle", 1.0, 50, 1), metric("no_evidence", 0, 9, 0)],
        },
        {"question_id": "b", "metrics": [metric("no_evidence", 0.0, 9, 0)]},
    ]
    block = made.part(
        [one | {"empty_golds": 0} for one in rows],
        ("question_id", "metrics", "refused", "empty_golds"),
    )
    oracle = arm(summarise([block], arms=made.plain(arms), seed=1, samples=100), "oracle")
    assert (oracle["f1"]["value"], oracle["f1"]["n"], oracle["f1"]["undefined"]) == (1.0, 1, 1)
    assert (oracle["tk"], oracle["nte"], oracle["f1_minus_baseline"]) == (50, None, None)


def test_an_arm_that_the_manifest_does_not_know_is_refused() -> None:
    with pytest.raises(ValueError, match="arm 'closed_book'; the run's arms: igp"):
        summarise([part(ROWS)], arms=made.plain(DECLARED[:-1]), seed=7, samples=200)


def test_the_columns_of_a_run_are_those_that_it_has() -> None:
    assert columns(["question_id", "metrics", "candidates", "score_qlm", "score_tokens_qlm"]) == [
        *("question_id", "metrics", "refused", "empty_golds", "score_tokens_qlm")
    ]
    assert "sets.tokens" in columns(["sets", "probes"])
    assert "probes.nu0" in columns(["sets", "probes"])
