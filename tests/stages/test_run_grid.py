"""Tests of a whole evaluation in one process: every selector over the examples, the fake models."""

import math
from pathlib import Path
from typing import Any

import pytest

from pipeline.core.admission import admit, admit_rounds
from pipeline.core.blend import Blend, to_json
from pipeline.runs.storage import Storage
from pipeline.stages import build
from pipeline.stages.plan import Plan, counted
from pipeline.stages.select import is_single
from tests.stages.plans import IDS, Counts, N, config, finished, run

BLEND = Blend(
    ("qlm_z", "coverage", "neg_nu_gap"), (1.0, 0.5, 0.5), 0.0, (0.0, 0.5, 0.0), (1.0, 1.0, 1.0)
)
SCORE_STAGES = [
    *("score_coverage", "score_bi_encoder", "score_cross_encoder", "score_qlm", "score_yes_no"),
    "score_answer_pmi",
]


def grid(folder: Path) -> dict[str, Any]:
    """Every selector, and IG at several thresholds, gated, replayed, and with its set-aware kin."""
    path = folder / "blend.json"
    path.write_text(to_json(BLEND), encoding="utf-8")
    entries: list[dict[str, Any]] = [
        {"selector": "ig", "thresholds": [-math.inf, 0.0, 0.05, 0.2]},
        {"selector": "ig", "label": "ig-K8-MT4", "ig_top_k": 8, "ig_max_tokens": 4},
        {"selector": "ig", "label": "ig-gated", "thresholds": [0.0], "nu0_limit": 0.3},
        {"selector": "ig", "label": "ig-passing", "thresholds": [0.0], "pass_rate": [0.3, 0.8]},
        {"selector": "ig", "label": "ig-unlike", "duplicate_penalty": 0.2},
        {"selector": "set_aware", "thresholds": [0.0, 0.1], "top_m": [2]},
        {"selector": "qlm_gain", "thresholds": [0.0, 5.0]},
        {"selector": "blend", "blend": str(path), "thresholds": [0.0]},
    ]
    plain = ("retriever", "coverage", "qlm", "yes_no", "answer_pmi", "answer_prior")
    entries += [{"selector": name} for name in (*plain, "bi_encoder", "cross_encoder")]
    return {"top_m": [1, 3], "empty_context": "top1", "grid": entries}


@pytest.fixture(scope="module")
def evaluation(tmp_path_factory: pytest.TempPathFactory) -> tuple[Plan, Counts, list[Any], Any]:
    """The plan, what was counted, the finished rows and the arms that were declared."""
    folder = tmp_path_factory.mktemp("grid")
    cfg = config(
        folder,
        arms=grid(folder),
        probe={"trace": True},
        scorers={
            "bi_encoder": {"engine": "fake", "model": "fake"},
            "cross_encoder": {"engine": "fake", "model": "fake"},
        },
    )
    plan, counts = run(cfg)
    return plan, counts, finished(plan).to_pylist(), build.arms_of(cfg)


def test_every_question_has_every_arm_once(evaluation: Any) -> None:
    plan, _, rows, arms = evaluation
    assert [row["question_id"] for row in rows] == IDS
    assert not Storage(plan.root).exists(f"{plan.run_folder}/dead_letters")
    declared = [arm.name for arm in arms]
    # Retriever 3; ig 2 + 3 x 6, replayed 2, gated 6 + 6, unlike 2; set-aware 6, qlm_gain 12,
    # blend 6; seven scorers without a threshold 14; the oracle, no evidence, closed book.
    assert len(set(declared)) == len(declared) == 80
    for row in rows:
        assert [metric["arm"] for metric in row["metrics"]] == declared
        chosen = [arm["arm"] for arm in row["arms"]]
        assert len(set(chosen)) == len(chosen)
        assert {*chosen} - {*declared} == {f"single[{i}]" for i in range(N)}


def test_every_prompt_is_answered_once_and_no_answer_is_nobody_s(evaluation: Any) -> None:
    _, counts, rows, _ = evaluation
    every: list[str] = []
    for row in rows:
        answered = [answer["prompt_id"] for answer in row["answers"]]
        assert len(set(answered)) == len(answered)
        assert set(answered) == {arm["prompt_id"] for arm in row["arms"]}
        every += answered
    sums = counts.sums["answer"]
    assert sums["prompts"] == sums["generated"] == len(set(every))


def test_the_arms_of_ig_are_what_admission_says_of_the_stored_gains(evaluation: Any) -> None:
    _, _, rows, _ = evaluation
    for row in rows:
        arms = {arm["arm"]: [e["position"] for e in arm["evidence"]] for arm in row["arms"]}
        for threshold in (0.0, 0.05, 0.2):
            admitted = admit(row["gains"], threshold=threshold)
            assert arms[f"ig {threshold:g} M3"] == (admitted[:3] or [0])  # top1 where none is
        assert arms["ig M3"] == admit(row["gains"], threshold=-math.inf)[:3]
        rounds, gains = row["sets"]["positions"], row["sets"]["gains"]
        admitted = admit_rounds(rounds, gains, threshold=0.1)
        assert arms["set_aware 0.1 M2"] == (admitted[:2] or [0])
        by_qlm = admit(row["score_qlm_gain"], threshold=5.0)
        assert arms["qlm_gain 5 M3"] == (by_qlm[:3] or [0])


def test_the_selectors_disagree_and_thresholds_prune(evaluation: Any) -> None:
    _, _, rows, arms = evaluation
    orders: dict[str, list[Any]] = {}
    sizes: dict[str, int] = {}
    for row in rows:
        for arm in row["arms"]:
            if not is_single(arm["arm"]):
                orders.setdefault(arm["arm"], []).append(arm["order"])
                sizes[arm["arm"]] = sizes.get(arm["arm"], 0) + arm["admitted"]
    selectors = {arm.policy.selector for arm in arms if arm.kind == "policy"}
    one_each = {s: next(n for n in orders if n.split()[0] == s) for s in selectors}
    # qlm and qlm_gain differ by log p(q), the same for every passage: one order, two thresholds.
    assert orders["qlm M3"] == orders["qlm_gain 0 M3"]
    assert len({repr(orders[name]) for name in one_each.values()}) == len(selectors) - 1 == 11
    assert sizes["ig M3"] > sizes["ig 0 M3"] > sizes["ig 0.05 M3"] > sizes["ig 0.2 M3"] > 0
    for label in ("ig-gated", "ig-passing"):
        assert sizes[f"{label} 0 M3"] != sizes["ig 0 M3"]
    assert repr(orders["ig-K8-MT4 M3"]) != repr(orders["ig M3"])


def test_the_oracle_is_no_worse_than_any_single_passage(evaluation: Any) -> None:
    _, _, rows, _ = evaluation
    for row in rows:
        f1 = {metric["arm"]: metric["f1"] for metric in row["metrics"]}
        assert f1["oracle"] >= f1["retriever M1"]


def test_every_model_s_work_is_on_the_ledger(evaluation: Any) -> None:
    plan, counts, rows, arms = evaluation
    ledger = counted(plan, Storage(plan.root))
    assert list(ledger) == [*SCORE_STAGES[:5], "probe", "probe_sets", SCORE_STAGES[5], "answer"]
    assert ledger["probe"]["rollouts"] == 50 * (N + 1)
    assert ledger["probe_sets"]["rollouts"] == sum(sum(r["sets"]["rollouts"]) for r in rows) > 0
    for stage in SCORE_STAGES:
        tokens = f"score_tokens_{stage.removeprefix('score_')}"
        read = sum(row[tokens] for row in rows)
        assert ledger[stage].get("tokens", 0) == read
        assert (read > 0) == (stage != "score_coverage")
    paid = {stage for arm in arms for stage in arm.stages}
    assert paid == set(ledger) - {"answer"}
    assert set(counts.sums) == {*ledger, "select", "evaluate"}
