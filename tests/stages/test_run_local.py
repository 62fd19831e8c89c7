"""Tests of a whole run in one process: 50 example questions, given candidates, the fake model."""

import json
from collections.abc import Sequence
from pathlib import Path

import pytest

from pipeline.config import OfflineIgpConfig
from pipeline.engines.base import Completion
from pipeline.engines.fake import FakeGenerator
from pipeline.engines.table import GENERATORS
from pipeline.report import summary
from pipeline.runs import layout
from pipeline.runs.storage import Storage
from pipeline.stages import build
from pipeline.stages import plan as plans
from pipeline.stages.plan import Plan, counted, run_local
from tests.stages.plans import EXAMPLES, IDS, N, config, finished, prepared, run, written

ARMS = [
    *("igp", "retriever", "retriever_top1", "retriever_same_size", "random_same_size"),
    *("no_evidence", "closed_book"),
]


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
        assert [arm["arm"] for arm in row["arms"]] == ARMS
        assert [metric["arm"] for metric in row["metrics"]] == ARMS
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
    assert written(one) == written(many)


def test_a_second_run_does_nothing(tmp_path: Path) -> None:
    plan, _ = run(config(tmp_path))
    before = files(plan)
    again, counts = run(config(tmp_path))
    assert again.run_folder == plan.run_folder
    assert counts.sums == {}
    assert files(plan) == before


def test_a_lost_part_of_the_results_is_restored_from_the_stages(tmp_path: Path) -> None:
    plan, _ = run(config(tmp_path))
    storage, before = Storage(plan.root), written(plan)
    storage.delete(layout.part(f"{plan.run_folder}/contexts", 2))
    assert len(finished(plan)) == 50 - 13
    _, counts = run(config(tmp_path))
    assert written(plan) == before
    assert set(counts.sums) == {"select", "evaluate"}
    assert counts.sums["evaluate"]["rows"] == 13


def test_a_lost_part_of_a_stage_is_computed_again_for_its_shard_alone(tmp_path: Path) -> None:
    plan, _ = run(config(tmp_path))
    storage, before = Storage(plan.root), written(plan)
    probed = layout.part(plan.steps[0].folder, 1)
    for path in (probed, layout.part(f"{plan.run_folder}/contexts", 1)):
        storage.delete(path)
    _, counts = run(config(tmp_path))
    assert written(plan) == before
    assert counts.sums["probe"]["rollouts"] == 13 * (N + 1)
    assert storage.exists(probed)


def test_another_threshold_runs_no_rollout(tmp_path: Path) -> None:
    first, _ = run(config(tmp_path))
    second, counts = run(config(tmp_path, selection={"threshold": 0.2}))
    assert "probe" not in counts.sums
    assert second.run_folder != first.run_folder
    assert second.steps[0].folder == first.steps[0].folder
    # The prompts that both policies lead to were answered once.
    new, every = counts.sums["answer"]["generated"], counts.sums["answer"]["prompts"]
    assert 0 < new < every / 2
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
        unordered = [[arm | {"order": None} for arm in row["arms"]] for row in (one, other)]
        assert unordered[0] == unordered[1] and one["answers"] == other["answers"]
        # What was not measured has no order: its NDCG is undefined, not the retriever's.
        assert (other["arms"][0]["order"] is None) == other["probes"]["free_rule"]


def test_with_rollouts_cut_short_every_arm_has_the_same_evidence_for_fewer_tokens(
    tmp_path: Path,
) -> None:
    grid = {
        "top_m": [1, 3],
        "token_guards": [None, 12],
        "empty_context": "top1",
        "grid": [
            {"selector": "ig", "thresholds": [0.0, 0.1, 0.3]},
            {
                "selector": "ig",
                "label": "penalised",
                "thresholds": [0.05],
                "duplicate_penalty": 0.1,
            },
            {"selector": "ig", "label": "gated", "thresholds": [0.1], "pass_rate": [0.2, 0.8]},
            {"selector": "ig", "label": "unsure", "thresholds": [0.1], "nu0_limit": 0.3},
            {"selector": "coverage", "thresholds": [0.2], "on_refusal": "fallback"},
        ],
    }
    made = []
    for name, probe in (("whole", {}), ("cut", {"early_stop_threshold": 0.0})):
        (tmp_path / name).mkdir()
        made.append(run(config(tmp_path / name, arms=grid, probe=probe)))
    (whole, paid), (cut, spared) = made
    assert spared.sums["probe"]["early_stopped"] > 20
    assert spared.sums["probe"]["tokens"] < paid.sums["probe"]["tokens"]
    for one, other in zip(finished(whole).to_pylist(), finished(cut).to_pylist(), strict=True):
        assert len(one["arms"]) > 20
        for arm, same in zip(one["arms"], other["arms"], strict=True):
            assert same["order"] in (None, arm["order"])
            assert same | {"order": None} == arm | {"order": None}
        assert one["answers"] == other["answers"]
        measured = zip(one["gains"], other["gains"], other["early_stopped"], strict=True)
        free = other["probes"]["free_rule"]
        assert all(now == (None if stopped or free else gain) for gain, now, stopped in measured)


def test_the_summary_of_a_run_counts_every_question(tmp_path: Path) -> None:
    cfg = config(tmp_path)
    plan, _ = run(cfg)
    parts = plans.contexts(plan, Storage(plan.root), summary.columns(plan.columns))
    arms = [arm.plain() for arm in build.arms_of(cfg)]
    metrics = summary.summarise(parts, arms=arms, seed=1, samples=100)
    assert metrics["questions"] == 50
    assert [arm["n"] for arm in metrics["arms"]] == [50] * len(ARMS)
    rows = finished(plan).to_pylist()
    mean = sum(row["metrics"][0]["f1"] for row in rows) / 50
    assert metrics["arms"][0]["f1"]["value"] == pytest.approx(mean)


@pytest.fixture
def counting(monkeypatch: pytest.MonkeyPatch) -> list[tuple[int, ...]]:
    """Every prompt that the fake engine is asked to complete from here on."""
    asked: list[tuple[int, ...]] = []

    class Counting(FakeGenerator):
        async def complete(self, prompt_ids: Sequence[int], *, max_tokens: int) -> Completion:
            asked.append(tuple(prompt_ids))
            return await super().complete(prompt_ids, max_tokens=max_tokens)

    monkeypatch.setitem(GENERATORS, "fake", Counting)
    return asked


def test_plans_of_one_input_and_model_answer_every_prompt_once_between_them(
    tmp_path: Path, counting: list[tuple[int, ...]]
) -> None:
    def sweep(*thresholds: float) -> tuple[Plan, dict[str, float]]:
        entry = {"selector": "ig", "thresholds": thresholds}
        arms = {"top_m": [1, 2], "empty_context": "frame", "grid": [entry]}
        plan, counts = run(config(tmp_path, arms=arms))
        return plan, counts.sums["answer"]

    plan, first = sweep(0.1)
    assert len(counting) == first["generated"] == first["prompts"]
    other, second = sweep(0.0, 0.1)
    prompts = {a["prompt_id"] for row in finished(other)["answers"].to_pylist() for a in row}
    known = {a["prompt_id"] for row in finished(plan)["answers"].to_pylist() for a in row}
    assert second["prompts"] == len(prompts)
    assert second["generated"] == len(prompts - known) > 0
    assert len(counting) == len(set(counting)) == len(prompts | known)
    _, third = sweep(0.05)  # between the two: prefixes that are answered already
    assert (third["generated"], third["tokens"]) == (0, 0)
    assert len(counting) == len(prompts | known)


def test_answers_that_were_taken_up_are_those_of_a_run_from_the_start(tmp_path: Path) -> None:
    settings = {"selection": {"threshold": 0.1}}
    for folder in ("alone", "after"):
        (tmp_path / folder).mkdir()
    alone, _ = run(config(tmp_path / "alone", **settings))
    run(config(tmp_path / "after"))
    after, counts = run(config(tmp_path / "after", **settings))
    assert counts.sums["answer"]["generated"] < counts.sums["answer"]["prompts"]
    assert written(alone) == written(after)


def test_another_model_s_answers_are_not_taken_up(tmp_path: Path) -> None:
    run(config(tmp_path))
    _, counts = run(config(tmp_path, answer={"max_tokens": 5}))
    assert counts.sums["answer"]["generated"] == counts.sums["answer"]["prompts"]


def test_the_ledger_holds_what_was_counted_when_the_parts_were_made(tmp_path: Path) -> None:
    plan, counts = run(config(tmp_path))
    ledger = counted(plan, Storage(plan.root))
    assert ledger == {name: counts.sums[name] for name in ("probe", "answer")}
    other = prepared(config(tmp_path, selection={"threshold": 0.2}))
    run_local(other, config(tmp_path, selection={"threshold": 0.2}))
    assert counted(other, Storage(other.root))["probe"] == ledger["probe"]


def with_long_question(folder: Path, *, at: int, words: int) -> tuple[OfflineIgpConfig, str]:
    """A config whose question at a line has so many words, and whose last line is malformed."""
    lines = (EXAMPLES / "questions.jsonl").read_text(encoding="utf-8").splitlines()
    long = json.loads(lines[at]) | {"question": " ".join(["Why?"] * words)}
    questions = folder / "questions.jsonl"
    questions.write_text("\n".join([*lines[:at], json.dumps(long), *lines[at + 1 :], "oops"]))
    given = {"questions": str(questions), "on_bad_row": "dead_letter"}
    arms = {
        "top_m": [2],
        "empty_context": "frame",
        "grid": [{"selector": "ig", "thresholds": [0.0]}, {"selector": "qlm"}],
    }
    # The generator's window holds the question, that of the likelihood's model does not.
    scorers = {"likelihood": {"max_model_len": 800}, "also": ["coverage"]}
    return config(folder, input=given, arms=arms, scorers=scorers), str(long["id"])


def test_a_row_that_one_scorer_refuses_keeps_what_the_others_measured(tmp_path: Path) -> None:
    cfg, long = with_long_question(tmp_path, at=3, words=790)
    plan, counts = run(cfg)
    assert finished(plan)["question_id"].to_pylist() == [i for i in IDS if i != long]
    storage = Storage(plan.root)
    letters = {
        letter["question_id"]: letter["stage"]
        for shard in (0, 3)
        for letter in storage.read_table(
            layout.part(f"{plan.run_folder}/dead_letters", shard)
        ).to_pylist()
    }
    assert letters == {long: "score_qlm", "line 51": "input"}
    parts = {
        step.stage.name: storage.read_table(layout.part(step.folder, 0)).to_pylist()[3]
        for step in plan.steps
        if step.stage.durable
    }
    assert parts["score_qlm"]["score_qlm"] is None
    assert parts["score_qlm"]["dead"]["reason"].endswith("exceed the window of 800 tokens")
    for name, column in (("score_coverage", "score_coverage"), ("probe", "gains")):
        assert parts[name]["question_id"] == long
        assert len(parts[name][column]) == N and parts[name]["dead"] is None
    assert parts["answer"]["answers"] is None and parts["answer"]["dead"] is None
    assert counts.sums["score_qlm"]["dead"] == 1 and counts.sums["probe"]["dead"] == 0
    assert counts.sums["probe"]["rollouts"] == 50 * (N + 1)


def test_a_plan_without_the_scorer_that_refused_serves_the_row_from_what_is_stored(
    tmp_path: Path,
) -> None:
    cfg, long = with_long_question(tmp_path, at=3, words=790)
    run(cfg)
    assert cfg.arms is not None
    fewer = cfg.model_copy(update={"arms": cfg.arms.model_copy(update={"grid": cfg.arms.grid[:1]})})
    plan, counts = run(fewer)
    assert {"probe", "score_coverage", "score_qlm"}.isdisjoint(counts.sums)
    rows = {row["question_id"]: row for row in finished(plan).to_pylist()}
    assert list(rows) == IDS
    assert len(rows[long]["metrics"]) == len(rows[IDS[0]]["metrics"])
    assert counts.sums["answer"]["generated"] == len(rows[long]["answers"])


def test_a_question_without_candidates_has_every_arm(tmp_path: Path) -> None:
    cfg = config(tmp_path, arms={"top_m": [1, 2], "empty_context": "top1", "grid": []})
    lines = (tmp_path / "candidates.jsonl").read_text(encoding="utf-8").splitlines()
    lines[0] = json.dumps({"question_id": IDS[0], "passages": []})
    (tmp_path / "candidates.jsonl").write_text("\n".join(lines), encoding="utf-8")
    plan, _ = run(cfg)
    names = [[metric["arm"] for metric in row] for row in finished(plan)["metrics"].to_pylist()]
    assert len(names) == 50 and all(one == names[1] for one in names)
    assert names[0] == ["retriever M1", "retriever M2", "oracle", "no_evidence", "closed_book"]
