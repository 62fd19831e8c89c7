"""Score by encoders: a bi-encoder's product of vectors, a cross-encoder's logit.

All texts of a shard go to the model in one call, equal ones once.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, TypeAlias

import pyarrow as pa

from pipeline import schema
from pipeline.config import CrossEncoderConfig, EmbedderConfig
from pipeline.engines import embedder, models, scorer_models
from pipeline.engines.base import CrossEncoder, Floats
from pipeline.engines.embedder import Embedder, Kind
from pipeline.engines.table import Engines
from pipeline.prompts import render
from pipeline.stages.score_counts import counts
from pipeline.stages.stage import ERROR, Stage, Transform, add_columns

BI_ENCODER = pa.schema([schema.score("bi_encoder"), schema.score_tokens("bi_encoder")])
CROSS_ENCODER = pa.schema([schema.score("cross_encoder"), schema.score_tokens("cross_encoder")])

Scored: TypeAlias = tuple[list[float], int]
"""The scores of a row's candidates, and the tokens read for them."""


def bi_encoder(cfg: EmbedderConfig) -> Stage:
    """The stage over a bi-encoder: the product of the question's vector and the passage's."""

    def build(engines: Engines) -> Transform:
        model = engines.embedder
        return lambda table: score_by_vectors(table, model)

    return Stage(
        name="score_bi_encoder",
        needs=("question", "candidates"),
        adds=BI_ENCODER,
        depends_on={"model": models.describe_encoder(cfg, section=scorer_models.BI_ENCODER)},
        build=build,
        pool="embedder",
        durable=True,
        counts=counts("bi_encoder"),
    )


def cross_encoder(cfg: CrossEncoderConfig, passage_format: render.PassageFormat) -> Stage:
    """The stage over a cross-encoder: its logit of question and passage."""

    def build(engines: Engines) -> Transform:
        model = engines.cross_encoder
        return lambda table: score_by_pairs(table, model, passage_format)

    return Stage(
        name="score_cross_encoder",
        needs=("question", "candidates"),
        adds=CROSS_ENCODER,
        depends_on={
            "model": models.describe_encoder(cfg, section=scorer_models.CROSS_ENCODER),
            "passage_format": passage_format,
        },
        build=build,
        pool="cross_encoder",
        durable=True,
        counts=counts("cross_encoder"),
    )


def score_by_vectors(table: pa.Table, model: Embedder) -> pa.Table:
    """The block with the bi-encoder's scores; `error` where one is not a number."""
    texts = [
        [embedder.passage_text(c["title"], c["text"]) for c in candidates]
        for candidates in table["candidates"].to_pylist()
    ]
    questions = table["question"].to_pylist()
    queries = encoded(model, questions, "query")
    passages = encoded(model, (text for row in texts for text in row), "passage")

    def score(question: str, row: Sequence[str]) -> Scored:
        query, tokens = queries[question]
        read = tokens + sum(passages[text][1] for text in set(row))
        return [float(passages[text][0] @ query) for text in row], read

    return _with_scores(table, BI_ENCODER, list(map(score, questions, texts)))


def score_by_pairs(
    table: pa.Table, model: CrossEncoder, passage_format: render.PassageFormat
) -> pa.Table:
    """The block with the cross-encoder's scores; `error` where one is not a number."""
    rows = [
        [(question, render.passage(c["title"], c["text"], passage_format)) for c in candidates]
        for question, candidates in zip(
            table["question"].to_pylist(), table["candidates"].to_pylist(), strict=True
        )
    ]
    pairs = list(dict.fromkeys(pair for row in rows for pair in row))
    logits, tokens = model.score(pairs)
    found = dict(zip(pairs, zip(logits.tolist(), tokens, strict=True), strict=True))
    scored = [
        ([found[pair][0] for pair in row], sum(found[pair][1] for pair in set(row))) for row in rows
    ]
    return _with_scores(table, CROSS_ENCODER, scored)


def encoded(model: Embedder, texts: Iterable[str], kind: Kind) -> dict[str, tuple[Floats, int]]:
    """The vector of each text and its tokens, equal texts once."""
    distinct = list(dict.fromkeys(texts))
    vectors, tokens = model.encode(distinct, kind), model.count_tokens(distinct, kind)
    return dict(zip(distinct, zip(vectors, tokens, strict=True), strict=True))


def _with_scores(table: pa.Table, adds: pa.Schema, scored: Sequence[Scored]) -> pa.Table:
    candidates = table["candidates"].to_pylist()
    errors = [_error(row, scores) for row, (scores, _) in zip(candidates, scored, strict=True)]
    columns: dict[pa.Field, list[Any]] = {
        adds[0]: [scores for scores, _ in scored],
        adds[1]: [tokens for _, tokens in scored],
        ERROR: errors,
    }
    return add_columns(table, columns)


def _error(candidates: Sequence[Mapping[str, Any]], scores: Sequence[float]) -> str | None:
    """The reason why a row has no scores."""
    for candidate, score in zip(candidates, scores, strict=True):
        if not math.isfinite(score):
            return f"score of passage {candidate['passage_id']!r} is {score}"
    return None
