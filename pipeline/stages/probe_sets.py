"""Probe sets: greedy information gain over sets of passages, round by round.

Round 1 takes the passage of the largest gain, whose rollouts the probe has made. Each later round
asks NU(q | S + d) of every passage d that is left, and takes the one that lowers NU(q | S) most.
Passages of a set stand in the order they were chosen in, a blank line between them.
Source: "Less is More for RAG", section 5.3.
"""

import asyncio
import math
from collections.abc import Mapping
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from pipeline import schema
from pipeline.config import ProbeConfig
from pipeline.core.admission import order
from pipeline.engines.base import Generator, Refusal
from pipeline.engines.table import Engines
from pipeline.prompts import render
from pipeline.stages.probe import stored_nu
from pipeline.stages.stage import ERROR, Stage, Transform, add_columns

ADDS = pa.schema([schema.SETS])


def stage(
    cfg: ProbeConfig, generator: Mapping[str, Any], *, max_rounds: int, threshold: float
) -> Stage:
    """The stage; it goes on for `max_rounds` or until a round's best gain is below `threshold`.

    Any higher threshold and any smaller number of rounds ends in a prefix of what it finds.
    """

    def build(engines: Engines) -> Transform:
        return ProbeSets(cfg, engines.generator, max_rounds, threshold)

    return Stage(
        name="probe_sets",
        needs=("question", "candidates", "probes", "gains"),
        adds=ADDS,
        depends_on={
            "generator": generator,
            "prompts": render.fingerprint(render.PROBE_TEMPLATES),
            "max_rounds": max_rounds,
            "threshold": "-inf" if threshold == -math.inf else threshold,
            **cfg.plain(exclude={"trace", "free_rule_threshold"}),
        },
        build=build,
        pool="generator",
        durable=True,
        counts=_counts,
    )


class ProbeSets:
    """The transform: holds the generator."""

    def __init__(
        self, cfg: ProbeConfig, generator: Generator, max_rounds: int, threshold: float
    ) -> None:
        self._cfg, self._generator = cfg, generator
        self._max_rounds, self._threshold = max_rounds, threshold

    async def __call__(self, table: pa.Table) -> pa.Table:
        """The block with the rounds; `error` where a rollout was refused."""
        made = await asyncio.gather(*(self._row(row) for row in table.to_pylist()))
        return add_columns(
            table, {schema.SETS: [row[0] for row in made], ERROR: [row[1] for row in made]}
        )

    async def _row(self, row: Mapping[str, Any]) -> tuple[dict[str, Any] | None, str | None]:
        """(rounds, None), or (None, reason)."""
        passages = [
            render.passage(c["title"], c["text"], self._cfg.passage_format)
            for c in row["candidates"]
        ]
        nu_of: dict[int, float] = {
            i: nu for i, nu in enumerate(row["probes"]["nu"]) if nu is not None
        }
        nu, positions, gains = row["probes"]["nu0"], list[int](), list[float]()
        rollouts = tokens = 0
        while nu_of and len(positions) < self._max_rounds:
            gain_of = [_gain(nu, nu_of[i]) if i in nu_of else None for i in range(len(passages))]
            best = order(gain_of)[0]
            gain = _gain(nu, nu_of[best])
            if gain < self._threshold:
                break
            positions.append(best)
            gains.append(gain)
            nu = nu_of[best]
            left = [i for i in sorted(nu_of) if i != best]
            if len(positions) == self._max_rounds:
                break
            try:
                nu_of, used = await self._round(row["question"], passages, positions, left)
            except Refusal as refusal:
                return None, f"rollout of round {len(positions) + 1}: {refusal}"
            rollouts, tokens = rollouts + len(left), tokens + used
        rounds = {"positions": positions, "gains": gains, "rollouts": rollouts, "tokens": tokens}
        return rounds, None

    async def _round(
        self, question: str, passages: list[str], chosen: list[int], left: list[int]
    ) -> tuple[dict[int, float], int]:
        """NU(q | S + d) by position d of `left`, and the tokens that it took."""
        prompts = []
        for position in left:
            context = "\n\n".join(passages[i] for i in (*chosen, position))
            prompt = render.probe(question, context, self._cfg.template)
            prompts.append(self._generator.tokenizer.encode(prompt))
        tasks = [asyncio.ensure_future(self._generator.rollout(ids)) for ids in prompts]
        results = await asyncio.gather(*tasks, return_exceptions=True)
        nu_of, tokens = {}, 0
        for position, ids, result in zip(left, prompts, results, strict=True):
            if isinstance(result, BaseException):
                raise result
            nu_of[position] = stored_nu(result)
            tokens += len(ids) + len(result.token_ids)
        return nu_of, tokens


def _gain(nu: float, nu_with: float) -> float:
    """As it is stored, so that selection decides on the same value and round 1 on the probe's."""
    return float(np.float32(nu - nu_with))


def _counts(part: pa.Table) -> dict[str, float]:
    sets = part[schema.SETS.name].combine_chunks()
    return {name: pc.sum(sets.field(name)).as_py() or 0 for name in ("rollouts", "tokens")}
