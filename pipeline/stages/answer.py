"""Answer: every distinct prompt of a question, generated once however many arms share it.

A prompt's id stands for its text, the model and the generation settings, so an answer that another
plan, of another grid of arms or over another input, has stored is taken up and not generated again.
"""

import asyncio
from collections.abc import Mapping
from typing import Any

import pyarrow as pa

from pipeline import schema
from pipeline.config import AnswerConfig
from pipeline.engines.base import Completion, Generator, Refusal
from pipeline.engines.table import Engines
from pipeline.prompts.render import PassageFormat
from pipeline.stages.known import leaves
from pipeline.stages.select import arm_prompt
from pipeline.stages.stage import ERROR, Family, Stage, Transform, add_columns

ADDS = pa.schema([schema.ANSWERS])
KEYS = "answers.list.element.prompt_id"


def stage(
    cfg: AnswerConfig, *, passage_format: PassageFormat, generator: Mapping[str, Any]
) -> Stage:
    """The stage over a generator that `generator` describes (engines.models.for_answers)."""

    def build(engines: Engines) -> Transform:
        return Answer(cfg, passage_format, engines.generator)

    return Stage(
        name="answer",
        needs=("question", "candidates", "arms"),
        adds=ADDS,
        depends_on={**cfg.plain(), "generator": generator},
        family=Family({**cfg.plain(), "generator": generator}, KEYS, _wanted),
        build=build,
        pool="generator",
        durable=True,
        counts=_counts,
    )


class Answer:
    """The transform: holds the generator, and generates no prompt twice."""

    def __init__(
        self, cfg: AnswerConfig, passage_format: PassageFormat, generator: Generator
    ) -> None:
        self._cfg, self._format, self._generator = cfg, passage_format, generator

    async def __call__(self, table: pa.Table, earlier: pa.Table | None) -> pa.Table:
        """The block with answers; `error` where a prompt was refused.

        earlier: the column `answers` of rows of other plans.
        """
        loop = asyncio.get_running_loop()
        running: dict[str, asyncio.Future[Completion]] = {}
        for answer in _stored(earlier):
            running[answer.pop("prompt_id")] = known = loop.create_future()
            known.set_result(Completion(**answer))
        made = await asyncio.gather(*(self._row(row, running) for row in table.to_pylist()))
        return add_columns(
            table,
            {schema.ANSWERS: [row[0] for row in made], ERROR: [row[1] for row in made]},
        )

    async def _row(
        self, row: Mapping[str, Any], running: dict[str, "asyncio.Future[Completion]"]
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
                arm = arm_by_prompt[prompt_id]["arm"]
                result.add_note(f"at question {row['question']!r}, prompt of arm {arm!r}")
                raise result
            answers.append({"prompt_id": prompt_id, **vars(result)})
        return answers, None

    async def _complete(self, row: Mapping[str, Any], arm: Mapping[str, Any]) -> Completion:
        prompt = arm_prompt(row["question"], row["candidates"], arm, self._cfg, self._format)
        if prompt is None:
            raise ValueError(f"arm {arm['arm']!r} abstains and yet has a prompt id")
        prompt_ids = self._generator.tokenizer.encode(prompt)
        return await self._generator.complete(prompt_ids, max_tokens=self._cfg.max_tokens)


def _wanted(rows: pa.Table) -> list[str]:
    """The ids of the prompts of the rows' arms."""
    ids: list[str] = leaves(rows, "arms.list.element.prompt_id")[0].to_pylist()
    return ids


def _stored(earlier: pa.Table | None) -> list[dict[str, Any]]:
    """The answers of other plans, one a prompt."""
    if earlier is None:
        return []
    answers = earlier[schema.ANSWERS.name].combine_chunks().flatten().to_pylist()
    return list({answer["prompt_id"]: answer for answer in answers}.values())


def _counts(part: pa.Table, earlier: pa.Table | None) -> dict[str, float]:
    """`prompts` are the distinct ones, `generated` those that were not stored before."""
    answers = part[schema.ANSWERS.name].combine_chunks().flatten().to_pylist()
    known = {answer["prompt_id"] for answer in _stored(earlier)}
    new = {a["prompt_id"]: a for a in answers if a["prompt_id"] not in known}.values()
    return {
        "prompts": len({answer["prompt_id"] for answer in answers}),
        "generated": len(new),
        "tokens": sum(answer["prompt_tokens"] + answer["answer_tokens"] for answer in new),
    }
