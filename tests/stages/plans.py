"""The plan of the main job over the example questions, with candidates and the fake model."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from jobs import offline_igp
from pipeline.config import (
    AnswerConfig,
    GeneratorConfig,
    InputConfig,
    OfflineIgpConfig,
    ProbeConfig,
    RetrieverConfig,
    RunConfig,
    SelectionConfig,
)
from pipeline.runs.storage import Storage
from pipeline.stages import retrieve, source
from pipeline.stages.plan import Plan, make_plan
from pipeline.stages.stage import Stage

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
N = 4


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


def config(folder: Path, **sections: Mapping[str, Any]) -> OfflineIgpConfig:
    """The run's settings with changes by section; everything it writes lies in `folder`."""
    candidates = folder / "candidates.jsonl"
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
        "answer": {},
    }
    parts = {name: {**values, **sections.get(name, {})} for name, values in defaults.items()}
    if not candidates.exists():
        write_candidates(candidates)
    return OfflineIgpConfig(
        run=RunConfig(**parts["run"]),
        input=InputConfig(**parts["input"]),
        generator=GeneratorConfig(**parts["generator"]),
        probe=ProbeConfig(**parts["probe"]),
        selection=SelectionConfig(**parts["selection"]),
        answer=AnswerConfig(**parts["answer"]),
    )


def stages(cfg: OfflineIgpConfig, *, index: Mapping[str, Any] | None = None) -> list[Stage]:
    """The stages of the main job; `index` puts retrieval before them."""
    first = [] if index is None else [retrieve.stage(RetrieverConfig(index="index"), index)]
    return [*first, *offline_igp.stages(cfg)]


def prepared(cfg: OfflineIgpConfig) -> Plan:
    """The plan over the snapshot of the input."""
    found = source.prepare(cfg.run, cfg.input, Storage(cfg.run.root))
    return make_plan(cfg.run.root, cfg.run.name, found, source.columns(cfg.input), stages(cfg))
