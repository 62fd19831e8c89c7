"""Probe clues: the information gain of every sentence of a list, as the probe's of every passage.

A sentence stands in the prompt as it would in the evidence, without a title. A rollout is known by
its prompt, as the probe's are, and what another plan has stored of the same list is taken up.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import pyarrow as pa

from pipeline import schema
from pipeline.config import ProbeConfig
from pipeline.engines.base import Generator
from pipeline.engines.table import Engines
from pipeline.prompts import render
from pipeline.stages import probe, rollouts
from pipeline.stages.clues import Ordered, listed, order_columns, probe_stage
from pipeline.stages.stage import ERROR, Family, Stage, Transform, add_columns

SPARED = {"trace": False, "free_rule_threshold": None, "early_stop_threshold": None}
"""Of the probe's settings, those that serve its own rollouts alone."""


def stage(cfg: ProbeConfig, generator: Mapping[str, Any], *, of: str) -> Stage:
    """The stage over a list; `generator` is as for stages.probe."""
    own, column = cfg.model_copy(update=SPARED), schema.sentence_gains(of)

    def build(engines: Engines) -> Transform:
        return ProbeClues(own, engines.generator, of)

    def counts(part: pa.Table, earlier: pa.Table | None = None) -> Mapping[str, float]:
        return rollouts.counts(
            _as_probes(part, of), None if earlier is None else _as_probes(earlier, of)
        )

    def wanted(rows: pa.Table) -> Iterator[str]:
        return probe.wanted(_as_passages(rows.to_pylist(), of), cfg=own)

    shared = {
        "generator": generator,
        "prompts": render.fingerprint(render.PROBE_TEMPLATES),
        **own.plain(exclude=set(SPARED)),
    }
    return Stage(
        name=probe_stage(of),
        needs=("question", *order_columns(Ordered(of, "none"))),
        adds=pa.schema([column]),
        depends_on=shared,
        family=Family(shared, f"{column.name}.keys", wanted),
        build=build,
        pool="generator",
        durable=True,
        counts=counts,
    )


class ProbeClues:
    """The transform: the probe over sentences in place of passages."""

    def __init__(self, cfg: ProbeConfig, generator: Generator, of: str) -> None:
        self._probe, self._of = probe.Probe(cfg, generator), of

    async def __call__(self, table: pa.Table, earlier: pa.Table | None = None) -> pa.Table:
        """The block with the gains; `error` where a rollout was refused.

        earlier: the same column of rows of other plans.
        """
        known = None if earlier is None else _as_probes(earlier, self._of)
        made = await self._probe(_as_passages(table.to_pylist(), self._of), known)
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


def _as_probes(part: pa.Table, of: str) -> pa.Table:
    """A part's gains under the name that stages.rollouts reads."""
    return part.select([schema.sentence_gains(of).name]).rename_columns([schema.PROBES.name])


def _measured(probes: Mapping[str, Any], gains: Sequence[float | None]) -> dict[str, Any]:
    return {**probes, "gains": gains, "tokens": sum(probes["steps"] + probes["prompt_tokens"])}
