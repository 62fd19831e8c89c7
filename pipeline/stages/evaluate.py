"""Evaluate: every arm's answer against the golden answers, question by question."""

from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa

from pipeline import schema
from pipeline.core import answers as metrics
from pipeline.core.refusals import REFUSAL_PATTERNS_VERSION, is_refusal
from pipeline.engines.table import Engines
from pipeline.stages.stage import Stage, Transform, add_columns

ADDS = pa.schema([schema.METRICS])


def stage(refusal_patterns: Sequence[str] = ()) -> Stage:
    """The stage; an arm that abstains has the empty answer, of no tokens."""

    def build(engines: Engines) -> Transform:
        def evaluate(table: pa.Table) -> pa.Table:
            rows = [_row(row, refusal_patterns) for row in table.to_pylist()]
            return add_columns(table, {schema.METRICS: rows})

        return evaluate

    return Stage(
        name="evaluate",
        needs=("golden_answers", "arms", "answers"),
        adds=ADDS,
        depends_on={
            "refusals": [REFUSAL_PATTERNS_VERSION, *refusal_patterns],
        },
        build=build,
    )


def _row(row: Mapping[str, Any], refusal_patterns: Sequence[str]) -> list[dict[str, Any]]:
    answer_by_id = {answer["prompt_id"]: answer for answer in row["answers"]}
    abstained: Mapping[str, Any] = {"text": "", "prompt_tokens": 0}
    golds = row["golden_answers"]
    measured = []
    for arm in row["arms"]:
        answer = answer_by_id[arm["prompt_id"]] if arm["prompt_id"] else abstained
        measured.append(
            {
                "arm": arm["arm"],
                "f1": metrics.f1(answer["text"], golds),
                "em": metrics.exact_match(answer["text"], golds),
                "sub_em": metrics.sub_exact_match(answer["text"], golds),
                "prompt_tokens": answer["prompt_tokens"],
                "evidence_size": len(arm["evidence"]),
                "admitted": arm["admitted"],
                "refusal": is_refusal(answer["text"], extra_patterns=refusal_patterns),
            }
        )
    return measured
