"""Tests of jobs.precompute_contexts over finished runs, and of what is exported from them."""

import json
from pathlib import Path

import pytest

from jobs import export, precompute_contexts
from pipeline import driver, readers
from pipeline.config import ExportConfig, PrecomputeConfig
from pipeline.contexts import Contexts
from pipeline.report.contexts import work
from pipeline.runs import layout
from pipeline.runs.storage import Storage
from pipeline.stages import redrive
from pipeline.stages.plan import counted, run_local
from tests.contexts.made import finish, without_answers
from tests.jobs.runs import REPOSITORY
from tests.stages.changed import QUESTIONS, SHARD, Input
from tests.stages.plans import N, prepared

WORD = "builders"


@pytest.fixture
def given(tmp_path: Path) -> Input:
    return Input(tmp_path / "given")


@pytest.fixture
def cfg(given: Input, tmp_path: Path) -> PrecomputeConfig:
    """Of a run that is finished but for its metrics."""
    made = without_answers(given, tmp_path / "root", selection={"threshold": -9.0, "top_m": N})
    finish(made)
    return made


def publish(cfg: PrecomputeConfig, date: str = "2026-11-30") -> tuple[int, Contexts]:
    """The job's exit code, and what stands at the date."""
    code = precompute_contexts.run(dated(cfg, date), False)
    return code, Contexts(f"{cfg.run.root}/contexts/{cfg.run.name}", date)


def dated(cfg: PrecomputeConfig, date: str) -> PrecomputeConfig:
    sections = {name: getattr(cfg, name) for name in cfg.model_fields_set}
    return PrecomputeConfig.model_validate({**sections, "date": date})


def exported(config: str, run: str, output: Path, *changes: str) -> int:
    path = REPOSITORY / "conf" / "export" / f"{config}.yaml"
    arguments = [str(path), f"run={run}", f"output={output}", *changes]
    return driver.main("", ExportConfig, export.run, arguments)


def test_a_finished_run_is_published_once_a_date(
    cfg: PrecomputeConfig, capsys: pytest.CaptureFixture[str]
) -> None:
    code, contexts = publish(cfg)
    first = capsys.readouterr().out.splitlines()
    assert (code, len(contexts)) == (driver.DONE, QUESTIONS)
    assert first[3] == f"probe: 0 rollouts made, 0 taken up, {QUESTIONS * (N + 1)} found"
    assert first[-2:] == [
        f"against no earlier date: {QUESTIONS} new, 0 changed, 0 unchanged, 0 gone",
        f"contexts: {cfg.run.root}/contexts/run/date=2026-11-30",
    ]
    before = Storage(cfg.run.root).modified("contexts/run/date=2026-11-30")
    assert publish(cfg)[0] == driver.DONE
    assert capsys.readouterr().out.endswith("date=2026-11-30 (was complete)\n")
    assert Storage(cfg.run.root).modified("contexts/run/date=2026-11-30") == before
    assert publish(cfg, "2026-12-01")[0] == driver.DONE
    assert f"against 2026-11-30: 0 new, 0 changed, {QUESTIONS} unchanged" in capsys.readouterr().out


def test_the_manifest_of_a_date_tells_run_policy_and_rollouts(cfg: PrecomputeConfig) -> None:
    _, contexts = publish(cfg)
    place = Storage(f"{cfg.run.root}/contexts/run/date=2026-11-30")
    manifest = place.read_json("manifest.json")
    assert {one.policy for one in contexts} == {manifest["policy"]}
    assert manifest["run"].startswith("runs/run-") and manifest["dead_letters"] == 0
    probe = {name: manifest["work"]["probe"][name] for name in ("rollouts", "taken_up", "found")}
    assert probe == {"rollouts": 0, "taken_up": 0, "found": QUESTIONS * (N + 1)}


def test_of_shards_on_disk_under_another_policy_no_rollout_is_told_as_made(
    given: Input, cfg: PrecomputeConfig, capsys: pytest.CaptureFixture[str]
) -> None:
    publish(cfg)
    stricter = without_answers(given, Path(cfg.run.root), selection={"threshold": 9.0, "top_m": N})
    plan = prepared(stricter)
    before = counted(plan, Storage(plan.root))
    run_local(plan, stricter)
    made = work(before, counted(plan, Storage(plan.root)))["probe"]
    assert (made["rollouts"], made["found"]) == (0, QUESTIONS * (N + 1))
    capsys.readouterr()
    assert publish(stricter)[0] == driver.DONE
    said = capsys.readouterr().out.splitlines()
    assert f"probe: 0 rollouts made, 0 taken up, {QUESTIONS * (N + 1)} found" in said
    assert said[-2] == (
        "against date=2026-11-30 as it stood before, under another policy: "
        f"0 new, {QUESTIONS} changed, 0 unchanged, 0 gone"
    )


def test_of_a_shard_that_was_lost_the_rollouts_are_told_as_made(
    cfg: PrecomputeConfig,
) -> None:
    plan = prepared(cfg)
    storage = Storage(plan.root)
    (probe,) = (step.folder for step in plan.steps if step.stage.name == "probe")
    for folder in (probe, plan.rows_folder):
        storage.delete(layout.part(folder, 0))
    before = counted(plan, storage)
    run_local(plan, cfg)
    made = work(before, counted(plan, storage))["probe"]
    assert (made["rollouts"], made["found"]) == (SHARD * (N + 1), (QUESTIONS - SHARD) * (N + 1))


def test_what_a_redrive_has_made_is_published_in_place_of_what_stood_there(
    given: Input, tmp_path: Path
) -> None:
    ill = tmp_path / "ill"
    ill.touch()
    model = {"engine": "fake", "model": f"refuse_while={ill}:{WORD}"}
    tolerant = {"max_error_rate": 0.5}
    cfg = without_answers(given, tmp_path / "root", generator=model, run=tolerant)
    plan, _ = finish(cfg)
    dead = sum(WORD in question["question"] for question in given.questions)
    assert len(publish(cfg)[1]) == QUESTIONS - dead and dead
    ill.unlink()
    redrive.run_local(plan, cfg)
    assert driver.redrive_run(cfg, dry_run=False) == driver.DONE
    assert len(publish(cfg)[1]) == QUESTIONS


def test_a_dry_run_names_the_partition_and_writes_nothing(
    given: Input, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    cfg = dated(without_answers(given, tmp_path / "root"), "2026-11-30")
    assert precompute_contexts.run(cfg, True) == driver.DONE
    said = capsys.readouterr().out
    assert said.endswith(f"contexts: {tmp_path}/root/contexts/run/date=2026-11-30\n")
    assert "probes " in said and "final prompts" not in said
    assert not (tmp_path / "root").exists()


def test_the_lines_of_an_export_are_the_rows_of_the_partition(
    cfg: PrecomputeConfig, tmp_path: Path
) -> None:
    _, contexts = publish(cfg)
    manifest = Storage(f"{cfg.run.root}/contexts/run/date=2026-11-30").read_json("manifest.json")
    run, out = f"{cfg.run.root}/{manifest['run']}", tmp_path / "out"
    assert exported("contexts", run, out) == driver.DONE
    lines = [json.loads(line) for line in (out / "contexts.jsonl").read_text().splitlines()]
    assert lines == [vars(context) for context in contexts]
    cache = readers.candidates(str(out / "contexts.json"))
    lists = {one["question"]: [c["passage_id"] for c in one["candidates"]] for one in cache}
    assert lists == {context.question: context.passage_ids for context in contexts}


def test_contexts_are_exported_of_the_policy_s_arm_alone(
    cfg: PrecomputeConfig, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    publish(cfg)
    (run,) = (Path(cfg.run.root) / "runs").iterdir()
    capsys.readouterr()
    assert exported("contexts", str(run), tmp_path / "out", "arm=retriever") == driver.USAGE
    said = capsys.readouterr().err
    assert "no rendered contexts of arm 'retriever'" in said and "files=[questions,cache]" in said
    files = "files=[questions,cache]"
    assert exported("contexts", str(run), tmp_path / "out", "arm=retriever", files) == driver.DONE
