"""Rollouts as the column `probes` holds them: written, read back, told apart and counted.

A part's rollouts are numbered through, question by question, the one without evidence first.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from pipeline import schema

KEYS = "probes.keys"
"""Parquet path of the prompts' keys."""


@dataclass(frozen=True)
class Made:
    """One rollout. `nu` is None where it was ended early; `trace` is by J and step."""

    nu: float | None
    prompt_tokens: int
    answer: str
    u: list[float]
    margins: list[float]
    trace: list[list[float]] | None


class Stored(NamedTuple):
    """A rollout of a stored row: its prompt's key, and NU(q), from which its limit follows; None
    where it is the one without evidence, which has no limit."""

    key: str
    nu0: float | None
    made: Made


def record(keys: Sequence[str], made: Sequence[Made]) -> dict[str, Any]:
    """The lists of `probes` over a question's rollouts; more keys may stand behind."""
    traces = [rollout.trace for rollout in made if rollout.trace is not None]
    return {
        "keys": keys[: len(made)],
        "steps": [len(rollout.u) for rollout in made],
        "prompt_tokens": [rollout.prompt_tokens for rollout in made],
        "answers": [rollout.answer for rollout in made],
        "u": [rollout.u for rollout in made],
        "margins": [rollout.margins for rollout in made],
        "trace": traces or None,
    }


def stored(table: pa.Table, *, traced: bool) -> Iterator[Stored]:
    """Every rollout of a table of the probe's columns, which hold traces where `traced`."""
    names = ("keys", "prompt_tokens", "answers", "u", "margins", *["trace"] * traced)
    lists = [_flat(table, name).to_pylist() for name in names]
    if not traced:
        lists.append([None] * len(lists[0]))
    for (nu0, nu), key, *values in zip(_nu(table), *lists, strict=True):
        yield Stored(key, nu0, Made(nu, *values))


def counts(part: pa.Table, earlier: pa.Table | None = None) -> Mapping[str, float]:
    """`rollouts` are the distinct ones that were made, `taken_up` those that were stored before;
    all else is counted of what was made."""
    known = set() if earlier is None else set(_identities(earlier))
    distinct = {one: number for number, one in enumerate(_identities(part))}
    new = pa.array([i for one, i in distinct.items() if one not in known], pa.int64())
    stopped: dict[str, float] = {}
    if schema.EARLY_STOPPED.name in part.column_names:
        nu = pa.array([nu for _, nu in _nu(part)], pa.float32())
        stopped["early_stopped"] = nu.take(new).null_count
    tokens = [_flat(part, name).take(new) for name in ("steps", "prompt_tokens")]
    return {
        **stopped,
        "rollouts": len(new),
        "taken_up": len(distinct) - len(new),
        "tokens": sum(pc.sum(values).as_py() or 0 for values in tokens),
    }


def _identities(table: pa.Table) -> list[tuple[str, float | None]]:
    """What tells rollouts apart: the key, and NU(q) where it sets a limit."""
    limited = schema.EARLY_STOPPED.name in table.column_names
    keys = _flat(table, "keys").to_pylist()
    return [(key, nu0 if limited else None) for key, (nu0, _) in zip(keys, _nu(table), strict=True)]


def _nu(table: pa.Table) -> Iterator[tuple[float | None, float | None]]:
    """(NU(q) of the question, None at the rollout without evidence; NU) of every rollout."""
    lists = [_field(table, name).to_pylist() for name in ("nu0", "nu", "steps")]
    for nu0, nu, steps in zip(*lists, strict=True):
        if steps is not None:
            yield None, nu0
            yield from ((nu0, one) for one in nu[: len(steps) - 1])


def _flat(table: pa.Table, name: str) -> pa.Array:
    """A list of `probes`, one entry a rollout."""
    return pc.list_flatten(_field(table, name))


def _field(table: pa.Table, name: str) -> pa.Array:
    return pc.struct_field(table[schema.PROBES.name].combine_chunks(), name)
