"""Score sentences: the cosine of a bi-encoder's vectors of the question and of every sentence.

All sentences are scored, so that one pass serves the extractor's list and the whole one.
Source: CompSelect, the clue reranker, with any bi-encoder.
"""

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from pipeline import schema
from pipeline.config import EmbedderConfig
from pipeline.engines import models
from pipeline.engines.base import Floats
from pipeline.engines.embedder import Embedder
from pipeline.engines.table import Engines
from pipeline.stages.clues import RERANK
from pipeline.stages.score_encoders import encoded
from pipeline.stages.stage import ERROR, Stage, Transform, add_columns

TOKENS = schema.score_tokens("sentences")
ADDS = pa.schema([schema.SENTENCE_SCORES, TOKENS])


def stage(cfg: EmbedderConfig, *, section: str) -> Stage:
    """The stage over the bi-encoder of the config's `section`."""

    def build(engines: Engines) -> Transform:
        model = engines.clue_reranker
        return lambda table: score(table, model)

    return Stage(
        name=RERANK,
        needs=("question", schema.SENTENCES.name),
        adds=ADDS,
        depends_on={"model": models.describe_encoder(cfg, section=section)},
        build=build,
        pool="embedder",
        durable=True,
        counts=lambda part: {"tokens": pc.sum(part[TOKENS.name]).as_py() or 0},
    )


def score(table: pa.Table, model: Embedder) -> pa.Table:
    """The block with the cosines, in [-1, 1], 0 for a vector of zeros; `error` where one is not a
    number."""
    questions = table["question"].to_pylist()
    texts = [[one["text"] for one in row] for row in table["sentences"].to_pylist()]
    queries = encoded(model, questions, "query")
    sentences = encoded(model, (text for row in texts for text in row), "passage")
    scores = [
        [cosine(queries[question][0], sentences[text][0]) for text in row]
        for question, row in zip(questions, texts, strict=True)
    ]
    tokens = [
        queries[question][1] + sum(sentences[text][1] for text in set(row))
        for question, row in zip(questions, texts, strict=True)
    ]
    errors = [None if np.isfinite(row).all() else "a cosine is no number" for row in scores]
    return add_columns(table, {schema.SENTENCE_SCORES: scores, TOKENS: tokens, ERROR: errors})


def cosine(a: Floats, b: Floats) -> float:
    """Of two vectors; 0 where one has no length."""
    lengths = float(np.linalg.norm(a) * np.linalg.norm(b))
    return float(a @ b) / lengths if lengths else 0.0
