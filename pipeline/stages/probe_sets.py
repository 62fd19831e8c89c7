"""Probe sets: greedy information gain over sets of passages, round by round.

Round 1 takes the passage of the largest gain, whose rollouts the probe has made. Each later round
asks NU(q | S + d) of every passage d that is left, and takes the one that lowers NU(q | S) most.
Passages of a set stand in the order they were chosen in, a blank line between them.

A question's key stands for what its rounds are made of, so rounds that another plan has stored are
taken up where they go far enough, and cut to what this stage would make.
Source: "Less is More for RAG", section 5.3.
"""

import asyncio
import hashlib
import json
import math
from collections.abc import Collection, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa

from pipeline import schema
from pipeline.config import ProbeConfig
from pipeline.core.admission import order
from pipeline.engines.base import Generator, Refusal
from pipeline.engines.table import Engines
from pipeline.prompts import render
from pipeline.stages.probe import stored_nu
from pipeline.stages.stage import ERROR, Family, Stage, Transform, add_columns

ADDS = pa.schema([schema.SETS])
KEYS = "sets.key"
LISTS = ("positions", "gains", "rollouts", "tokens")

Rounds: TypeAlias = Mapping[str, Any]
"""A question's rounds, as schema.SETS holds them."""


def stage(
    cfg: ProbeConfig, generator: Mapping[str, Any], *, max_rounds: int, threshold: float
) -> Stage:
    """The stage; it goes on for `max_rounds` or until a round's best gain is below `threshold`.

    Any higher threshold and any smaller number of rounds ends in a prefix of what it finds.
    """

    def build(engines: Engines) -> Transform:
        return ProbeSets(cfg, engines.generator, max_rounds, threshold)

    family = {
        "generator": generator,
        "prompts": render.fingerprint(render.PROBE_TEMPLATES),
        **cfg.plain(exclude={"trace", "free_rule_threshold", "early_stop_threshold"}),
    }
    return Stage(
        name="probe_sets",
        needs=("question", "candidates", "probes", "gains"),
        adds=ADDS,
        depends_on={
            "max_rounds": max_rounds,
            "threshold": "-inf" if threshold == -math.inf else threshold,
            **family,
        },
        family=Family(
            family, KEYS, partial(_wanted, passage_format=cfg.passage_format), grows=True
        ),
        build=build,
        pool="generator",
        durable=True,
        counts=partial(_counts, max_rounds=max_rounds, threshold=threshold),
    )


class ProbeSets:
    """The transform: holds the generator."""

    def __init__(
        self, cfg: ProbeConfig, generator: Generator, max_rounds: int, threshold: float
    ) -> None:
        self._cfg, self._generator = cfg, generator
        self._max_rounds, self._threshold = max_rounds, threshold

    async def __call__(self, table: pa.Table, earlier: pa.Table | None) -> pa.Table:
        """The block with the rounds; `error` where a rollout was refused.

        earlier: the column `sets` of rows of other plans.
        """
        stored = _stored(earlier)
        made = await asyncio.gather(*(self._row(row, stored) for row in table.to_pylist()))
        return add_columns(
            table, {schema.SETS: [row[0] for row in made], ERROR: [row[1] for row in made]}
        )

    async def _row(
        self, row: Mapping[str, Any], stored: Mapping[str, Rounds]
    ) -> tuple[Rounds | None, str | None]:
        """(rounds, None), or (None, reason)."""
        passages = _passages(row, self._cfg.passage_format)
        key, measured = _key(row, passages), [nu for nu in row["probes"]["nu"] if nu is not None]
        if key in stored:
            rounds = cut(stored[key], max_rounds=self._max_rounds, threshold=self._threshold)
            if self._ended(rounds["gains"], left=len(measured) - len(rounds["gains"])):
                return rounds, None
        try:
            return {"key": key, **await self._search(row, passages)}, None
        except Refusal as refusal:
            return None, str(refusal)

    def _ended(self, gains: Sequence[float], *, left: int) -> bool:
        """Whether no round comes after those of these gains."""
        below = bool(gains) and gains[-1] < self._threshold
        return below or left == 0 or len(gains) == self._max_rounds

    async def _search(self, row: Mapping[str, Any], passages: Sequence[str]) -> dict[str, Any]:
        """The lists of the rounds; Refusal, naming the round, where one of its rollouts is."""
        nu_of: dict[int, float] = {
            i: nu for i, nu in enumerate(row["probes"]["nu"]) if nu is not None
        }
        nu, rollouts, tokens = row["probes"]["nu0"], 0, 0
        made: dict[str, list[Any]] = {name: [] for name in LISTS}
        while not self._ended(made["gains"], left=len(nu_of)):
            if made["positions"]:
                rollouts = len(nu_of)
                chosen = made["positions"]
                nu_of, tokens = await self._round(row["question"], passages, chosen, nu_of)
            gain_of = [_gain(nu, nu_of[i]) if i in nu_of else None for i in range(len(passages))]
            best = order(gain_of)[0]
            values = (best, gain_of[best], rollouts, tokens)
            for name, value in zip(LISTS, values, strict=True):
                made[name].append(value)
            nu = nu_of.pop(best)
        return made

    async def _round(
        self, question: str, passages: Sequence[str], chosen: Sequence[int], left: Collection[int]
    ) -> tuple[dict[int, float], int]:
        """NU(q | S + d) by position d of `left`, and the tokens that it took; Refusal."""
        prompts = []
        for position in left:
            context = "\n\n".join(passages[i] for i in (*chosen, position))
            prompt = render.probe(question, context, self._cfg.template)
            prompts.append(self._generator.tokenizer.encode(prompt))
        tasks = [asyncio.ensure_future(self._generator.rollout(ids)) for ids in prompts]
        results = await asyncio.gather(*tasks, return_exceptions=True)
        nu_of, tokens = {}, 0
        for position, ids, result in zip(left, prompts, results, strict=True):
            if isinstance(result, Refusal):
                raise Refusal(f"rollout of round {len(chosen) + 1}: {result}")
            if isinstance(result, BaseException):
                raise result
            nu_of[position] = stored_nu(result)
            tokens += len(ids) + len(result.token_ids)
        return nu_of, tokens


def cut(rounds: Rounds, *, max_rounds: int, threshold: float) -> dict[str, Any]:
    """The rounds up to the first whose gain is below the threshold, at most `max_rounds`."""
    below = (i for i, gain in enumerate(rounds["gains"]) if gain < threshold)
    kept = min(next(below, max_rounds) + 1, max_rounds)
    return {"key": rounds["key"], **{name: rounds[name][:kept] for name in LISTS}}


def _stored(earlier: pa.Table | None) -> dict[str, Rounds]:
    """The rounds of other plans by key, the most that there are of each question."""
    if earlier is None:
        return {}
    known = [rounds for rounds in earlier[schema.SETS.name].to_pylist() if rounds is not None]
    return {rounds["key"]: rounds for rounds in sorted(known, key=lambda r: len(r["positions"]))}


def _wanted(rows: pa.Table, *, passage_format: render.PassageFormat) -> Iterator[str]:
    """The keys of the rows' rounds."""
    for row in rows.select(["question", "candidates", "probes"]).to_pylist():
        yield _key(row, _passages(row, passage_format))


def _passages(row: Mapping[str, Any], passage_format: render.PassageFormat) -> list[str]:
    return [render.passage(c["title"], c["text"], passage_format) for c in row["candidates"]]


def _key(row: Mapping[str, Any], passages: Sequence[str]) -> str:
    """Of all that decides a question's rounds beside the settings."""
    probes = row["probes"]
    text = json.dumps([row["question"], passages, probes["nu0"], probes["nu"]])
    return hashlib.sha256(text.encode()).hexdigest()[:24]


def _gain(nu: float, nu_with: float) -> float:
    """As it is stored, so that selection decides on the same value and round 1 on the probe's."""
    return float(np.float32(nu - nu_with))


def _counts(
    part: pa.Table, earlier: pa.Table | None, *, max_rounds: int, threshold: float
) -> dict[str, float]:
    """Of the rollouts that were made, those of rounds taken up left out."""
    stored = _stored(earlier)
    taken = {
        key: cut(rounds, max_rounds=max_rounds, threshold=threshold)
        for key, rounds in stored.items()
    }
    rows = [rounds for rounds in part[schema.SETS.name].to_pylist() if rounds is not None]
    new = [rounds for rounds in rows if rounds != taken.get(rounds["key"])]
    return {name: sum(sum(rounds[name]) for rounds in new) for name in ("rollouts", "tokens")}
