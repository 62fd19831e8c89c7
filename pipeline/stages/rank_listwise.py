"""Rank listwise: a model reads a question's candidates together and replies with identifiers.

adarank asks for the passages that help alone, so the model decides how many there are (passage
dropout); listwise asks for all in order. More candidates than a window holds go window by window,
back to front, and what one window drops is not in the next. All rows of a block run at once, and
equal prompts once.

A reply that cannot be read is asked for once more; see stages.ask.
Source: AdaRankLLM, section III-B.
"""

import asyncio
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from pipeline import schema
from pipeline.config import ListwiseConfig
from pipeline.core import replies, windows
from pipeline.core.replies import GRAMMAR_VERSION
from pipeline.engines.base import Generator, Refusal
from pipeline.engines.table import Engines
from pipeline.prompts import render
from pipeline.stages.ask import Asker, Grammar, Record, check_constrained
from pipeline.stages.stage import ERROR, Stage, Transform, add_columns

DROPOUT = {"adarank": True, "listwise": False}
"""The selectors, and whether each may leave passages out."""


def stage(
    cfg: ListwiseConfig,
    model: Mapping[str, Any],
    *,
    selector: str,
    passage_format: render.PassageFormat,
) -> Stage:
    """The stage of one selector; `model` describes the ranker (engines.models.for_answers)."""
    dropout = DROPOUT[selector]

    def build(engines: Engines) -> Transform:
        return RankListwise(cfg, engines.ranker, passage_format, selector=selector)

    def counts(part: pa.Table) -> dict[str, float]:
        ranking = part[schema.ranking(selector).name].combine_chunks()
        names = ("calls", "retries", "malformed", "tokens")
        return {name: pc.sum(pc.struct_field(ranking, name)).as_py() or 0 for name in names}

    return Stage(
        name=f"rank_{selector}",
        revision=2,
        needs=("question", "candidates"),
        adds=pa.schema([schema.ranking(selector)]),
        depends_on={
            "model": model,
            "prompts": render.fingerprint(
                render.LISTWISE_TEMPLATES["dropout" if dropout else "order"]
            ),
            "passage_format": passage_format,
            "grammar": GRAMMAR_VERSION,
            **cfg.plain(exclude={"ranker"}),
        },
        build=build,
        pool="generator" if cfg.ranker is None else "ranker",
        durable=True,
        counts=counts,
    )


class RankListwise:
    """The transform: holds the model that ranks."""

    def __init__(
        self,
        cfg: ListwiseConfig,
        generator: Generator,
        passage_format: render.PassageFormat,
        *,
        selector: str,
    ) -> None:
        check_constrained(generator, cfg)
        self._cfg, self._generator, self._format = cfg, generator, passage_format
        self._column, self._dropout = schema.ranking(selector), DROPOUT[selector]

    async def __call__(self, table: pa.Table) -> pa.Table:
        """The block with the rankings; `error` where a request was refused, or given up."""
        asker = Asker(self._generator, self._cfg)
        rows = zip(table["question"].to_pylist(), table["candidates"].to_pylist(), strict=True)
        made = await asyncio.gather(*(self._row(*row, asker) for row in rows))
        columns = {self._column: 0, ERROR: 1}
        return add_columns(
            table, {column: [row[i] for row in made] for column, i in columns.items()}
        )

    async def _row(
        self, question: str, candidates: Sequence[Mapping[str, Any]], asker: Asker
    ) -> tuple[dict[str, Any] | None, str | None]:
        """(ranking, None), or (None, reason)."""
        cfg, size = self._cfg, self._cfg.window
        texts = [render.passage(c["title"], c["text"], self._format) for c in candidates]
        order, record = list(range(len(texts))), Record()
        one_order = not self._dropout and len(texts) == 1
        starts = [] if one_order else windows.starts(len(texts), window=size, stride=cfg.stride)
        for start in starts:
            held = order[start : start + size]
            try:
                ids = await self._window(question, [texts[i] for i in held], record, asker)
            except Refusal as refusal:
                return None, f"window of {len(held)} passages from rank {start + 1}: {refusal}"
            order[start : start + size] = [held[i - 1] for i in ids]
        return {"positions": order, **record.plain(schema.REPAIRS)}, None

    async def _window(
        self, question: str, texts: Sequence[str], record: Record, asker: Asker
    ) -> Sequence[int]:
        """The identifiers of the passages that stay, best first."""
        prompt = render.listwise(
            question,
            texts,
            self._cfg.template,
            dropout=self._dropout,
            max_words=self._cfg.max_passage_words,
        )
        n, dropout = len(texts), self._dropout
        grammar = Grammar(
            partial(replies.parse, n=n, dropout=dropout),
            partial(replies.pattern, n, dropout=dropout),
            "order",
        )
        reply = await asker.ask(prompt, grammar, record)
        return range(1, n + 1) if reply.malformed else reply.ids
