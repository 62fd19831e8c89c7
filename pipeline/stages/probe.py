"""Probe: one greedy rollout without evidence and one with each passage, and the gain of each.

The unconditional rollout of a question runs first. Where the free rule shows that nothing can
be admitted, or every arm's gate on NU(q) hands over, its conditional rollouts are skipped;
otherwise all N start at once. With `early_stop_threshold` a conditional rollout is cut at the step
after which its gain cannot reach the threshold: the engine may end it there, and what an engine
makes beyond it is thrown away, so a row does not depend on when the engine ended. Questions do not
wait for each other. All must succeed, or the question dies with the reason.

A rollout is known by its prompt, and its limit where it may be ended early. Equal ones of a block
are made once, and what another plan has stored, over any input, is taken up.
"""

import asyncio
import hashlib
import json
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa

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
from pipeline.stages import rollouts
from pipeline.stages.rollouts import Made
from pipeline.stages.stage import ERROR, Family, Stage, Transform, add_columns

ADDS = (schema.PROBES, schema.GAINS)
_TO_JSON = json.JSONEncoder(sort_keys=True).encode  # made once: json.dumps makes one a call


Running: TypeAlias = dict[tuple[str, float], "asyncio.Future[Made]"]
"""A block's rollouts by the prompt's key and the limit."""


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

    which = {"spared_below": spared_below, "free_rule_threshold": cfg.free_rule_threshold}
    unset = set() if stops else {"early_stop_threshold"}
    shared = {
        "generator": generator,
        "prompts": render.fingerprint(render.PROBE_TEMPLATES),
        **cfg.plain(exclude={"free_rule_threshold", *unset}),
    }
    return Stage(
        name="probe",
        needs=("question", "candidates"),
        adds=pa.schema([*ADDS, *[schema.EARLY_STOPPED] * stops]),
        depends_on={**shared, **which},
        family=Family(shared, rollouts.KEYS, partial(wanted, cfg=cfg)),
        build=build,
        pool="generator",
        durable=True,
        counts=rollouts.counts,
    )


class Probe:
    """The transform: holds the generator, and makes no rollout of a block twice."""

    def __init__(
        self, cfg: ProbeConfig, generator: Generator, *, spared_below: float | None = None
    ) -> None:
        self._cfg, self._generator = cfg, generator
        limits = (cfg.free_rule_threshold, cfg.early_stop_threshold, spared_below)
        self._limits = [limit for limit in limits if limit is not None]

    async def __call__(self, table: pa.Table, earlier: pa.Table | None = None) -> pa.Table:
        """The block with probes and gains; `error` where a rollout was refused.

        earlier: the same columns of rows of other plans.
        """
        running = self._taken_up(earlier)
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
        prompts = _prompts(question, candidates, self._cfg)
        keys = [_key(prompt) for prompt in prompts]
        at = "without evidence"
        try:
            first = await self._once(keys[0], prompts[0], running)
            nu0 = first.nu
            if nu0 is None:
                raise ValueError("a rollout without evidence has no limit, and yet was ended")
            free = any(nothing_can_be_admitted(nu0, threshold=limit) for limit in self._limits)
            done = [first]
            nu: list[float | None] = [None] * len(candidates)
            if not free:
                limit = self._limit(nu0)
                pairs = zip(keys[1:], prompts[1:], strict=True)
                tasks = [self._once(key, prompt, running, limit) for key, prompt in pairs]
                results = await asyncio.gather(*tasks, return_exceptions=True)
                for position, result in enumerate(results):
                    at = f"with passage {candidates[position]['passage_id']!r}"
                    if isinstance(result, BaseException):
                        raise result
                    done.append(result)
                nu = [rollout.nu for rollout in done[1:]]
        except Refusal as refusal:
            return None, None, None, f"rollout {at}: {refusal}"
        except Exception as error:  # what no engine announces ends the run, and says where
            error.add_note(f"at question {question!r}, rollout {at}")
            raise
        stopped = [value is None and not free for value in nu]
        probes = {"nu0": nu0, "nu": nu, "free_rule": free, **rollouts.record(keys, done)}
        return probes, information_gain(nu0, nu), stopped, None

    def _limit(self, nu0: float) -> float:
        """The sum of a conditional rollout's u beyond which it is ended; inf: it never is."""
        threshold = self._cfg.early_stop_threshold
        if threshold is None:
            return math.inf
        return pruning_limit(nu0, max_tokens=self._cfg.max_tokens, threshold=threshold)

    def _once(
        self, key: str, prompt: render.Prompt, running: Running, limit: float = math.inf
    ) -> "asyncio.Future[Made]":
        if (key, limit) not in running:
            running[key, limit] = asyncio.ensure_future(self._make(prompt, limit))
        return running[key, limit]

    async def _make(self, prompt: render.Prompt, limit: float) -> Made:
        """The rollout up to the step that takes the sum of its u beyond the limit; Refusal.

        An end token stands for the token of that step, which not every engine returns.
        """
        tokenizer = self._generator.tokenizer
        prompt_ids = tokenizer.encode(prompt)
        rollout = await self._generator.rollout(prompt_ids, u_limit=limit)
        nu: float | None = stored_nu(rollout)
        if (steps := first_step_over(rollout.u_T, limit=limit)) is not None:
            nu, ids = None, (*rollout.token_ids[: steps - 1], tokenizer.stop_ids[0])
            u_T, margin_T = rollout.u_T[:steps], rollout.margin_T[:steps]
            rollout = replace(rollout, token_ids=ids, u_T=u_T, margin_T=margin_T)
        return Made(
            nu=nu,
            prompt_tokens=len(prompt_ids),
            answer=tokenizer.decode(rollout.token_ids),
            u=rollout.u_T.tolist(),
            margins=rollout.margin_T.tolist(),
            trace=None if rollout.trace_JT is None else rollout.trace_JT.tolist(),
        )

    def _taken_up(self, earlier: pa.Table | None) -> Running:
        """The stored rollouts, each under the limit that it was made with, as done."""
        loop, running = asyncio.get_running_loop(), Running()
        for one in [] if earlier is None else rollouts.stored(earlier, traced=self._cfg.trace):
            limit = math.inf if one.nu0 is None else self._limit(one.nu0)
            if (one.key, limit) not in running:
                running[one.key, limit] = done = loop.create_future()
                done.set_result(one.made)
        return running


def stored_nu(rollout: Rollout) -> float:
    """NU as it is stored, in float32, so that every later decision sees the same value."""
    try:
        return float(np.float32(normalised_uncertainty(rollout.u_T)))
    except ValueError as error:  # logits that overflowed, say
        raise Refusal(f"no usable uncertainty: {error}") from error


def _prompts(
    question: str, candidates: Sequence[Mapping[str, Any]], cfg: ProbeConfig
) -> list[render.Prompt]:
    """(N+1) prompts, the one without evidence first."""
    passages = [render.passage(c["title"], c["text"], cfg.passage_format) for c in candidates]
    return [render.probe(question, context, cfg.template) for context in (None, *passages)]


def _key(prompt: render.Prompt) -> str:
    return hashlib.sha256(_TO_JSON(prompt).encode()).hexdigest()[:24]


def wanted(rows: pa.Table, *, cfg: ProbeConfig) -> Iterator[str]:
    """The keys of all prompts of the rows, those that a limit may spare included."""
    questions = zip(rows["question"].to_pylist(), rows["candidates"].to_pylist(), strict=True)
    for question, candidates in questions:
        yield from map(_key, _prompts(question, candidates, cfg))
