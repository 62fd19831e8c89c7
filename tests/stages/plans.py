"""The plan of the main job over the example questions, with candidates and the fake models."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa

from pipeline import schema
from pipeline.config import OfflineIgpConfig
from pipeline.engines.index_folder import MANIFEST
from pipeline.runs.storage import Storage
from pipeline.stages import build, source
from pipeline.stages import plan as plans
from pipeline.stages.plan import Plan, make_plan, run_local
from pipeline.stages.source import Source

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
IDS = [
    json.loads(line)["id"]
    for line in (EXAMPLES / "questions.jsonl").read_text(encoding="utf-8").splitlines()
]
N = 4
"""Candidates a question."""
SOURCE = Source("stages/source-0", "0", "0", (), rows=5, dead=0, shards=3)
"""An input that nobody reads."""
QUESTIONS = pa.schema([*schema.SOURCE, schema.JUDGEMENTS])


def write_candidates(path: Path) -> str:
    """N passages for each example question: its relevant ones, then the corpus in turn."""
    read = [
        [json.loads(line) for line in (EXAMPLES / name).read_text(encoding="utf-8").splitlines()]
        for name in ("questions.jsonl", "corpus.jsonl")
    ]
    relevant: dict[str, list[str]] = {}
    for line in (EXAMPLES / "qrels.tsv").read_text(encoding="utf-8").splitlines()[1:]:
        question_id, passage_id, _ = line.split("\t")
        relevant.setdefault(question_id, []).append(passage_id)
    questions, corpus = read
    with path.open("w", encoding="utf-8") as file:
        for i, question in enumerate(questions):
            others = [corpus[(7 * i + j) % len(corpus)]["id"] for j in range(N)]
            found = list(dict.fromkeys([*relevant.get(question["id"], []), *others]))[:N]
            passages = [{"id": passage_id} for passage_id in found]
            file.write(json.dumps({"question_id": question["id"], "passages": passages}) + "\n")
    return str(path)


def config(folder: Path, **sections: Any) -> OfflineIgpConfig:
    """The run's settings with changes by section; everything it writes lies in `folder`.

    A grid of `arms` stands in place of the selection.
    """
    candidates = folder / "candidates.jsonl"
    if not candidates.exists():
        write_candidates(candidates)
    defaults: dict[str, dict[str, Any]] = {
        "run": {"root": str(folder / "out"), "rows_per_shard": 13},
        "input": {
            "questions": str(EXAMPLES / "questions.jsonl"),
            "candidates": str(candidates),
            "corpus": str(EXAMPLES / "corpus.jsonl"),
        },
        "generator": {"engine": "fake", "model": "fake"},
        "probe": {"template": "literal", "top_k": 128, "max_tokens": 8},
        "selection": {"threshold": 0.0, "top_m": 2, "empty_context": "frame"},
    }
    if "arms" in sections:
        del defaults["selection"]
    known = {name: {**values, **sections.get(name, {})} for name, values in defaults.items()}
    return OfflineIgpConfig.model_validate({**sections, **known})


def searched(folder: Path, index: str = "index", **sections: Any) -> OfflineIgpConfig:
    """The same over an index of that fingerprint, of which there is nothing but its manifest."""
    place = folder / index
    place.mkdir(exist_ok=True)
    (place / MANIFEST).write_text(json.dumps({"fingerprint": index}), encoding="utf-8")
    given = {"candidates": None, "corpus": None, **sections.get("input", {})}
    return config(folder, **{**sections, "input": given, "retriever": {"index": str(place)}})


def prepared(cfg: OfflineIgpConfig) -> Plan:
    """The plan over the snapshot of the input."""
    found = source.prepare(cfg.run, cfg.input, Storage(cfg.run.root))
    columns = source.columns(cfg.input)
    return make_plan(cfg.run.root, cfg.run.name, found, columns, build.stages(cfg))


class Counts:
    """What the stages counted, summed by stage and name."""

    def __init__(self) -> None:
        self.sums: dict[str, dict[str, float]] = {}

    def __call__(self, stage: str, counts: Mapping[str, float]) -> None:
        sums = self.sums.setdefault(stage, {})
        for name, value in counts.items():
            sums[name] = sums.get(name, 0) + value


def run(cfg: OfflineIgpConfig) -> tuple[Plan, Counts]:
    """A run from the start; its plan and what was counted."""
    plan, counts = prepared(cfg), Counts()
    run_local(plan, cfg, counts)
    return plan, counts


def finished(plan: Plan) -> pa.Table:
    """All finished rows of a run."""
    return pa.concat_tables(plans.contexts(plan, Storage(plan.root), plan.columns))


def written(plan: Plan) -> str:
    """All finished rows as text: unlike tables, equal where a number is undefined in both."""
    return repr(finished(plan).to_pylist())
