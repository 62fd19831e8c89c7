"""Probe clues: the information gain of every sentence of a list, as the probe's of every passage.

A sentence stands in the prompt as it would in the evidence, without a title.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from pipeline import schema
from pipeline.config import ProbeConfig
from pipeline.engines.base import Generator
from pipeline.engines.table import Engines
from pipeline.prompts import render
from pipeline.stages import probe
from pipeline.stages.clues import Ordered, listed, order_columns, probe_stage
from pipeline.stages.stage import ERROR, Stage, Transform, add_columns

SPARED = {"trace": False, "free_rule_threshold": None, "early_stop_threshold": None}
"""Of the probe's settings, those that serve its own rollouts alone."""


def stage(cfg: ProbeConfig, generator: Mapping[str, Any], *, of: str) -> Stage:
    """The stage over a list; `generator` is as for stages.probe."""
    own, column = cfg.model_copy(update=SPARED), schema.sentence_gains(of)

    def build(engines: Engines) -> Transform:
        return ProbeClues(own, engines.generator, of)

    def counts(part: pa.Table) -> dict[str, float]:
        values = part[column.name].combine_chunks()
        names = ("rollouts", "tokens")
        return {name: pc.sum(pc.struct_field(values, name)).as_py() or 0 for name in names}

    return Stage(
        name=probe_stage(of),
        needs=("question", *order_columns(Ordered(of, "none"))),
        adds=pa.schema([column]),
        depends_on={
            "generator": generator,
            "prompts": render.fingerprint(render.PROBE_TEMPLATES),
            **own.plain(exclude=set(SPARED)),
        },
        build=build,
        pool="generator",
        durable=True,
        counts=counts,
    )


class ProbeClues:
    """The transform: the probe over sentences in place of passages."""

    def __init__(self, cfg: ProbeConfig, generator: Generator, of: str) -> None:
        self._probe, self._of = probe.Probe(cfg, generator), of

    async def __call__(self, table: pa.Table) -> pa.Table:
        """The block with the gains; `error` where a rollout was refused."""
        rows = table.to_pylist()
        made = await self._probe(_as_passages(rows, self._of))
        probes, gains = made["probes"].to_pylist(), made["gains"].to_pylist()
        found = [
            None if one is None else _measured(one, gain)
            for one, gain in zip(probes, gains, strict=True)
        ]
        column = schema.sentence_gains(self._of)
        return add_columns(table, {column: found, ERROR: made[ERROR.name].to_pylist()})


def _as_passages(rows: Sequence[Mapping[str, Any]], of: str) -> pa.Table:
    """The rows as the probe reads them, each sentence of the list a candidate without a title."""
    made = []
    for row in rows:
        places = listed(row, of)
        texts = [row["sentences"][place]["text"] for place in places]
        candidates = [
            {"passage_id": str(place), "title": "", "text": text, "score": None}
            for place, text in zip(places, texts, strict=True)
        ]
        made.append({**{k: row[k] for k in ("question_id", "question")}, "candidates": candidates})
    fields = [schema.COLUMNS[name] for name in ("question_id", "question", "candidates")]
    return pa.Table.from_pylist(made, schema=pa.schema(fields))


def _measured(probes: Mapping[str, Any], gains: Sequence[float | None]) -> dict[str, Any]:
    steps, read = probes["steps"], sum(probes["prompt_tokens"])
    told = {"nu0": probes["nu0"], "gains": gains}
    return {**told, "rollouts": len(steps), "tokens": sum(steps) + read}
