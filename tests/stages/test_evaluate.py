"""Tests of pipeline.stages.evaluate: every arm's answer against the golds, by hand."""

import asyncio
import math
from collections.abc import Sequence
from typing import Any

import pyarrow as pa
import pytest

from pipeline import schema
from pipeline.config import (
    GeneratorConfig,
    InputConfig,
    OfflineIgpConfig,
    ProbeConfig,
    SelectionConfig,
)
from pipeline.engines.table import Engines
from pipeline.stages import evaluate
from pipeline.stages.stage import run_stage
from tests.stages.tables import table

COLUMNS = ["question_id", "golden_answers", "probes", "arms", "answers"]


def row(golds: Sequence[str], **texts: str | None) -> dict[str, Any]:
    """A question whose arms gave these texts; None abstained. Each has evidence 0."""
    arms = [
        {
            "arm": name,
            "evidence": [] if text is None else [{"position": 0, "text": None, "tokens": 1}],
            "admitted": 0 if text is None else 1,
            "frame": "abstain" if text is None else "documents",
            "prompt_id": None if text is None else f"prompt of {text!r}",
        }
        for name, text in texts.items()
    ]
    answers = [
        {
            "prompt_id": f"prompt of {text!r}",
            "text": text,
            "prompt_tokens": 11 + i,
            "answer_tokens": 2,
            "finish_reason": "stop",
        }
        for i, text in enumerate(dict.fromkeys(texts.values()))
        if text is not None
    ]
    return {
        "question_id": "q",
        "golden_answers": list(golds),
        "probes": {"answers": ["Ada.", "Ada."]},
        "arms": arms,
        "answers": answers,
    }


# A model that does not exist: any attempt to build an engine fails.
NO_ENGINE = OfflineIgpConfig(
    input=InputConfig(questions="q.jsonl", candidates="c.jsonl", corpus="p.jsonl"),
    generator=GeneratorConfig(engine="vllm", model="/does/not/exist"),
    probe=ProbeConfig(template="literal", top_k=8, max_tokens=4),
    selection=SelectionConfig(threshold=0, top_m=1, empty_context="frame"),
)


def evaluated(*rows: dict[str, Any], refusal_patterns: Sequence[str] = ()) -> pa.Table:
    """The block with what the stage adds."""
    stage = evaluate.stage(refusal_patterns)
    block = table(rows, COLUMNS)
    block = block.append_column(schema.DEAD, pa.array([None] * len(rows), schema.DEAD.type))
    return asyncio.run(run_stage(stage, stage.build(Engines(NO_ENGINE)), block))


def run(*rows: dict[str, Any], refusal_patterns: Sequence[str] = ()) -> list[list[dict[str, Any]]]:
    """The metrics of each row."""
    found = evaluated(*rows, refusal_patterns=refusal_patterns)["metrics"].to_pylist()
    assert isinstance(found, list)
    return found


def test_the_metrics_of_each_arm_by_hand() -> None:
    # Golds "ada lovelace" and "countess". "the Ada Byron" normalises to "ada byron": one word of
    # two in common with a gold of two, F1 = 2 * 1 / (2 + 2). "It was Ada Lovelace": two words
    # of four and of two, F1 = 2 * 2 / (4 + 2); it holds a gold but equals none.
    (metrics,) = run(
        row(
            ["Ada Lovelace", "countess"],
            igp="the Ada Byron",
            retriever="It was Ada Lovelace.",
            closed_book="The Countess",
        )
    )
    assert metrics == [
        {
            "arm": "igp",
            "f1": 0.5,
            "em": 0.0,
            "sub_em": 0.0,
            "prompt_tokens": 11,
            "evidence_size": 1,
            "admitted": 1,
            "refusal": False,
        },
        {
            "arm": "retriever",
            "f1": pytest.approx(2 / 3),
            "em": 0.0,
            "sub_em": 1.0,
            "prompt_tokens": 12,
            "evidence_size": 1,
            "admitted": 1,
            "refusal": False,
        },
        {
            "arm": "closed_book",
            "f1": 1.0,
            "em": 1.0,
            "sub_em": 1.0,
            "prompt_tokens": 13,
            "evidence_size": 1,
            "admitted": 1,
            "refusal": False,
        },
    ]


def test_arms_that_share_a_prompt_share_its_answer() -> None:
    ((one, other),) = run(row(["Ada"], igp="Ada", retriever="Ada"))
    assert one | {"arm": ""} == other | {"arm": ""}


def test_without_golds_the_scores_are_undefined_and_the_cost_is_known() -> None:
    ((metrics,),) = run(row([], igp="Ada"))
    assert all(math.isnan(metrics[name]) for name in ("f1", "em", "sub_em"))
    assert metrics["prompt_tokens"] == 11


def test_an_abstention_is_the_empty_answer_of_no_tokens() -> None:
    ((metrics,),) = run(row(["Ada"], igp=None))
    assert metrics == {
        "arm": "igp",
        "f1": 0.0,
        "em": 0.0,
        "sub_em": 0.0,
        "prompt_tokens": 0,
        "evidence_size": 0,
        "admitted": 0,
        "refusal": False,
    }


def test_refusals_are_flagged_by_the_list_and_by_extra_patterns() -> None:
    given = row(["Ada"], igp="I'm sorry, but I can't.", retriever="No comment.")
    assert [m["refusal"] for m in run(given)[0]] == [True, False]
    assert [m["refusal"] for m in run(given, refusal_patterns=["no comment"])[0]] == [True, True]


def test_the_rollout_without_evidence_is_flagged_when_it_refuses() -> None:
    refusing = row(["Ada"], igp="Ada") | {"probes": {"answers": ["I cannot answer that.", "Ada"]}}
    with_evidence = row(["Ada"], igp="Ada") | {"probes": {"answers": ["Ada", "I cannot answer."]}}
    assert evaluated(refusing, with_evidence)["refused"].to_pylist() == [True, False]


def test_golds_that_normalise_to_nothing_are_counted() -> None:
    rows = [row(["the", "Ada", "?"], igp="Ada"), row(["Ada"], igp="Ada"), row([], igp="Ada")]
    assert evaluated(*rows)["empty_golds"].to_pylist() == [2, 0, 0]


def test_blocks_of_any_size_give_the_same_metrics() -> None:
    rows = [row(["Ada"], igp=f"Ada {i}", retriever="Bea") for i in range(4)]
    assert [run(one)[0] for one in rows] == run(*rows)
    assert run() == []


def test_the_stage_depends_on_the_refusal_patterns_and_needs_no_engine() -> None:
    assert evaluate.stage(["x"]).depends_on != evaluate.stage().depends_on
    assert evaluate.stage().pool is None
