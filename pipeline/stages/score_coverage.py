"""Score by coverage: the share of the question's content words that a passage mentions."""

import math

import pyarrow as pa

from pipeline import schema
from pipeline.core.coverage import coverage
from pipeline.prompts import render
from pipeline.stages.stage import Stage, add_columns

ADDS = pa.schema([schema.score("coverage"), schema.score_tokens("coverage")])


def stage(passage_format: render.PassageFormat) -> Stage:
    """The stage; it asks no model."""

    def score(table: pa.Table) -> pa.Table:
        rows = zip(table["question"].to_pylist(), table["candidates"].to_pylist(), strict=True)
        scores = [
            [
                _measured(coverage(question, render.passage(c["title"], c["text"], passage_format)))
                for c in candidates
            ]
            for question, candidates in rows
        ]
        scored, tokens = ADDS
        return add_columns(table, {scored: scores, tokens: [0] * len(table)})

    return Stage(
        name="score_coverage",
        needs=("question", "candidates"),
        adds=ADDS,
        depends_on={"passage_format": passage_format},
        build=lambda engines: score,
        durable=True,
    )


def _measured(share: float) -> float | None:
    """Null where the question has nothing to cover."""
    return None if math.isnan(share) else share
