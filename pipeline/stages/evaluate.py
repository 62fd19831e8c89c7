"""Evaluate: every arm's answer against the golden answers, question by question."""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from pipeline import schema
from pipeline.core import answers as metrics
from pipeline.core.refusals import REFUSAL_PATTERNS_VERSION, is_refusal
from pipeline.engines.table import Engines
from pipeline.stages.stage import Stage, Transform, add_columns

ADDS = pa.schema([schema.METRICS, schema.REFUSED, schema.EMPTY_GOLDS])


def stage(refusal_patterns: Sequence[str] = ()) -> Stage:
    """The stage; an arm that abstains has the empty answer, of no tokens."""

    def build(engines: Engines) -> Transform:
        def evaluate(table: pa.Table) -> pa.Table:
            rows = table.to_pylist()
            refuses = partial(is_refusal, extra_patterns=refusal_patterns)
            return add_columns(
                table,
                {
                    schema.METRICS: [_row(row, refuses) for row in rows],
                    schema.REFUSED: [refuses(row["probes"]["answers"][0]) for row in rows],
                    schema.EMPTY_GOLDS: [
                        metrics.empty_golds(row["golden_answers"]) for row in rows
                    ],
                },
            )

        return evaluate

    return Stage(
        name="evaluate",
        needs=("golden_answers", "probes", "arms", "answers"),
        adds=ADDS,
        depends_on={"refusals": [REFUSAL_PATTERNS_VERSION, *refusal_patterns]},
        build=build,
        counts=_counts,
    )


def _row(row: Mapping[str, Any], refuses: Callable[[str], bool]) -> list[dict[str, Any]]:
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
                "refusal": refuses(answer["text"]),
            }
        )
    return measured


def _counts(table: pa.Table) -> dict[str, float]:
    return {"refusals": pc.sum(table[schema.REFUSED.name]).as_py() or 0}
