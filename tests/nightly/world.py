"""A small world for nights: questions whose answers stand all over their passages, a fake model."""

import json
from pathlib import Path

from pipeline import driver
from pipeline.config import NightlyConfig
from pipeline.loading import load
from pipeline.nightly import evaluate, nights
from pipeline.nightly.evaluate import Result
from pipeline.report import summary
from pipeline.runs.storage import Storage
from pipeline.stages import build
from pipeline.stages import plan as plans
from pipeline.stages.manifest import manifest

CONF = Path(__file__).resolve().parents[2] / "conf" / "nightly_eval" / "demo.yaml"
QUESTIONS = 40


def write_data(folder: Path, *, off_by: int = 0) -> None:
    """Questions, their corpus, and for each the passages of the question `off_by` places on: with
    0 they hold the answer."""
    folder.mkdir(exist_ok=True)
    questions, corpus, candidates = [], [], []
    for i in range(QUESTIONS):
        word = f"word{i}"
        entry = {"id": f"q{i:02d}", "question": f"What is kept in box {i}?"}
        questions.append({**entry, "golden_answers": [word]})
        corpus.append({"id": f"p{i}a", "contents": f"Box {i}\n" + f"{word} " * 12})
        corpus.append({"id": f"p{i}b", "contents": f"Of box {i}\nBox {i} holds {word} {word}"})
        at = (i + off_by) % QUESTIONS
        candidates.append({"id": entry["id"], "candidates": [{"id": f"p{at}{x}"} for x in "ab"]})
    for name, rows in (("questions", questions), ("corpus", corpus), ("candidates", candidates)):
        text = "".join(json.dumps(row) + "\n" for row in rows)
        (folder / f"{name}.jsonl").write_text(text, encoding="utf-8")


def settings(data: Path, root: Path, date: str, *more: str) -> list[str]:
    """Overrides of conf/nightly_eval/demo.yaml."""
    return [
        *(f"date={date}", f"run.root={root}", "run.rows_per_shard=20"),
        *("generator.engine=fake", "generator.model=fake", "evaluation.bootstrap_samples=200"),
        *(f"input.{name}={data / name}.jsonl" for name in ("questions", "corpus", "candidates")),
        *more,
    ]


def config(data: Path, root: Path, date: str, *more: str) -> NightlyConfig:
    """The config of a night."""
    return load(NightlyConfig, str(CONF), settings(data, root, date, *more))


def measure(cfg: NightlyConfig) -> str:
    """Runs a night's main job in this process, without Ray; its run's folder."""
    assert cfg.date is not None
    storage = Storage(cfg.run.root)
    one = cfg.main_job(storage.uri(nights.night_of(cfg, cfg.date).folder))
    plan = driver.plan_of(one, dry_run=False)
    plans.run_local(plan, one)
    arms = [arm.plain() for arm in build.arms_of(one)]
    inner = Storage(plan.root)
    parts = plans.contexts(plan, inner, summary.columns(plan.columns))
    metrics = summary.summarise(parts, arms=arms, seed=one.run.seed, samples=200)
    metrics |= {"dead_letters": 0, "ledger": plans.counted(plan, inner)}
    inner.write_json(f"{plan.run_folder}/metrics.json", metrics)
    inner.write_json(f"{plan.run_folder}/manifest.json", manifest(plan, one, None))
    inner.write_bytes(f"{plan.run_folder}/_SUCCESS", b"")
    return inner.uri(plan.run_folder)


def make(cfg: NightlyConfig, folder: str | None = None) -> Result:
    """A finished night; of the run in `folder`, where there is one."""
    assert cfg.date is not None
    storage, night = Storage(cfg.run.root), nights.night_of(cfg, cfg.date)
    baseline = nights.baseline(storage, cfg, night)
    folder = folder or measure(cfg)
    evaluate.evaluate(cfg, storage, night, folder=folder, baseline=baseline)
    return evaluate.load(storage, night)
