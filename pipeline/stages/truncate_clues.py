"""Truncate clues: a model says how many of a question's ordered sentences suffice, perhaps none.

Each list and order that an arm asks for is a durable stage with a column of its own. All rows of a
block run at once, and equal prompts once.
Source: CompSelect, the adaptive truncator, here without training.
"""

import asyncio
from collections.abc import Mapping
from functools import partial
from typing import Any

import pyarrow as pa

from pipeline import schema
from pipeline.config import CluesConfig
from pipeline.core import clues, replies
from pipeline.engines.base import Generator, Refusal
from pipeline.engines.table import Engines
from pipeline.prompts import render
from pipeline.stages.ask import Asker, Grammar, Record, check_constrained
from pipeline.stages.clues import Ordered, in_order, order_columns
from pipeline.stages.extract_clues import counts
from pipeline.stages.stage import ERROR, Stage, Transform, add_columns

COUNTS = ("calls", "retries", "malformed", "tokens")


def stage(cfg: CluesConfig, model: Mapping[str, Any], *, own: Ordered) -> Stage:
    """The stage over one list and order; `model` describes the truncator."""
    asked, column = cfg.truncator, schema.cut(*own)

    def build(engines: Engines) -> Transform:
        return TruncateClues(cfg, engines.truncator, own)

    return Stage(
        name=own.stage,
        needs=("question", *order_columns(own)),
        adds=pa.schema([column]),
        depends_on={
            "model": model,
            "prompts": render.fingerprint(render.CLUE_TEMPLATES["cut"]),
            "grammar": [clues.GRAMMAR_VERSION, replies.GRAMMAR_VERSION],
            **asked.plain(exclude={"model"}),
        },
        build=build,
        pool="generator" if asked.model is None else "truncator",
        durable=True,
        counts=partial(counts, column=column, names=COUNTS),
    )


class TruncateClues:
    """The transform: holds the model that truncates."""

    def __init__(self, cfg: CluesConfig, generator: Generator, own: Ordered) -> None:
        check_constrained(generator, cfg.truncator)
        self._cfg, self._generator, self._own = cfg.truncator, generator, own

    async def __call__(self, table: pa.Table) -> pa.Table:
        """The block with the cuts; `error` where a request was refused, or given up."""
        asker = Asker(self._generator, self._cfg)
        made = await asyncio.gather(*(self._row(row, asker) for row in table.to_pylist()))
        columns = {schema.cut(*self._own): 0, ERROR: 1}
        return add_columns(
            table, {column: [row[i] for row in made] for column, i in columns.items()}
        )

    async def _row(
        self, row: Mapping[str, Any], asker: Asker
    ) -> tuple[dict[str, Any] | None, str | None]:
        """(cut, None), or (None, reason). Nobody is asked where the list is empty."""
        record = Record()
        texts = [row["sentences"][place]["text"] for place, _ in in_order(row, self._own)]
        n, keep = len(texts), 0
        if texts:
            prompt = render.clues(row["question"], texts, self._cfg.template, task="cut")
            grammar = Grammar(partial(clues.cut, n=n), partial(clues.cut_pattern, n), "number")
            try:
                reply = await asker.ask(prompt, grammar, record)
            except Refusal as refusal:
                return None, f"{n} sentences: {refusal}"
            keep = n if reply.malformed else reply.keep
        return {"keep": keep, **record.plain(schema.CLUE_REPAIRS)}, None
