"""A small run of the main job for tests of faults: twelve questions in three shards, no Ray.

The driver is the real one, from its arguments to its exit code; see conftest.here.
"""

import json
import threading
from pathlib import Path

import pyarrow.parquet as pq

from pipeline import driver
from pipeline.config import OfflineIgpConfig
from pipeline.stages.plan import Plan, run_local
from tests.jobs.runs import DEMO, REPOSITORY, finished_rows, only_run, overrides

EXAMPLES = REPOSITORY / "examples"
LINES = (EXAMPLES / "questions.jsonl").read_text(encoding="utf-8").splitlines()[:12]
IDS = [json.loads(line)["id"] for line in LINES]
SHARD = 5
POISON = 6
"""Place of the question that tests poison: in the middle shard."""


def write_questions(folder: Path, lines: list[str] = LINES) -> Path:
    """The questions' file of a run in `folder`."""
    path = folder / "questions.jsonl"
    path.write_text("\n".join(lines), encoding="utf-8")
    return path


def settings(folder: Path, **changes: object) -> list[str]:
    """The run's arguments after its config file; the questions are written unless they are."""
    questions = folder / "questions.jsonl"
    if not questions.exists():
        write_questions(folder)
    changes = {
        "run__rows_per_shard": SHARD,
        "input__questions": questions,
        "evaluation__bootstrap_samples": 100,
        **changes,
    }
    return overrides(folder, **changes)


def one_process(plan: Plan, cfg: OfflineIgpConfig, lost: threading.Event) -> None:
    """Stands in the place of cluster.execute."""
    run_local(plan, cfg)


def drive(folder: Path, **changes: object) -> int:
    """Runs the main job in this process; its exit code."""
    arguments = [str(DEMO), *settings(folder, **changes)]
    return driver.main("doc", OfflineIgpConfig, driver.run, arguments)


def rows(root: Path) -> list[str]:
    """Every finished row in its order, as text: equal where a number is undefined in both."""
    return [repr(row) for row in finished_rows(only_run(root)).to_pylist()]


def letters(root: Path) -> list[dict[str, str]]:
    """Every dead letter of the run."""
    parts = sorted(only_run(root).glob("dead_letters/part-*.parquet"))
    return [row for part in parts for row in pq.read_table(part).to_pylist()]


def poison() -> str:
    """A word of the question at POISON that stands in no other question and no passage."""
    texts: list[str] = [json.loads(line)["question"] for line in LINES]
    others = [*texts[:POISON], *texts[POISON + 1 :]]
    corpus = (EXAMPLES / "corpus.jsonl").read_text(encoding="utf-8").splitlines()
    others += [json.loads(line)["contents"] for line in corpus]
    known = {word for text in others for word in text.split()}
    return next(w for w in texts[POISON].split() if w not in known and not set(w) & {*",=:'"})


def stamps(root: Path) -> dict[Path, int]:
    """When every stored part of a stage was written."""
    return {path: path.stat().st_mtime_ns for path in root.glob("stages/**/part-*.parquet")}
