"""Probe: one greedy rollout without evidence and one with each passage, and the gain of each.

The unconditional rollout of a question runs first. Where the free rule shows that nothing can
be admitted, or every arm's gate on NU(q) hands over, its conditional rollouts are skipped;
otherwise all N start at once. With `early_stop_threshold` a conditional rollout is cut at the step
after which its gain cannot reach the threshold: the engine may end it there, and what an engine
makes beyond it is thrown away, so a row does not depend on when the engine ended. Questions do not
wait for each other. All must succeed, or the question dies with the reason.
"""

import asyncio
import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from pipeline import schema
from pipeline.config import ProbeConfig
from pipeline.core.uncertainty import (
    first_step_over,
    information_gain,
    normalised_uncertainty,
    nothing_can_be_admitted,
    pruning_limit,
)
from pipeline.engines.base import Generator, Refusal, Rollout
from pipeline.engines.table import Engines
from pipeline.prompts import render
from pipeline.stages.stage import ERROR, Stage, Transform, add_columns

Running: TypeAlias = dict[tuple[tuple[int, ...], float], "asyncio.Task[Rollout]"]
"""A block's rollouts by prompt and limit."""
ADDS = (schema.PROBES, schema.GAINS)


def stage(
    cfg: ProbeConfig, generator: Mapping[str, Any], *, spared_below: float | None = None
) -> Stage:
    """The stage over a generator whose description (engines.models.describe) is `generator`.

    spared_below: where NU(q) is below it, no arm of the run reads the conditional rollouts, and
    they are not made.
    """

    stops = cfg.early_stop_threshold is not None

    def build(engines: Engines) -> Transform:
        return Probe(cfg, engines.generator, spared_below=spared_below)

    return Stage(
        name="probe",
        needs=("question", "candidates"),
        adds=pa.schema([*ADDS, *[schema.EARLY_STOPPED] * stops]),
        depends_on={
            "generator": generator,
            "prompts": render.fingerprint(render.PROBE_TEMPLATES),
            "spared_below": spared_below,
            **cfg.plain(exclude=None if stops else {"early_stop_threshold"}),
        },
        build=build,
        pool="generator",
        durable=True,
        counts=_counts,
    )


class Probe:
    """The transform: holds the generator, and runs equal prompts of a block once."""

    def __init__(
        self, cfg: ProbeConfig, generator: Generator, *, spared_below: float | None = None
    ) -> None:
        self._cfg, self._generator = cfg, generator
        limits = (cfg.free_rule_threshold, cfg.early_stop_threshold, spared_below)
        self._limits = [limit for limit in limits if limit is not None]

    async def __call__(self, table: pa.Table) -> pa.Table:
        """The block with probes and gains; `error` where a rollout was refused."""
        running: Running = {}
        rows = zip(table["question"].to_pylist(), table["candidates"].to_pylist(), strict=True)
        made = await asyncio.gather(
            *(self._question(question, candidates, running) for question, candidates in rows)
        )
        columns = {schema.PROBES: 0, schema.GAINS: 1, ERROR: 3}
        if self._cfg.early_stop_threshold is not None:
            columns[schema.EARLY_STOPPED] = 2
        return add_columns(
            table, {column: [row[i] for row in made] for column, i in columns.items()}
        )

    async def _question(
        self,
        question: str,
        candidates: Sequence[Mapping[str, Any]],
        running: Running,
    ) -> tuple[dict[str, Any] | None, list[float | None] | None, list[bool] | None, str | None]:
        """(probes, gains, early_stopped, None), or (None, None, None, reason)."""
        passages = [
            render.passage(c["title"], c["text"], self._cfg.passage_format) for c in candidates
        ]
        prompts = [
            render.probe(question, context, self._cfg.template) for context in (None, *passages)
        ]
        at = "without evidence"
        try:
            prompt_ids = [self._generator.tokenizer.encode(prompt) for prompt in prompts]
            first = await self._once(prompt_ids[0], running)
            nu0 = stored_nu(first)
            free = any(nothing_can_be_admitted(nu0, threshold=limit) for limit in self._limits)
            rollouts, stopped = [first], [False] * len(candidates)
            nu: list[float | None] = [None] * len(candidates)
            if not free:
                limit = self._limit(nu0)
                tasks = [self._once(ids, running, limit) for ids in prompt_ids[1:]]
                results = await asyncio.gather(*tasks, return_exceptions=True)
                for position, result in enumerate(results):
                    at = f"with passage {candidates[position]['passage_id']!r}"
                    if isinstance(result, BaseException):
                        raise result
                    measured = stored_nu(result)
                    result, stopped[position] = self._cut(result, limit)
                    nu[position] = None if stopped[position] else measured
                    rollouts.append(result)
        except Refusal as refusal:
            return None, None, None, f"rollout {at}: {refusal}"
        except Exception as error:  # what no engine announces ends the run, and says where
            error.add_note(f"at question {question!r}, rollout {at}")
            raise
        probes = self._record(nu0, nu, rollouts, prompt_ids, free)
        return probes, information_gain(nu0, nu), stopped, None

    def _limit(self, nu0: float) -> float:
        """The sum of a conditional rollout's u beyond which it is ended; inf: it never is."""
        threshold = self._cfg.early_stop_threshold
        if threshold is None:
            return math.inf
        return pruning_limit(nu0, max_tokens=self._cfg.max_tokens, threshold=threshold)

    def _cut(self, rollout: Rollout, limit: float) -> tuple[Rollout, bool]:
        """The rollout up to the step that took its sum beyond the limit, and whether one did.

        An end token stands for the token of that step, which not every engine returns.
        """
        steps = first_step_over(rollout.u_T, limit=limit)
        if steps is None:
            return rollout, False
        ids = (*rollout.token_ids[: steps - 1], self._generator.tokenizer.stop_ids[0])
        u_T, margin_T = rollout.u_T[:steps], rollout.margin_T[:steps]
        return replace(rollout, token_ids=ids, u_T=u_T, margin_T=margin_T), True

    def _once(
        self, prompt_ids: list[int], running: Running, u_limit: float = math.inf
    ) -> "asyncio.Task[Rollout]":
        key = tuple(prompt_ids), u_limit
        if key not in running:
            made = self._generator.rollout(prompt_ids, u_limit=u_limit)
            running[key] = asyncio.ensure_future(made)
        return running[key]

    def _record(
        self,
        nu0: float,
        nu: Sequence[float | None],
        rollouts: Sequence[Rollout],
        prompt_ids: Sequence[Sequence[int]],
        free: bool,
    ) -> dict[str, Any]:
        answers = [self._generator.tokenizer.decode(r.token_ids) for r in rollouts]
        traces = [r.trace_JT.tolist() for r in rollouts if r.trace_JT is not None]
        return {
            "nu0": nu0,
            "nu": nu,
            "steps": [len(r.token_ids) for r in rollouts],
            "prompt_tokens": [len(ids) for ids in prompt_ids[: len(rollouts)]],
            "answers": answers,
            "u": [r.u_T.tolist() for r in rollouts],
            "margins": [r.margin_T.tolist() for r in rollouts],
            "trace": traces or None,
            "free_rule": free,
        }


def stored_nu(rollout: Rollout) -> float:
    """NU as it is stored, in float32, so that every later decision sees the same value."""
    try:
        return float(np.float32(normalised_uncertainty(rollout.u_T)))
    except ValueError as error:  # logits that overflowed, say
        raise Refusal(f"no usable uncertainty: {error}") from error


def _counts(table: pa.Table) -> dict[str, float]:
    probes = table[schema.PROBES.name].combine_chunks()
    steps = probes.field("steps").flatten()
    stopped: dict[str, float] = {}
    if schema.EARLY_STOPPED.name in table.column_names:
        flags = table[schema.EARLY_STOPPED.name].combine_chunks().flatten()
        stopped["early_stopped"] = pc.sum(flags).as_py() or 0
    return {
        **stopped,
        "rollouts": len(steps),
        "tokens": (pc.sum(steps).as_py() or 0)
        + (pc.sum(probes.field("prompt_tokens").flatten()).as_py() or 0),
    }
