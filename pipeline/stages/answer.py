"""Answer: every distinct prompt of a question, generated once however many arms share it."""

import asyncio
from collections.abc import Mapping
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from pipeline import schema
from pipeline.config import AnswerConfig
from pipeline.engines.base import Completion, Generator, Refusal
from pipeline.engines.table import Engines
from pipeline.prompts.render import PassageFormat
from pipeline.stages.select import arm_prompt
from pipeline.stages.stage import ERROR, Stage, Transform, add_columns

ADDS = pa.schema([schema.ANSWERS])


def stage(
    cfg: AnswerConfig, *, passage_format: PassageFormat, generator: Mapping[str, Any]
) -> Stage:
    """The stage over a generator whose description (engines.models.describe) is `generator`."""

    def build(engines: Engines) -> Transform:
        return Answer(cfg, passage_format, engines.generator)

    return Stage(
        name="answer",
        needs=("question", "candidates", "arms"),
        adds=ADDS,
        depends_on={**cfg.plain(), "generator": generator},
        build=build,
        pool="generator",
        durable=True,
        counts=_counts,
    )


class Answer:
    """The transform: holds the generator, and runs equal prompts of a block once."""

    def __init__(
        self, cfg: AnswerConfig, passage_format: PassageFormat, generator: Generator
    ) -> None:
        self._cfg, self._format, self._generator = cfg, passage_format, generator

    async def __call__(self, table: pa.Table) -> pa.Table:
        """The block with answers; `error` where a prompt was refused."""
        running: dict[str, asyncio.Task[Completion]] = {}
        made = await asyncio.gather(*(self._row(row, running) for row in table.to_pylist()))
        return add_columns(
            table,
            {schema.ANSWERS: [row[0] for row in made], ERROR: [row[1] for row in made]},
        )

    async def _row(
        self, row: Mapping[str, Any], running: dict[str, "asyncio.Task[Completion]"]
    ) -> tuple[list[dict[str, Any]] | None, str | None]:
        """(answers, None), or (None, reason)."""
        arm_by_prompt = {arm["prompt_id"]: arm for arm in reversed(row["arms"])}
        arm_by_prompt.pop(None, None)
        ids = sorted(arm_by_prompt)
        for prompt_id in ids:
            if prompt_id not in running:
                running[prompt_id] = asyncio.ensure_future(
                    self._complete(row, arm_by_prompt[prompt_id])
                )
        tasks = [running[prompt_id] for prompt_id in ids]
        results = await asyncio.gather(*tasks, return_exceptions=True)
        answers = []
        for prompt_id, result in zip(ids, results, strict=True):
            if isinstance(result, Refusal):
                return None, f"prompt of arm {arm_by_prompt[prompt_id]['arm']!r}: {result}"
            if isinstance(result, BaseException):
                raise result
            answers.append({"prompt_id": prompt_id, **vars(result)})
        return answers, None

    async def _complete(self, row: Mapping[str, Any], arm: Mapping[str, Any]) -> Completion:
        prompt = arm_prompt(row["question"], row["candidates"], arm, self._cfg, self._format)
        if prompt is None:
            raise ValueError(f"arm {arm['arm']!r} abstains and yet has a prompt id")
        prompt_ids = self._generator.tokenizer.encode(prompt)
        return await self._generator.complete(prompt_ids, max_tokens=self._cfg.max_tokens)


def _counts(table: pa.Table) -> dict[str, float]:
    answers = table[schema.ANSWERS.name].combine_chunks().flatten()
    tokens = [
        pc.sum(answers.field(name)).as_py() or 0 for name in ("prompt_tokens", "answer_tokens")
    ]
    return {"prompts": len(answers), "tokens": sum(tokens)}
