"""Rank listwise: a model reads a question's candidates together and replies with identifiers.

adarank asks for the passages that help alone, so the model decides how many there are (passage
dropout); listwise asks for all in order. More candidates than a window holds go window by window,
back to front, and what one window drops is not in the next. All rows of a block run at once, and
equal prompts once.

A reply that cannot be read is asked for once more with its opening bracket given, since the same
prompt would be answered alike; after that `on_malformed` decides.
Source: AdaRankLLM, section III-B.
"""

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from pipeline import schema
from pipeline.config import ListwiseConfig
from pipeline.core import replies, windows
from pipeline.core.replies import GRAMMAR_VERSION, Reply
from pipeline.engines.base import Completion, Constrained, Generator, Refusal
from pipeline.engines.table import Engines
from pipeline.prompts import render
from pipeline.stages.stage import ERROR, Stage, Transform, add_columns

DROPOUT = {"adarank": True, "listwise": False}
"""The selectors, and whether each may leave passages out."""
OPENING = "["
Running = dict[tuple[int, ...], "asyncio.Task[Completion]"]


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
        if cfg.constrained and not isinstance(generator, Constrained):
            raise TypeError(f"{type(generator).__name__} cannot be held to a grammar")
        self._cfg, self._generator, self._format = cfg, generator, passage_format
        self._column, self._dropout = schema.ranking(selector), DROPOUT[selector]

    async def __call__(self, table: pa.Table) -> pa.Table:
        """The block with the rankings; `error` where a request was refused, or given up."""
        running: Running = {}
        rows = zip(table["question"].to_pylist(), table["candidates"].to_pylist(), strict=True)
        made = await asyncio.gather(*(self._row(*row, running) for row in rows))
        columns = {self._column: 0, ERROR: 1}
        return add_columns(
            table, {column: [row[i] for row in made] for column, i in columns.items()}
        )

    async def _row(
        self, question: str, candidates: Sequence[Mapping[str, Any]], running: Running
    ) -> tuple[dict[str, Any] | None, str | None]:
        """(ranking, None), or (None, reason)."""
        cfg, size = self._cfg, self._cfg.window
        texts = [render.passage(c["title"], c["text"], self._format) for c in candidates]
        order, record = list(range(len(texts))), _Record()
        one_order = not self._dropout and len(texts) == 1
        starts = [] if one_order else windows.starts(len(texts), window=size, stride=cfg.stride)
        for start in starts:
            held = order[start : start + size]
            try:
                ids = await self._window(question, [texts[i] for i in held], record, running)
            except Refusal as refusal:
                return None, f"window of {len(held)} passages from rank {start + 1}: {refusal}"
            order[start : start + size] = [held[i - 1] for i in ids]
        return {"positions": order, **record.plain()}, None

    async def _window(
        self, question: str, texts: Sequence[str], record: "_Record", running: Running
    ) -> Sequence[int]:
        """The identifiers of the passages that stay, best first."""
        prompt = render.listwise(
            question,
            texts,
            self._cfg.template,
            dropout=self._dropout,
            max_words=self._cfg.max_passage_words,
        )
        tokenizer = self._generator.tokenizer
        prompt_ids = tokenizer.encode(prompt)
        record.calls += 1
        reply = await self._ask(prompt_ids, "", len(texts), record, running)
        if reply.malformed:
            record.retries += 1
            again = [*prompt_ids, *tokenizer.ids(OPENING)]
            reply = await self._ask(again, OPENING, len(texts), record, running)
        if reply.malformed and self._cfg.on_malformed == "dead_letter":
            raise Refusal(f"no order in the reply {record.replies[-1]!r}")
        record.repairs.append(reply.repairs)
        record.malformed += reply.malformed
        return range(1, len(texts) + 1) if reply.malformed else reply.ids

    async def _ask(
        self, prompt_ids: list[int], begun: str, n: int, record: "_Record", running: Running
    ) -> Reply:
        """The reply to a prompt that has begun it with the text `begun`."""
        key = tuple(prompt_ids)
        if key not in running:
            running[key] = asyncio.ensure_future(self._complete(prompt_ids, n))
        made = await running[key]
        text = begun + made.text
        record.replies.append(text)
        record.tokens += made.prompt_tokens + made.answer_tokens
        return replies.parse(text, n, dropout=self._dropout)

    async def _complete(self, prompt_ids: Sequence[int], n: int) -> Completion:
        limit = self._cfg.max_tokens
        if self._cfg.constrained and isinstance(self._generator, Constrained):
            held = replies.pattern(n, dropout=self._dropout)
            return await self._generator.complete_matching(prompt_ids, held, max_tokens=limit)
        return await self._generator.complete(prompt_ids, max_tokens=limit)


class _Record:
    """What the requests of one row came to."""

    def __init__(self) -> None:
        self.calls = self.retries = self.malformed = self.tokens = 0
        self.replies: list[str] = []
        self.repairs: list[dict[str, int]] = []

    def plain(self) -> dict[str, Any]:
        """The fields of schema.RANKING beside the positions."""
        names = ("calls", "retries", "malformed", "tokens", "replies")
        return {
            **{name: getattr(self, name) for name in names},
            "repairs": replies.total(self.repairs),
        }
