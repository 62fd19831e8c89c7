"""Render context: what a policy leaves of a question's passages, as the text that a prompt shows.

The text is the block of "[DOC i]" lines of prompt A, best passage first, and empty where there is
no evidence; `frame` then says which prompt the policy wants.
"""

from collections.abc import Mapping
from typing import Any

import pyarrow as pa

from pipeline import schema
from pipeline.engines.base import Tokenizer
from pipeline.engines.table import Engines
from pipeline.prompts import render
from pipeline.prompts.render import PassageFormat
from pipeline.stages.select import evidence_texts
from pipeline.stages.stage import Stage, Transform, add_columns

ADDS = pa.schema([schema.CONTEXT])


def stage(arm: str, *, policy: str, passage_format: PassageFormat, probed: bool) -> Stage:
    """The stage for the arm of that name, whose policy has the fingerprint `policy`; where it is
    `probed`, a passage's gain comes with it."""

    def build(engines: Engines) -> Transform:
        return RenderContext(arm, policy, passage_format, engines.tokenizer)

    return Stage(
        name="render_context",
        needs=("candidates", "arms"),
        reads=("gains",) if probed else (),
        adds=ADDS,
        depends_on={"arm": arm, "policy": policy, "passage_format": passage_format},
        build=build,
        pool="generator",
    )


class RenderContext:
    """The transform; it needs the generator's tokenizer, not the model."""

    def __init__(
        self, arm: str, policy: str, passage_format: PassageFormat, tokenizer: Tokenizer
    ) -> None:
        self._arm, self._policy = arm, policy
        self._format, self._tokenizer = passage_format, tokenizer

    def __call__(self, table: pa.Table) -> pa.Table:
        """The block with every question's context."""
        return add_columns(table, {schema.CONTEXT: [self._row(row) for row in table.to_pylist()]})

    def _row(self, row: Mapping[str, Any]) -> dict[str, Any]:
        (arm,) = (one for one in row["arms"] if one["arm"] == self._arm)
        candidates, gains = row["candidates"], row.get("gains")
        places = [piece["position"] for piece in arm["evidence"]]
        texts = evidence_texts(candidates, arm, self._format)
        text = render.reference(texts)
        return {
            "text": text,
            "tokens": self._tokenizer.count(text) if texts else 0,
            "passage_ids": [candidates[place]["passage_id"] for place in places],
            "gains": [None if gains is None else gains[place] for place in places],
            "passage_tokens": [piece["tokens"] for piece in arm["evidence"]],
            "admitted": arm["admitted"],
            "frame": arm["frame"],
            "policy": self._policy,
        }
