"""Two finished runs with the fake engine over our own little data sets, made once a session.

`plain` has relevance judgements and a question that nobody answered; `pool` has labelled passages
and wrong answers. One question holds markup, which a report must show and not obey.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from pipeline.config import (
    AnswerConfig,
    ArmsConfig,
    GeneratorConfig,
    GridEntry,
    InputConfig,
    OfflineIgpConfig,
    ProbeConfig,
    RunConfig,
)
from pipeline.report import summary
from pipeline.runs.storage import Storage
from pipeline.stages import build, source
from pipeline.stages import plan as plans

SEED, SAMPLES = 11, 200
TITLE = "Two <sets> & one report"
MARKUP = "Who wrote <script>alert('x')</script> & \"why\"?"
TOWNS = ("Amberi", "Bostel", "Corwen", "Dunvale", "Elmsy", "Farrow", "Gulbrook", "Hartle")
GRID = ArmsConfig(
    top_m=(1, 3),
    empty_context="frame",
    grid=(
        GridEntry(selector="ig", thresholds=(float("-inf"), -0.05, 0.0, 0.1)),
        GridEntry(selector="coverage"),
        GridEntry(selector="qlm"),
        GridEntry(label="igK8T2", selector="ig", ig_top_k=8, ig_max_tokens=2, thresholds=(0.0,)),
        GridEntry(label="igK8T6", selector="ig", ig_top_k=8, thresholds=(0.0,)),
        GridEntry(label="igK128T2", selector="ig", ig_max_tokens=2, thresholds=(0.0,)),
    ),
)


def make_runs(folder: Path, arms: ArmsConfig = GRID) -> dict[str, str]:
    """Folders of the finished runs by data set."""
    return {
        name: make_run(folder, name, questions, arms)
        for name, questions in (("plain", _plain()), ("pool", _pool()))
    }


def make_run(folder: Path, name: str, rows: Iterator[dict[str, Any]], arms: ArmsConfig) -> str:
    """One run's folder. `rows` hold question, golds, metadata and passages."""
    data = folder / f"{name}-data"
    graded = _write(data, list(rows))
    cfg = OfflineIgpConfig(
        run=RunConfig(root=str(folder / "out"), name=name, rows_per_shard=5, seed=SEED),
        input=InputConfig(
            questions=str(data / "questions.jsonl"),
            candidates=str(data / "candidates.jsonl"),
            corpus=str(data / "corpus.jsonl"),
            qrels=str(data / "qrels.tsv") if graded else None,
        ),
        generator=GeneratorConfig(engine="fake", model="fake"),
        probe=ProbeConfig(template="literal", top_k=128, max_tokens=6, trace=True),
        answer=AnswerConfig(max_tokens=6),
        arms=arms,
    )
    return finish(cfg)


def _write(data: Path, held: Sequence[dict[str, Any]]) -> bool:
    """Writes a run's input; whether any passage is graded."""
    data.mkdir()
    questions = [
        {
            "id": r["id"],
            "question": r["question"],
            "golden_answers": r["golds"],
            "metadata": r["metadata"],
        }
        for r in held
    ]
    lists = [
        {
            "id": r["id"],
            "candidates": [
                {k: v for k, v in p.items() if k in ("id", "type")} for p in r["passages"]
            ],
        }
        for r in held
    ]
    corpus = [{"id": p["id"], "contents": p["contents"]} for r in held for p in r["passages"]]
    for file, entries in (("questions", questions), ("candidates", lists), ("corpus", corpus)):
        lines = "".join(json.dumps(entry) + "\n" for entry in entries)
        (data / f"{file}.jsonl").write_text(lines, encoding="utf-8")
    grades = [(r["id"], p["id"], p["grade"]) for r in held for p in r["passages"] if p.get("grade")]
    lines = "".join(f"{q}\t{p}\t{grade}\n" for q, p, grade in grades)
    (data / "qrels.tsv").write_text(f"query-id\tcorpus-id\tscore\n{lines}", encoding="utf-8")
    return bool(grades)


def finish(cfg: OfflineIgpConfig) -> str:
    """Runs a config in this process, and writes what the driver writes."""
    storage = Storage(cfg.run.root)
    found = source.prepare(cfg.run, cfg.input, storage)
    plan = plans.make_plan(
        cfg.run.root, cfg.run.name, found, source.columns(cfg.input), build.stages(cfg)
    )
    plans.run_local(plan, cfg)
    arms = [arm.plain() for arm in build.arms_of(cfg)]
    parts = plans.contexts(plan, storage, summary.columns(plan.columns))
    metrics = summary.summarise(parts, arms=arms, seed=SEED, samples=SAMPLES)
    metrics |= {"dead_letters": 0, "ledger": plans.counted(plan, storage)}
    manifest = {"config": cfg.plain(), "packages": {}, "stages": [], "arms": arms}
    storage.write_json(f"{plan.run_folder}/metrics.json", metrics)
    storage.write_json(f"{plan.run_folder}/manifest.json", manifest)
    return storage.uri(plan.run_folder)


def rows_of(folder: str) -> list[dict[str, Any]]:
    """Every finished row of a run, read without any code of the report."""
    parts = sorted(Path(folder, "contexts").glob("part-*.parquet"))
    rows: list[dict[str, Any]] = pa.concat_tables([pq.read_table(p) for p in parts]).to_pylist()
    return rows


def json_of(folder: str, name: str) -> Mapping[str, Any]:
    """A JSON file of a run."""
    value: Mapping[str, Any] = json.loads(Path(folder, name).read_text(encoding="utf-8"))
    return value


def _passage(name: str, text: str, **others: Any) -> dict[str, Any]:
    return {"id": name, "contents": f"About {name}\n{text}", **others}


def _plain() -> Iterator[dict[str, Any]]:
    for i in range(14):
        town, other = TOWNS[i % 8], TOWNS[(i + 3) % 8]
        yield {
            "id": f"p{i:02d}",
            "question": MARKUP if i == 3 else f"Which town holds fair number {i}?",
            "golds": [] if i == 7 else [town],
            "metadata": {},
            "passages": [
                _passage(f"p{i}a", f"Fair number {i} of the county", grade=0),
                _passage(
                    f"p{i}b", f"{town} {town} {town} {town} holds fair {town} {town}", grade=2
                ),
                _passage(
                    f"p{i}c", f"{other} holds a market <b>&</b> no fair", grade=1 if i % 2 else 0
                ),
                _passage(f"p{i}d", f"The river near {other} floods"),
            ],
        }


def _pool() -> Iterator[dict[str, Any]]:
    for i in range(12):
        town, wrong = TOWNS[i % 8], TOWNS[(i + 1) % 8]
        true, false = (f"{name} {name} has {name} bridge {name} {name}" for name in (town, wrong))
        passages = [
            _passage(f"m{i}a", true, type="correct"),
            _passage(f"m{i}b", false, type="misinfo"),
            _passage(f"m{i}c", "Bridges carry roads over water", type="noise"),
        ]
        yield {
            "id": f"m{i:02d}",
            "question": f"Where is the bridge number {i}?",
            "golds": [town],
            "metadata": {"wrong_answers": [wrong] if i % 4 else []},
            "passages": [
                *passages[i % 3 :],
                _passage(f"m{i}d", f"{town} lies on a river", type="correct"),
            ],
        }
