"""Tests of pipeline.report.measured, seen through the summary: whose tokens, whose questions."""

import math

import pytest

from pipeline.report import measured
from pipeline.report.summary import columns, summarise
from pipeline.stages.arms import Arm
from tests.report import rows as made
from tests.report.rows import metric, probe
from tests.report.test_summary import ARMS, COLUMNS, DECLARED, POLICY, ROWS, arm, part, row


def test_an_arm_pays_for_every_stage_that_it_cannot_do_without() -> None:
    names = (*COLUMNS, "sets", "score_tokens_qlm", "score_tokens_yes_no")
    first = {"selector": "qlm", "nu0_limit": 0.1}
    arms = [
        Arm("greedy", "policy", POLICY.model_copy(update={"selector": "set_aware"}), None, "plain"),
        Arm("qlm", "policy", POLICY.model_copy(update={"selector": "qlm"}), None, "plain"),
        Arm("gated", "policy", POLICY.model_copy(update={"nu0_limit": 0.6}), None, "plain"),
        Arm("open", "policy", POLICY.model_copy(update={"nu0_limit": 0.5}), None, "plain"),
        Arm("first", "policy", POLICY.model_copy(update=first), None, "plain"),
        Arm("plain", "policy", POLICY.model_copy(update={"selector": "retriever"}), None, "plain"),
    ]
    question = {
        "question_id": "q",
        "metrics": [metric(one.name, 1.0, 100, 1, certain=one.name == "gated") for one in arms],
        "probes": probe(0.5, [30, 20], [4, 6]),
        "sets": {"gains": [0.5, 0.25], "tokens": [0, 70]},
        "score_tokens_qlm": 25,
        "score_tokens_yes_no": 1000,
        "empty_golds": 0,
    }
    metrics = summarise([made.part([question], names)], arms=made.plain(arms), seed=1, samples=100)
    paid = {one["arm"]: one["selection_tokens"] for one in metrics["arms"]}
    # NU(q) = 0.5 is below the gate of 0.6: only the first rollout, 30 + 4 tokens, is needed. So it
    # is, whatever NU(q), where nothing but the gate reads the probes.
    assert paid == {
        **{"greedy": 60 + 70, "qlm": 25, "gated": 34, "open": 60},
        **{"first": 25 + 34, "plain": 0},
    }
    assert arm(metrics, "qlm")["nte_with_probes"] == pytest.approx(100 / 125)


def test_a_set_aware_arm_pays_for_the_rounds_of_its_own_m_and_tp() -> None:
    def greedy(name: str, top_m: int, threshold: float, **gate: float) -> Arm:
        update = {"selector": "set_aware", "top_m": top_m, "threshold": threshold, **gate}
        return Arm(name, "policy", POLICY.model_copy(update=update), None, None)

    arms = [
        greedy("all", 4, -math.inf),
        greedy("two", 2, -math.inf),
        greedy("one", 1, 0.0),
        greedy("strict", 4, 0.3),  # the round of gain 1/4 tells it to stop
        greedy("strictest", 4, 0.6),
        greedy("gated", 4, -math.inf, nu0_limit=0.9),
    ]
    sets = [
        {"gains": [0.5, 0.25, 0.125], "tokens": [0, 70, 7]},
        {"gains": [], "tokens": []},
        {"gains": [0.25], "tokens": [0]},
    ]
    rows = [
        {
            "question_id": f"q{i}",
            "metrics": [metric(one.name, 1, 9, 1, certain=one.name == "gated") for one in arms],
            "probes": probe(0.5, [30, 20], [4, 6]),
            "sets": found,
            "empty_golds": 0,
        }
        for i, found in enumerate(sets)
    ]
    for parts in (rows, rows[::-1]):
        blocks = [made.part([one], (*COLUMNS, "sets")) for one in parts]
        metrics = summarise(blocks, arms=made.plain(arms), seed=1, samples=100)
        paid = {one["arm"]: 3 * (one["selection_tokens"] - 60) for one in metrics["arms"]}
        assert paid == pytest.approx(
            {"all": 77, "two": 70, "one": 0, "strict": 70, "strictest": 0, "gated": 3 * (34 - 60)}
        )


def test_a_gate_s_saving_is_the_share_of_rollouts_and_its_price_is_the_f1_beside_the_open_arm() -> (
    None
):
    policy = {"nu0_limit": 0.6, "fallback": "qlm"}
    arms = [
        Arm("ig", "policy", POLICY, None, None),
        Arm("gated", "policy", POLICY.model_copy(update=policy), None, None),
        Arm("copy", "same_size", POLICY.model_copy(update=policy), "gated", None),
        Arm("wider", "policy", POLICY.model_copy(update={**policy, "top_m": 9}), None, None),
        Arm("first", "policy", POLICY.model_copy(update={**policy, "selector": "qlm"})),
    ]
    questions = [(3, True, {"gated": 0.5}), (1, False, dict[str, float]())]
    rows = [
        {
            "question_id": f"q{i}",
            "metrics": [metric(a.name, f1.get(a.name, 1), 9, 1, certain=certain) for a in arms],
            "probes": probe(0.5, [1] * (1 + n), [1] * (1 + n), nu=[0.5] * n),
            "score_tokens_qlm": 0,
            "empty_golds": 0,
        }
        for i, (n, certain, f1) in enumerate(questions)
    ]
    block = made.part(rows, (*COLUMNS, "score_tokens_qlm"))
    metrics = summarise([block], arms=made.plain(arms), seed=1, samples=100)
    saved = {one["arm"]: one["probes_saved"] for one in metrics["arms"]}
    assert saved == {"ig": None, "gated": 0.75, "copy": 0.75, "wider": 0.75, "first": None}
    price = {one["arm"]: one["f1_minus_ungated"] for one in metrics["arms"]}
    assert price["gated"]["value"] == pytest.approx(-0.25)
    assert [name for name, found in price.items() if found is not None] == ["gated"]


def test_questions_whose_probes_no_arm_needed_count_for_nothing() -> None:
    arms = [Arm("plain", "policy", POLICY.model_copy(update={"selector": "retriever"}))]
    question = {"metrics": [metric("plain", 1.0, 9, 1)], "empty_golds": 0}
    rows = [
        {"question_id": "q", **question, "probes": probe(0.5, [30], [4]), "refused": False},
        {"question_id": "r", **question, "probes": None, "refused": None},
    ]
    block = made.part(rows, COLUMNS)
    found = summarise([block], arms=made.plain(arms), seed=1, samples=100)["probe"]
    assert (found["rollouts"], found["mean_nu0"], found["refusal_share"]) == (1, 0.5, 0.0)


def test_rollouts_that_were_ended_early_are_counted_among_the_passages() -> None:
    cut = [
        {"early_stopped": [True, False]},
        {"early_stopped": [False, False]},
        {"early_stopped": [True, True]},
    ]
    rows = [
        {**one, "probes": {**one["probes"], "nu": [None, 0.5]}, **more}
        for one, more in zip(ROWS, cut, strict=True)
    ]
    block = made.part(rows, (*COLUMNS, "early_stopped"))
    found = summarise([block], arms=made.plain(DECLARED), seed=1, samples=100)["probe"]
    assert found["early_stopped_share"] == 3 / 6
    assert "early_stopped" in columns(["probes", "early_stopped"])
    whole = summarise([part(ROWS)], arms=made.plain(DECLARED), seed=1, samples=100)["probe"]
    assert "early_stopped_share" not in whole


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
    assert {"sets.gains", "sets.tokens"} <= set(columns(["sets", "probes"]))
    assert "probes.nu0" in columns(["sets", "probes"])


def test_a_field_is_held_in_the_smallest_type_and_comes_back_exactly() -> None:
    # 1/3 is no float32, 2049 is no float16; 0.5 and the flags are, and so is what nobody judged.
    rows = [
        row("q0", probe(0.5, [3, 5], [1, 2]), igp=metric("igp", 0.5, 10, 1, refusal=True)),
        row("q1", probe(0.5, [3, 5], [1, 2]), igp=metric("igp", 1 / 3, 2049, 2)),
    ]
    found = measured.read([part(rows[:1]), part(rows[1:])], ARMS)
    assert found is not None
    assert found.of("igp", "f1").tolist() == [0.5, 1 / 3]
    assert found.of("igp", "prompt_tokens").tolist() == [10, 2049]
    assert found.of("igp", "refusal").tolist() == [1, 0]
    held = {field: values.dtype.name for field, values in found.values.items()}
    assert held["f1"] == "float64"
    assert held["prompt_tokens"] == "float32"
    assert held["refusal"] == held["ndcg"] == "float16"
