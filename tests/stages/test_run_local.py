"""Tests of a whole run in one process: 50 example questions, given candidates, the fake model."""

import json
from collections.abc import Mapping
from pathlib import Path

import pyarrow as pa
import pytest

from pipeline.config import OfflineIgpConfig
from pipeline.report import summary
from pipeline.runs import layout
from pipeline.runs.storage import Storage
from pipeline.stages import plan as plans
from pipeline.stages.plan import Plan, run_local
from pipeline.stages.select import ARMS
from tests.stages.plans import EXAMPLES, N, config, prepared

IDS = [
    json.loads(line)["id"]
    for line in (EXAMPLES / "questions.jsonl").read_text(encoding="utf-8").splitlines()
]


class Counts:
    """What the stages counted, summed by stage and name."""

    def __init__(self) -> None:
        self.sums: dict[str, dict[str, float]] = {}

    def __call__(self, stage: str, counts: Mapping[str, float]) -> None:
        sums = self.sums.setdefault(stage, {})
        for name, value in counts.items():
            sums[name] = sums.get(name, 0) + value


def finished(plan: Plan) -> pa.Table:
    """All finished rows of a run."""
    storage = Storage(plan.root)
    columns = ["question_id", "question", "golden_answers", "metadata", "candidates"]
    added = [name for step in plan.steps for name in step.stage.adds.names]
    return pa.concat_tables(plans.contexts(plan, storage, [*columns, *added]))


def run(cfg: OfflineIgpConfig) -> tuple[Plan, Counts]:
    """A run from the start; its plan and what was counted."""
    plan, counts = prepared(cfg), Counts()
    run_local(plan, cfg, counts)
    return plan, counts


def files(plan: Plan) -> dict[str, tuple[int, bytes]]:
    """Every file below the root with its time and contents."""
    paths = (path for path in Path(plan.root).rglob("*") if path.is_file())
    return {str(path): (path.stat().st_mtime_ns, path.read_bytes()) for path in paths}


def test_every_question_is_finished_with_all_columns(tmp_path: Path) -> None:
    plan, counts = run(config(tmp_path))
    rows = finished(plan).to_pylist()
    assert [row["question_id"] for row in rows] == IDS
    assert plan.missing(Storage(plan.root))[f"{plan.run_folder}/contexts"] == set()
    for row in rows:
        assert len(row["candidates"]) == len(row["gains"]) == len(row["probes"]["nu"]) == N
        assert [arm["arm"] for arm in row["arms"]] == list(ARMS)
        assert [metric["arm"] for metric in row["metrics"]] == list(ARMS)
        prompts = {arm["prompt_id"] for arm in row["arms"]}
        assert {answer["prompt_id"] for answer in row["answers"]} == prompts
        assert all(metric["prompt_tokens"] > 0 for metric in row["metrics"])
    assert not Storage(plan.root).exists(f"{plan.run_folder}/dead_letters")
    assert {name: sums["rows"] for name, sums in counts.sums.items()} == dict.fromkeys(
        ("probe", "select", "answer", "evaluate"), 50
    )
    assert counts.sums["probe"]["rollouts"] == 50 * (N + 1)
    assert counts.sums["answer"]["prompts"] == sum(len(row["answers"]) for row in rows)


def test_the_shard_size_changes_no_row(tmp_path: Path) -> None:
    one, _ = run(config(tmp_path, run={"rows_per_shard": 50}))
    many, _ = run(config(tmp_path, run={"rows_per_shard": 7}))
    assert one.run_folder != many.run_folder
    assert finished(one).combine_chunks().equals(finished(many).combine_chunks())


def test_a_second_run_does_nothing(tmp_path: Path) -> None:
    plan, _ = run(config(tmp_path))
    before = files(plan)
    again, counts = run(config(tmp_path))
    assert again.run_folder == plan.run_folder
    assert counts.sums == {}
    assert files(plan) == before


def test_a_lost_part_of_the_results_is_restored_from_the_stages(tmp_path: Path) -> None:
    plan, _ = run(config(tmp_path))
    storage, before = Storage(plan.root), finished(plan)
    storage.delete(layout.part(f"{plan.run_folder}/contexts", 2))
    assert len(finished(plan)) == 50 - 13
    _, counts = run(config(tmp_path))
    assert finished(plan).equals(before)
    assert set(counts.sums) == {"select", "evaluate"}
    assert counts.sums["evaluate"]["rows"] == 13


def test_a_lost_part_of_a_stage_is_computed_again_for_its_shard_alone(tmp_path: Path) -> None:
    plan, _ = run(config(tmp_path))
    storage, before = Storage(plan.root), finished(plan)
    probed = layout.part(plan.steps[0].folder, 1)
    for path in (probed, layout.part(f"{plan.run_folder}/contexts", 1)):
        storage.delete(path)
    _, counts = run(config(tmp_path))
    assert finished(plan).equals(before)
    assert counts.sums["probe"]["rollouts"] == 13 * (N + 1)
    assert storage.exists(probed)


def test_another_threshold_runs_no_rollout(tmp_path: Path) -> None:
    first, _ = run(config(tmp_path))
    second, counts = run(config(tmp_path, selection={"threshold": 0.2}))
    assert "probe" not in counts.sums
    assert second.run_folder != first.run_folder
    assert second.steps[0].folder == first.steps[0].folder
    one, other = finished(first), finished(second)
    assert one["probes"].equals(other["probes"])
    assert not one["arms"].equals(other["arms"])


def test_a_question_too_long_for_the_window_dies_alone(tmp_path: Path) -> None:
    lines = (EXAMPLES / "questions.jsonl").read_text(encoding="utf-8").splitlines()
    long = json.loads(lines[3]) | {"question": "Why? " * 500}
    questions = tmp_path / "questions.jsonl"
    questions.write_text("\n".join([*lines[:3], json.dumps(long), *lines[4:], "oops"]))
    cfg = config(
        tmp_path,
        input={"questions": str(questions), "on_bad_row": "dead_letter"},
        generator={"max_model_len": 500},
    )
    plan, counts = run(cfg)
    assert finished(plan)["question_id"].to_pylist() == [i for i in IDS if i != long["id"]]
    storage = Storage(plan.root)
    letters = [
        letter
        for shard in (0, 3)
        for letter in storage.read_table(
            layout.part(f"{plan.run_folder}/dead_letters", shard)
        ).to_pylist()
    ]
    assert letters[0] == {
        "question_id": long["id"],
        "stage": "probe",
        "reason": "rollout without evidence: prompt of 502 tokens and 8 new ones exceed the "
        "window of 500 tokens",
    }
    assert letters[1]["stage"] == "input" and letters[1]["question_id"] == "line 51"
    assert len(letters) == 2
    assert counts.sums["probe"]["dead"] == 1


def test_under_the_free_rule_the_admissions_are_the_same_with_fewer_rollouts(
    tmp_path: Path,
) -> None:
    selection = {"threshold": 0.4}
    full, paid = run(config(tmp_path, selection=selection))
    free, spared = run(config(tmp_path, selection=selection, probe={"free_rule_threshold": 0.4}))
    assert spared.sums["probe"]["rollouts"] < paid.sums["probe"]["rollouts"]
    for one, other in zip(finished(full).to_pylist(), finished(free).to_pylist(), strict=True):
        assert one["arms"] == other["arms"] and one["answers"] == other["answers"]


def test_the_summary_of_a_run_counts_every_question(tmp_path: Path) -> None:
    plan, _ = run(config(tmp_path))
    parts = plans.contexts(plan, Storage(plan.root), summary.COLUMNS)
    metrics = summary.summarise(parts, seed=1, samples=100)
    assert metrics["questions"] == 50
    assert [arm["n"] for arm in metrics["arms"]] == [50] * len(ARMS)
    rows = finished(plan).to_pylist()
    mean = sum(row["metrics"][0]["f1"] for row in rows) / 50
    assert metrics["arms"][0]["f1"]["value"] == pytest.approx(mean)
