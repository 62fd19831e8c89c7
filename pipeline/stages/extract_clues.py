"""Extract clues: a model names the sentences of a question's passages that may hold the answer.

It copies them, or names their numbers alone; either way a clue is a place in `sentences`, and so
traceable to its passage. All rows of a block run at once, and equal prompts once.
Source: CompSelect, the clue extractor, here without training.
"""

import asyncio
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from pipeline import schema
from pipeline.config import CluesConfig
from pipeline.core import clues, replies
from pipeline.engines.base import Generator, Refusal
from pipeline.engines.table import Engines
from pipeline.prompts import render
from pipeline.stages.ask import Asker, Grammar, Record, check_constrained
from pipeline.stages.clues import EXTRACT
from pipeline.stages.stage import ERROR, Stage, Transform, add_columns

ADDS = pa.schema([schema.CLUES])
COUNTS = ("calls", "retries", "malformed", "unfaithful", "tokens")


def stage(cfg: CluesConfig, model: Mapping[str, Any]) -> Stage:
    """The stage; `model` describes the extractor (engines.models.for_answers)."""
    asked = cfg.extractor

    def build(engines: Engines) -> Transform:
        return ExtractClues(cfg, engines.extractor)

    return Stage(
        name=EXTRACT,
        needs=("question", schema.SENTENCES.name),
        adds=ADDS,
        depends_on={
            "model": model,
            "prompts": render.fingerprint(render.CLUE_TEMPLATES[asked.reply]),
            "grammar": [clues.GRAMMAR_VERSION, replies.GRAMMAR_VERSION],
            **asked.plain(exclude={"model"}),
        },
        build=build,
        pool="generator" if asked.model is None else "extractor",
        durable=True,
        counts=partial(counts, column=schema.CLUES, names=COUNTS),
    )


def counts(part: pa.Table, *, column: pa.Field, names: Sequence[str]) -> dict[str, float]:
    """The sums of some fields of a column of replies."""
    values = part[column.name].combine_chunks()
    return {name: pc.sum(pc.struct_field(values, name)).as_py() or 0 for name in names}


class ExtractClues:
    """The transform: holds the model that extracts."""

    def __init__(self, cfg: CluesConfig, generator: Generator) -> None:
        check_constrained(generator, cfg.extractor)
        self._cfg, self._generator = cfg.extractor, generator

    async def __call__(self, table: pa.Table) -> pa.Table:
        """The block with the clues; `error` where a request was refused, or given up."""
        asker = Asker(self._generator, self._cfg)
        rows = zip(table["question"].to_pylist(), table["sentences"].to_pylist(), strict=True)
        made = await asyncio.gather(*(self._row(*row, asker) for row in rows))
        columns = {schema.CLUES: 0, ERROR: 1}
        return add_columns(
            table, {column: [row[i] for row in made] for column, i in columns.items()}
        )

    async def _row(
        self, question: str, sentences: Sequence[Mapping[str, Any]], asker: Asker
    ) -> tuple[dict[str, Any] | None, str | None]:
        """(clues, None), or (None, reason). Nobody is asked where there is no sentence."""
        record = Record()
        reply = clues.Clues((), False, 0, 0, {})
        if sentences:
            texts = [sentence["text"] for sentence in sentences]
            cfg = self._cfg
            prompt = render.clues(question, texts, cfg.template, task=cfg.reply)
            try:
                reply = await asker.ask(prompt, self._grammar(texts), record)
            except Refusal as refusal:
                return None, f"{len(texts)} sentences: {refusal}"
        every = range(1, len(sentences) + 1)
        named = [number - 1 for number in (every if reply.malformed else reply.ids)]
        told = {"named": named, "lines": reply.lines, "unfaithful": reply.unfaithful}
        return {**told, **record.plain(schema.CLUE_REPAIRS)}, None

    def _grammar(self, texts: Sequence[str]) -> Grammar[clues.Clues]:
        snap = self._cfg.unfaithful == "snap"
        if self._cfg.reply == "sentences":
            read = partial(clues.parse, sentences=texts, snap=snap)
        else:
            read = partial(clues.parse_numbers, n=len(texts))
        return Grammar(read, partial(replies.pattern, len(texts)), "sentence of the passages")
