"""Finished rows made by hand: what a run's Parquet holds, in as few words as a test needs."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import pyarrow as pa

from pipeline import schema
from pipeline.stages.arms import Arm

SCORE = pa.list_(pa.float32())


def metric(arm: str, f1: float, tokens: int, size: int, **others: Any) -> dict[str, Any]:
    """One arm's metrics of one question; EM and SubEM are 1 where F1 is."""
    exact = f1 if f1 != f1 else float(f1 == 1)
    defaults = {
        "arm": arm,
        "f1": f1,
        "em": exact,
        "sub_em": exact,
        "prompt_tokens": tokens,
        "answer_tokens": 4,
        "evidence_size": size,
        "admitted": size,
        "certain": False,
        "refusal": False,
        "wrong": None,
        "ndcg": float("nan"),
        "ndcg_candidates": float("nan"),
    }
    return defaults | others


def spread(given: Mapping[str, Any]) -> dict[str, Any]:
    """Columns of a frame of means: a tuple is (value, low, high) in three, anything else itself."""
    made: dict[str, Any] = {}
    for key, value in given.items():
        if isinstance(value, tuple):
            made |= dict(zip((key, f"{key}_low", f"{key}_high"), value, strict=True))
        else:
            made[key] = value
    return made


def probe(nu0: float, prompts: list[int], steps: list[int], **others: Any) -> dict[str, Any]:
    """One question's rollouts with what the summary reads."""
    return {
        "nu0": nu0,
        "prompt_tokens": prompts,
        "steps": steps,
        "free_rule": False,
        **others,
    }


def part(rows: Iterable[Mapping[str, Any]], columns: Sequence[str]) -> pa.Table:
    """Rows as a part of a finished run, with columns of the schema and of scorers."""
    return pa.Table.from_pylist(list(rows), schema=pa.schema([field(name) for name in columns]))


def field(name: str) -> pa.Field:
    """A column's field; score_<name> and score_tokens_<stage> are not in the schema's table."""
    if name in schema.COLUMNS:
        return schema.COLUMNS[name]
    return pa.field(name, pa.int32() if name.startswith("score_tokens_") else SCORE)


def plain(arms: Sequence[Arm]) -> list[dict[str, Any]]:
    """The arms as a manifest read back from JSON holds them."""
    return [arm.plain() for arm in arms]
