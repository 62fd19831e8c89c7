"""Tests of pipeline.stages.evaluate_task: the ALCE metrics of every arm, by hand."""

import asyncio
import json
import math
from collections.abc import Sequence
from typing import Any

import pyarrow as pa
import pytest

from pipeline import schema
from pipeline.config import EvaluationConfig, NliConfig
from pipeline.config.answer import Task
from pipeline.engines.table import Engines
from pipeline.stages import evaluate_task, task_targets
from pipeline.stages.stage import run_stage
from tests.stages.tables import table
from tests.stages.test_evaluate import NO_ENGINE
from tests.stages.test_evaluate import row as evaluated_row

PAIRS = [{"short_answers": ["1912"]}, {"short_answers": ["Oda Brill", "Brill"]}]
ANSWERS = [["Sel", "River Sel"], ["Tarn"]]
CLAIMS = ["a ferry crosses", "it sinks"]


def row(metadata: dict[str, Any], **texts: str | None) -> dict[str, Any]:
    """A question of a task whose arms gave these texts, over one passage of one token."""
    return evaluated_row([], **texts) | {"metadata": json.dumps(metadata)}


def evaluated(
    task: Task, *rows: dict[str, Any], first_line: bool = True, judged: bool = False
) -> pa.Table:
    stage = evaluate_task.stage(task, first_line=first_line, judged=judged)
    block = table(rows, ["question_id", *stage.inputs])
    block = block.append_column(schema.DEAD, pa.array([None] * len(rows), schema.DEAD.type))
    return asyncio.run(run_stage(stage, stage.build(Engines(NO_ENGINE)), block))


def metrics(task: Task, given: dict[str, Any], **how: bool) -> list[dict[str, Any]]:
    (found,) = evaluated(task, given, **how)[f"metrics_{task}"].to_pylist()
    assert isinstance(found, list)
    return found


def test_an_asqa_answer_is_cleaned_and_held_to_every_reading() -> None:
    given = row({"qa_pairs": PAIRS}, one="Lit in 1912 [1].\nBy Brill.", abstains=None)
    asked = {"prompt_tokens": 11, "context_tokens": 1}
    silent = {"arm": "abstains", "str_em": 0.0, "str_em_hit": 0.0}
    assert metrics("asqa", given) == [
        {"arm": "one", "str_em": 0.5, "str_em_hit": 0.0, **asked},
        {**silent, "prompt_tokens": 0, "context_tokens": 0},
    ]
    uncut = metrics("asqa", given, first_line=False)
    assert (uncut[0]["str_em"], uncut[0]["str_em_hit"]) == (1.0, 1.0)


def test_a_qampari_list_is_scored_in_both_modes() -> None:
    # Two predictions; "river tarn" equals no alias and holds one.
    (found,) = metrics("qampari", row({"answers": ANSWERS}, one="Sel [1], the River Tarn."))
    exact = {"precision_alce": 0.5, "recall_alce": 0.5, "f1_alce": 0.5, "recall_5_alce": 0.5}
    loose = dict.fromkeys((name.replace("alce", "adarank") for name in exact), 1.0)
    tokens = {"prompt_tokens": 11, "context_tokens": 1}
    assert found == {"arm": "one", **exact, **loose, **tokens}


def entailments(verdicts: dict[str, Sequence[bool]]) -> list[dict[str, Any]]:
    return [
        {"key": task_targets.key_of(text, CLAIMS), "entailed": list(entailed)}
        | {"tokens": 5, "cut": 0, "unread": 0}
        for text, entailed in verdicts.items()
    ]


def test_claim_recall_is_read_off_the_verdicts_and_nothing_entails_nothing() -> None:
    given = row({"claims": CLAIMS}, one="A ferry [2].", other="Both.\nMore.", silent="[1]\nA ferry")
    given["entailments"] = entailments({"A ferry.": [True, False], "Both.": [True, True]})
    found = metrics("eli5", given, judged=True)
    assert [metric["claim_recall"] for metric in found] == [0.5, 1.0, 0.0]


def test_without_targets_or_without_a_judge_a_metric_is_undefined() -> None:
    for task, metadata in (
        ("asqa", {}),
        ("qampari", {"answers": []}),
        ("eli5", {"claims": CLAIMS}),
    ):
        (found,) = metrics(task, row(metadata, one="Ada"))  # type: ignore[arg-type]
        assert all(math.isnan(found[name]) for name in schema.TASK_SCORES[task])
        assert found["prompt_tokens"] == 11
    no_claims = row({"claims": []}, one="Ada") | {"entailments": []}
    assert math.isnan(metrics("eli5", no_claims, judged=True)[0]["claim_recall"])


def test_the_oracle_is_the_best_single_passage_by_the_tasks_own_score() -> None:
    texts = {"arm": "?", "single[0]": "Tarn, Ada", "single[1]": "Tarn, Sel", "last": "?"}
    found = metrics("qampari", row({"answers": ANSWERS}, **texts))
    assert [metric["arm"] for metric in found] == ["arm", "oracle", "last"]
    assert (found[1]["f1_alce"], found[1]["prompt_tokens"]) == (1.0, 13)


def test_a_row_with_other_metadata_dies_with_a_reason_and_its_neighbours_live() -> None:
    bad = row({"qa_pairs": [{"short_answers": "1912"}]}, one="1912")
    made = evaluated("asqa", bad, row({"qa_pairs": PAIRS}, one="1912"))
    reasons = [dead and dead["reason"] for dead in made["dead"].to_pylist()]
    assert reasons == ["metadata: short_answers must be a list of texts, got '1912'", None]
    assert made["metrics_asqa"].to_pylist()[1][0]["str_em"] == 0.5


@pytest.mark.parametrize(
    ("task", "nli", "names"),
    [
        ("short_answer", True, []),
        ("asqa", True, ["evaluate_task"]),
        ("eli5", False, ["evaluate_task"]),
        ("eli5", True, ["entail", "evaluate_task"]),
    ],
)
def test_a_task_has_the_stages_that_it_needs(task: Task, nli: bool, names: list[str]) -> None:
    model = NliConfig(engine="fake", model="fake") if nli else None
    stages = evaluate_task.stages(task, EvaluationConfig(nli=model))
    assert [stage.name for stage in stages] == names
    if stages:
        assert ("entailments" in stages[-1].needs) == ("entail" in names)
