"""Evaluate: every arm's answer against the golden answers, question by question."""

import json
import math
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from pipeline import schema
from pipeline.core import answers as metrics
from pipeline.core import ranking
from pipeline.core.refusals import REFUSAL_PATTERNS_VERSION, is_refusal
from pipeline.engines.table import Engines
from pipeline.stages.arms import ORACLE
from pipeline.stages.select import is_single
from pipeline.stages.stage import Stage, Transform, add_columns

ADDS = pa.schema([schema.METRICS, schema.REFUSED, schema.EMPTY_GOLDS])
NDCG_K = 5


def stage(refusal_patterns: Sequence[str] = (), *, probed: bool = True) -> Stage:
    """The stage; an arm that abstains has the empty answer, of no tokens.

    Without probes `refused` is null: the plan has none (`probed` false), or no arm needs them and
    the question's were refused.
    """

    def build(engines: Engines) -> Transform:
        refuses = partial(is_refusal, extra_patterns=refusal_patterns)

        def evaluate(table: pa.Table) -> pa.Table:
            rows = table.to_pylist()
            columns: dict[pa.Field, list[Any]] = {
                schema.METRICS: [_row(row, refuses) for row in rows],
                schema.REFUSED: [
                    refuses(row["probes"]["answers"][0]) if row.get("probes") else None
                    for row in rows
                ],
                schema.EMPTY_GOLDS: [metrics.empty_golds(row["golden_answers"]) for row in rows],
            }
            return add_columns(table, columns)

        return evaluate

    return Stage(
        name="evaluate",
        needs=("golden_answers", "metadata", "candidates", "arms", "answers"),
        reads=("judgements", *(["probes"] if probed else [])),
        adds=ADDS,
        depends_on={"refusals": [REFUSAL_PATTERNS_VERSION, *refusal_patterns], "ndcg_k": NDCG_K},
        build=build,
        counts=_counts,
    )


def _row(row: Mapping[str, Any], refuses: Callable[[str], bool]) -> list[dict[str, Any]]:
    answer_by_id = {answer["prompt_id"]: answer for answer in row["answers"]}
    abstained: Mapping[str, Any] = {"text": "", "prompt_tokens": 0, "answer_tokens": 0}
    wrong_answers = json.loads(row["metadata"]).get("wrong_answers") or []
    qualities: dict[str | None, dict[str, float | bool | None]] = {}
    ndcgs: dict[tuple[int, ...], tuple[float, float]] = {}
    measured = []
    for arm in row["arms"]:
        answer = answer_by_id[arm["prompt_id"]] if arm["prompt_id"] else abstained
        if arm["prompt_id"] not in qualities:
            quality = _quality(answer["text"], row["golden_answers"], wrong_answers)
            qualities[arm["prompt_id"]] = quality | {"refusal": refuses(answer["text"])}
        shown = tuple(arm["order"] or ())
        if shown not in ndcgs:
            ndcgs[shown] = _ndcg(shown, row["candidates"], row["judgements"])
        measured.append(
            {
                "arm": arm["arm"],
                **qualities[arm["prompt_id"]],
                "prompt_tokens": answer["prompt_tokens"],
                "answer_tokens": answer["answer_tokens"],
                "evidence_size": len(arm["evidence"]),
                "admitted": arm["admitted"],
                "certain": arm["certain"],
                "ndcg": ndcgs[shown][0],
                "ndcg_candidates": ndcgs[shown][1],
            }
        )
    return with_oracle(measured, by=("f1", "sub_em"))


def _quality(
    text: str, golds: Sequence[str], wrong_answers: Sequence[str]
) -> dict[str, float | bool | None]:
    return {
        "f1": metrics.f1(text, golds),
        "em": metrics.exact_match(text, golds),
        "sub_em": metrics.sub_exact_match(text, golds),
        "wrong": metrics.wrong_answer(text, wrong_answers, golds) if wrong_answers else None,
    }


def with_oracle(
    measured: Sequence[Mapping[str, Any]], *, by: Sequence[str]
) -> list[dict[str, Any]]:
    """The arms' metrics with those of single passages replaced by the best one's, as `oracle`.

    Best by these metrics, a later one for equals of the earlier, then by retrieval rank; where
    they are undefined the first passage stands.
    """
    singles = [row for row in measured if is_single(row["arm"])]
    others = [dict(row) for row in measured if not is_single(row["arm"])]
    if not singles:
        return others
    best = max(singles, key=lambda row: [_or_zero(row[name]) for name in by])
    place = next(i for i, row in enumerate(measured) if is_single(row["arm"]))
    return [*others[:place], {**best, "arm": ORACLE}, *others[place:]]


def _or_zero(value: float) -> float:
    return 0.0 if math.isnan(value) else value


def _ndcg(
    shown: Sequence[int],
    candidates: Sequence[Mapping[str, Any]],
    judgements: Sequence[Mapping[str, Any]] | None,
) -> tuple[float, float]:
    """(NDCG over all judged passages, over the candidates alone) of an order; NaN: undefined."""
    if not shown or judgements is None:
        return math.nan, math.nan
    grades = {j["passage_id"]: j["relevance"] for j in judgements if j["relevance"] is not None}
    rel_K = [float(grades.get(candidates[position]["passage_id"], 0)) for position in shown]
    judged_J = [float(grade) for grade in grades.values()]
    return (
        ranking.ndcg(rel_K, judged_J, k=NDCG_K),
        ranking.ndcg_candidates(rel_K, k=NDCG_K),
    )


def _counts(part: pa.Table) -> dict[str, float]:
    return {"refusals": pc.sum(part[schema.REFUSED.name]).as_py() or 0}
