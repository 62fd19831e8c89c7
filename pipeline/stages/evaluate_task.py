"""Evaluate task: every arm's answer by the metrics of its ALCE task, question by question.

These stand beside those of stages.evaluate, which score an answer as it is: here it is cleaned as
ALCE cleans it. Of the single passages the oracle is the best by the task's own score.
"""

import math
from collections.abc import Callable, Mapping
from typing import Any

import pyarrow as pa

from pipeline import schema
from pipeline.config import EvaluationConfig
from pipeline.config.answer import SHORT_ANSWER, Task
from pipeline.core import alce
from pipeline.engines.table import Engines
from pipeline.stages import entail, task_targets
from pipeline.stages.evaluate import with_oracle
from pipeline.stages.stage import ERROR, Stage, Transform, add_columns

Row = Mapping[str, Any]
Scores = dict[str, float]
SCORE: Mapping[Task, str] = {"asqa": "str_em", "qampari": "f1_alce", "eli5": "claim_recall"}
"""The one number of each task by which answers are compared."""
_ABSTAINED: Mapping[str, Any] = {"text": "", "prompt_tokens": 0}


def stages(task: Task, cfg: EvaluationConfig) -> list[Stage]:
    """What measures an ALCE task, the model of entailment first where it needs one; nothing for
    short answers. ModelNotFound where that model is missing."""
    if task == SHORT_ANSWER:
        return []
    judged = [] if task != "eli5" or cfg.nli is None else [cfg.nli]
    made = [entail.stage(nli, first_line=cfg.first_line) for nli in judged]
    return [*made, stage(task, first_line=cfg.first_line, judged=bool(judged))]


def stage(task: Task, *, first_line: bool, judged: bool) -> Stage:
    """The stage; without a model of entailment (`judged` false) claim recall is undefined.

    An arm that abstains has the empty answer.
    """
    column = schema.task_metrics(task)

    def build(engines: Engines) -> Transform:
        def evaluate(table: pa.Table) -> pa.Table:
            made = [_row(row, task, first_line=first_line) for row in table.to_pylist()]
            columns: dict[pa.Field, list[Any]] = {
                column: [row[0] for row in made],
                ERROR: [row[1] for row in made],
            }
            return add_columns(table, columns)

        return evaluate

    return Stage(
        name="evaluate_task",
        needs=("metadata", "arms", "answers", *(["entailments"] if judged else [])),
        adds=pa.schema([column]),
        depends_on={"task": task, "first_line": first_line},
        build=build,
    )


def _row(
    row: Row, task: Task, *, first_line: bool
) -> tuple[list[dict[str, Any]] | None, str | None]:
    """(metrics, None), or (None, reason) where the metadata are not those of the task."""
    try:
        score = _scorer(row, task)
    except ValueError as error:
        return None, f"metadata: {error}"
    answers = {answer["prompt_id"]: answer for answer in row["answers"]}
    scores: dict[str | None, Scores] = {}
    measured = []
    for arm in row["arms"]:
        answer = answers[arm["prompt_id"]] if arm["prompt_id"] else _ABSTAINED
        if arm["prompt_id"] not in scores:
            text = alce.cleaned(answer["text"], first_line=first_line)
            scores[arm["prompt_id"]] = score(text)
        measured.append(
            {
                "arm": arm["arm"],
                **scores[arm["prompt_id"]],
                "prompt_tokens": answer["prompt_tokens"],
                "context_tokens": sum(piece["tokens"] for piece in arm["evidence"]),
            }
        )
    return with_oracle(measured, by=(SCORE[task],)), None


def _scorer(row: Row, task: Task) -> Callable[[str], Scores]:
    """What scores a cleaned answer to the row's question; ValueError as task_targets has it."""
    if task == "eli5":
        return _claim_scorer(row)
    groups = task_targets.groups(row["metadata"], task)
    if task == "asqa":
        return lambda text: {
            "str_em": alce.str_em(text, groups),
            "str_em_hit": alce.str_em_hit(text, groups),
        }
    return lambda text: {
        f"{name}_{mode}": value
        for mode in alce.LIST_MODES
        for name, value in alce.list_scores(text, groups, mode=mode)._asdict().items()
    }


def _claim_scorer(row: Row) -> Callable[[str], Scores]:
    """An empty answer entails no claim, and no model was asked about it."""
    claims = task_targets.claims(row["metadata"])
    entries = row.get("entailments")
    by_key = {entry["key"]: entry["entailed"] for entry in entries or ()}

    def score(text: str) -> Scores:
        if entries is None or not claims:
            return {"claim_recall": math.nan}
        key = task_targets.key_of(text, claims)
        return {"claim_recall": alce.claim_recall(by_key[key]) if text else 0.0}

    return score
