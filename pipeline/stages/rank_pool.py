"""Rank pool: the retriever's order of the passages that the input gives with each question.

A labelled pool comes in the order of its file, which is no ranking and may give the labels away;
here the first-stage retriever ranks it, and the cut keeps what that retriever likes best.
"""

import hashlib
import math
from collections.abc import Sequence
from typing import Any

import pyarrow as pa

from pipeline import schema
from pipeline.config import RetrieverConfig
from pipeline.engines import indexes
from pipeline.engines.base import Passage, Refusal, Retriever
from pipeline.engines.table import Engines
from pipeline.stages.retrieve import counts, unchanged
from pipeline.stages.stage import ERROR, Stage, Transform, add_columns

ADDS = pa.schema([schema.CANDIDATES])


def stage(cfg: RetrieverConfig, *, max_candidates: int | None) -> Stage:
    """The stage over the indexes that `cfg` names, as they are now; None: the pool stays whole.

    ModelNotFound where one is missing; in a worker, where one has changed since.
    """
    searched = indexes.describe(cfg)

    def build(engines: Engines) -> Transform:
        retriever = unchanged(engines.retriever, cfg, searched)
        return lambda table: rank(table, retriever, max_candidates)

    return Stage(
        name="rank_pool",
        needs=("question", schema.POOL.name),
        adds=ADDS,
        depends_on={**searched, "max_candidates": max_candidates},
        build=build,
        pool="retriever",
        durable=True,
        counts=counts,
    )


def rank(table: pa.Table, retriever: Retriever, max_candidates: int | None) -> pa.Table:
    """The block with the best `max_candidates` of each pool; `error` where the retriever refuses
    a passage or its score is no number. Ties go by a hash, so that the file's order says nothing.
    """
    rows: list[list[dict[str, Any]] | None] = []
    errors: list[str | None] = []
    pools = table[schema.POOL.name].to_pylist()
    for question, pool in zip(table["question"].to_pylist(), pools, strict=True):
        try:
            rows.append(_ranked(question, pool, retriever)[:max_candidates])
            errors.append(None)
        except Refusal as refusal:
            rows.append(None)
            errors.append(str(refusal))
    return add_columns(table, {schema.CANDIDATES: rows, ERROR: errors})


def _ranked(
    question: str, pool: Sequence[dict[str, Any]], retriever: Retriever
) -> list[dict[str, Any]]:
    passages = [Passage(p["passage_id"], p["title"], p["text"]) for p in pool]
    scores = retriever.score(question, passages)
    for passage, score in zip(passages, scores, strict=True):
        if not math.isfinite(score):
            raise Refusal(f"the retriever's score of passage {passage.passage_id!r} is {score}")
    scored = [{**p, "score": score} for p, score in zip(pool, scores, strict=True)]
    return sorted(scored, key=lambda c: (-c["score"], _lot(question, c["passage_id"])))


def _lot(question: str, passage_id: str) -> bytes:
    return hashlib.sha256(f"{question}\0{passage_id}".encode()).digest()
