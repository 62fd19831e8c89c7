"""Tests of pipeline.stages.render_context: a policy's evidence as a prompt shows it."""

import asyncio
from collections.abc import Sequence
from typing import Any

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from pipeline import schema
from pipeline.config import SelectionConfig
from pipeline.engines.fake import FakeTokenizer
from pipeline.prompts import render
from pipeline.stages import render_context
from pipeline.stages.arms import context_arms
from pipeline.stages.render_context import RenderContext
from pipeline.stages.select import Select
from pipeline.stages.stage import run_stage
from tests.stages.choices import GAINS, PASSAGES, row, settings
from tests.stages.tables import table

COLUMNS = ["question_id", "question", "candidates", "gains", "arms"]
IGP = SelectionConfig(threshold=-0.5, top_m=3, empty_context="frame")


def chosen(rows: Sequence[dict[str, Any]], selection: SelectionConfig = IGP) -> pa.Table:
    """The rows with the evidence of a policy's arms."""
    block = table(rows, COLUMNS[:-1])
    return Select(context_arms(selection), settings(), FakeTokenizer())(block)


def rendered(block: pa.Table, arm: str = "igp") -> list[dict[str, Any]]:
    """The contexts of the rows."""
    made = RenderContext(arm, "0123", "contents", FakeTokenizer())(block)
    assert made.schema.field("context").equals(schema.CONTEXT)
    found: list[dict[str, Any]] = made["context"].to_pylist()
    return found


def test_a_context_is_the_lines_of_the_prompt_with_their_passages_gains_and_tokens() -> None:
    (context,) = rendered(chosen([row()]))
    assert context == {
        "text": "[DOC 1] south wind\n[DOC 2] no wind\n[DOC 3] Title\nnorth wind",
        # Two words before each text of 2, 2 and 3.
        "tokens": 2 + 2 + 2 + 2 + 2 + 3,
        "passage_ids": ["p1", "p4", "p0"],
        "gains": [0.375, 0.375, 0.125],
        "passage_tokens": [2, 2, 3],
        "admitted": 3,
        "frame": "documents",
        "policy": "0123",
    }


def test_without_evidence_a_context_is_empty_and_says_which_prompt_it_is() -> None:
    high = IGP.model_copy(update={"threshold": 0.5})
    for rule, frame in (("frame", "documents"), ("abstain", "abstain")):
        block = chosen([row()], high.model_copy(update={"empty_context": rule}))
        (context,) = rendered(block)
        nothing = (context["text"], context["tokens"], context["passage_ids"], context["gains"])
        assert nothing == ("", 0, [], [])
        assert (context["admitted"], context["frame"]) == (0, frame)


def test_the_passage_of_the_empty_context_rule_is_there_though_none_was_admitted() -> None:
    top1 = IGP.model_copy(update={"threshold": 0.5, "empty_context": "top1"})
    (context,) = rendered(chosen([row()], top1))
    assert (context["passage_ids"], context["admitted"]) == (["p0"], 0)
    assert context["gains"] == [0.125]


def test_a_gain_that_was_not_measured_is_null() -> None:
    block = chosen([row()], SelectionConfig(selector="retriever", **_rest()))
    (context,) = rendered(block, "retriever")
    assert context["passage_ids"] == ["p0", "p1", "p2"]
    assert context["gains"] == [0.125, 0.375, None]
    (unprobed,) = rendered(block.drop_columns(["gains"]), "retriever")
    assert unprobed["gains"] == [None, None, None]


def test_evidence_that_is_not_the_candidate_s_own_text_is_shown_as_it_is() -> None:
    (made,) = chosen([row()]).to_pylist()
    made["arms"][0]["evidence"][0]["text"] = "a clue"
    (context,) = rendered(table([made], COLUMNS))
    assert context["text"].startswith("[DOC 1] a clue\n[DOC 2] no wind\n")


@given(sizes=st.lists(st.integers(0, len(PASSAGES)), max_size=5))
def test_a_row_does_not_depend_on_its_block_and_its_text_is_that_of_the_prompt(
    sizes: list[int],
) -> None:
    rows = [row(GAINS[:size], question_id=f"q{i}") for i, size in enumerate(sizes)]
    together = rendered(chosen(rows))
    assert together == [context for one in rows for context in rendered(chosen([one]))]
    for context, one in zip(together, rows, strict=True):
        ids = [passage["passage_id"] for passage in PASSAGES]
        shown = [PASSAGES[ids.index(name)] for name in context["passage_ids"]]
        texts = [render.passage(p["title"], p["text"], "contents") for p in shown]
        prompt = render.answer(one["question"], texts, "literal")
        assert f"Documents:\n{context['text']}" in prompt or not texts


def test_the_stage_serves_a_row_whose_gains_are_missing() -> None:
    stage = render_context.stage("igp", policy="0", passage_format="contents", probed=True)
    assert (stage.needs, stage.reads, stage.durable) == (("candidates", "arms"), ("gains",), False)
    block = chosen([row([]), row([])])
    block = block.append_column(schema.DEAD, pa.nulls(2, schema.DEAD.type))
    transform = RenderContext("igp", "0", "contents", FakeTokenizer())
    part = asyncio.run(run_stage(stage, transform, block))
    assert [context["passage_ids"] for context in part["context"].to_pylist()] == [[], []]


def _rest() -> dict[str, Any]:
    return {"threshold": float("-inf"), "top_m": 3, "empty_context": "frame"}
