"""Tests of pipeline.report.task_scores: the run's own numbers of an ALCE task."""

import json
from pathlib import Path

import pytest

from pipeline.report import task_scores
from pipeline.runs.storage import Storage
from tests.report.test_alce import config
from tests.stages.plans import finished, prepared, run


def test_a_runs_metrics_name_the_task_its_judge_and_every_arm(tmp_path: Path) -> None:
    cfg = config(tmp_path, "eli5")
    plan, counts = run(cfg)
    made = task_scores.of_plan(plan, cfg, Storage(plan.root))
    assert json.loads(json.dumps(made)) == made  # no NaN is left
    task = made["task"]
    assert (task["name"], task["nli"]) == ("eli5", "fake")
    rows = {row["arm"]: row for row in task["arms"]}
    recalls = [
        metric["claim_recall"]
        for row in finished(plan).to_pylist()
        for metric in row["metrics_eli5"]
        if metric["arm"] == "retriever M3"
    ]
    mean = rows["retriever M3"]["claim_recall[fake]"]
    assert mean["value"] == pytest.approx(sum(recalls[:2]) / 2)
    assert (mean["n"], mean["undefined"]) == (2, 1)  # one question has no claims
    lines = list(task_scores.lines(made))
    assert len(lines) == len(rows)
    assert any(line.startswith("eli5, retriever M3: claim_recall[fake] ") for line in lines)
    assert counts.sums["entail"]["judged"] > 0
    # The same run again, with another cut: every verdict is taken up that its answers share.
    again = cfg.evaluation.model_copy(update={"first_line": False})
    _, more = run(cfg.model_copy(update={"evaluation": again}))
    assert more.sums["entail"]["judged"] == 0 and "answer" not in more.sums


def test_short_answers_have_no_such_numbers(tmp_path: Path) -> None:
    cfg = config(tmp_path, "asqa")
    short = cfg.model_copy(
        update={"answer": cfg.answer.model_copy(update={"task": "short_answer"})}
    )
    plan = prepared(short)
    assert "evaluate_task" not in {step.stage.name for step in plan.steps}
    assert task_scores.of_plan(plan, short, Storage(plan.root)) == {}
    assert list(task_scores.lines({})) == []
