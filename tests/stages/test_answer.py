"""Tests of pipeline.stages.answer: each distinct prompt of a question is generated once."""

import asyncio
from collections.abc import Sequence
from typing import Any

import pyarrow as pa
import pytest

from pipeline import schema
from pipeline.config import AnswerConfig, SelectionConfig
from pipeline.engines.base import Completion, EngineDead, Generator
from pipeline.stages import answer
from pipeline.stages.answer import Answer
from pipeline.stages.arms import main_arms
from pipeline.stages.select import Select
from pipeline.stages.stage import run_stage
from tests.stages.choices import settings
from tests.stages.tables import ScriptedGenerator, candidate, table

COLUMNS = ["question_id", "question", "candidates", "arms"]
NORTH, SOUTH = candidate("p-north", "north"), candidate("p-south", "south")
LITERAL = AnswerConfig(template="literal", max_tokens=7)


def arm(name: str, prompt_id: str | None, *positions: int, frame: str = "documents") -> Any:
    """One arm with the evidence at these positions."""
    evidence = [{"position": position, "text": None, "tokens": 1} for position in positions]
    return {
        "arm": name,
        "evidence": evidence,
        "admitted": len(evidence),
        "order": None,
        "frame": frame,
        "prompt_id": prompt_id,
    }


def row(*arms: Any, question: str = "Which wind?", question_id: str = "q") -> dict[str, Any]:
    """A question over two passages with its arms."""
    return {
        "question_id": question_id,
        "question": question,
        "candidates": [NORTH, SOUTH],
        "arms": list(arms),
    }


def run(
    rows: Sequence[dict[str, Any]], generator: Generator, earlier: pa.Table | None = None
) -> list[dict[str, Any]]:
    """The rows after the transform."""
    made = asyncio.run(Answer(LITERAL, "contents", generator)(table(rows, COLUMNS), earlier))
    assert made.schema.field("answers").equals(schema.ANSWERS)
    found = made.to_pylist()
    assert isinstance(found, list)
    return found


def test_a_prompt_that_several_arms_share_is_generated_once() -> None:
    generator = ScriptedGenerator()
    (made,) = run(
        [row(arm("igp", "x", 1), arm("retriever", "y", 0, 1), arm("top1", "x", 1))], generator
    )
    assert made["error"] is None
    assert len(generator.prompts) == 2
    assert [found["prompt_id"] for found in made["answers"]] == ["x", "y"]


def test_an_answer_keeps_text_tokens_and_the_reason_of_its_end() -> None:
    generator = ScriptedGenerator()
    (made,) = run([row(arm("igp", "x", 1, 0))], generator)
    (prompt,) = generator.prompts
    assert prompt.endswith("Documents: [DOC 1] south [DOC 2] north Question: Which wind? Answer:")
    words = len(prompt.split())
    assert made["answers"] == [
        {
            "prompt_id": "x",
            "text": f"{words} words",
            "prompt_tokens": words,
            "answer_tokens": 3,
            "finish_reason": "stop",
        }
    ]


def test_equal_prompts_of_a_block_run_once() -> None:
    generator = ScriptedGenerator()
    rows = [row(arm("igp", "x", 0)), row(arm("igp", "x", 0), question_id="r")]
    first, second = run(rows, generator)
    assert len(generator.prompts) == 1
    assert first["answers"] == second["answers"]


def test_an_arm_that_abstains_asks_nothing() -> None:
    generator = ScriptedGenerator()
    (made,) = run([row(arm("igp", None, frame="abstain"))], generator)
    assert generator.prompts == []
    assert made["answers"] == [] and made["error"] is None


def test_the_length_limit_is_passed_on() -> None:
    limits: list[int] = []

    class Limited(ScriptedGenerator):
        async def complete(self, prompt_ids: Sequence[int], *, max_tokens: int) -> Completion:
            limits.append(max_tokens)
            return await super().complete(prompt_ids, max_tokens=max_tokens)

    run([row(arm("igp", "x", 0))], Limited())
    assert limits == [7]


def test_a_refused_prompt_makes_the_question_dead_with_its_first_arm_named() -> None:
    generator = ScriptedGenerator(refuse=["north"])
    rows = [
        row(arm("igp", "s", 1), arm("retriever", "n", 0), arm("retriever_top1", "n", 0)),
        row(arm("igp", "t", 1), question="Who?", question_id="r"),
    ]
    dead, served = run(rows, generator)
    assert dead["error"] == "prompt of arm 'retriever': the engine will not hear 'north'"
    assert dead["answers"] is None
    assert served["error"] is None and len(served["answers"]) == 1


def test_a_dead_question_is_not_counted() -> None:
    block = table([row(arm("igp", "s", 1)), row(arm("igp", "n", 0), question_id="r")], COLUMNS)
    block = block.append_column(schema.DEAD, pa.array([None, None], schema.DEAD.type))
    stage = answer.stage(LITERAL, passage_format="contents", generator={"engine": "scripted"})
    generator = ScriptedGenerator(refuse=["north"])
    made = asyncio.run(run_stage(stage, Answer(LITERAL, "contents", generator), block))
    assert [entry and entry["stage"] for entry in made["dead"].to_pylist()] == [None, "answer"]
    asked = len(generator.prompts[0].split())
    assert dict(stage.counts(made, None)) == {"prompts": 1, "generated": 1, "tokens": asked + 3}


def test_an_engine_that_is_lost_is_not_taken_for_a_refusal() -> None:
    class Dying(ScriptedGenerator):
        async def complete(self, prompt_ids: Sequence[int], *, max_tokens: int) -> Completion:
            raise EngineDead("gone")

    with pytest.raises(EngineDead, match="gone"):
        run([row(arm("igp", "x", 0))], Dying())


def test_an_abstention_with_a_prompt_id_is_a_defect() -> None:
    with pytest.raises(ValueError, match="'igp' abstains and yet has a prompt id"):
        run([row(arm("igp", "x", frame="abstain"))], ScriptedGenerator())


def test_blocks_of_any_size_give_the_same_answers() -> None:
    rows = [
        row(arm("igp", f"x{i}", *range(i % 3)), question=f"Which {i}?", question_id=f"q{i}")
        for i in range(6)
    ]
    whole = run(rows, ScriptedGenerator())
    assert [run([one], ScriptedGenerator())[0] for one in rows] == whole
    assert run([], ScriptedGenerator()) == []


def stored(*prompt_ids: str | None) -> pa.Table:
    """Another plan's column of answers: a row for each prompt id, null where the row was dead."""
    told = {"text": "told before", "prompt_tokens": 5, "answer_tokens": 2, "finish_reason": "stop"}
    answers = [None if one is None else [{"prompt_id": one, **told}] for one in prompt_ids]
    return pa.table({"answers": pa.array(answers, schema.ANSWERS.type)})


def test_an_answer_that_another_plan_stored_is_taken_up_and_not_generated_again() -> None:
    generator = ScriptedGenerator()
    rows = [row(arm("igp", "x", 0), arm("retriever", "y", 0, 1))]
    (made,) = run(rows, generator, stored("z", None, "x"))
    assert [(one["prompt_id"], one["text"]) for one in made["answers"]] == [
        ("x", "told before"),
        ("y", f"{len(generator.prompts[0].split())} words"),
    ]
    assert len(generator.prompts) == 1
    assert made["answers"][0] | {"prompt_id": ""} == {
        "prompt_id": "",
        "text": "told before",
        "prompt_tokens": 5,
        "answer_tokens": 2,
        "finish_reason": "stop",
    }


def test_what_was_taken_up_is_a_prompt_that_was_not_generated() -> None:
    stage = answer.stage(LITERAL, passage_format="contents", generator={"engine": "scripted"})
    earlier = stored("x", None)
    generator = ScriptedGenerator()
    rows = [
        row(arm("igp", "x", 0), arm("retriever", "y", 0, 1)),
        row(arm("igp", "y", 0, 1), question_id="r"),
    ]
    block = table(rows, COLUMNS)
    block = block.append_column(schema.DEAD, pa.array([None, None], schema.DEAD.type))
    transform = Answer(LITERAL, "contents", generator)
    part = asyncio.run(run_stage(stage, transform, block, earlier))
    tokens = len(generator.prompts[0].split()) + 3
    assert dict(stage.counts(part, earlier)) == {"prompts": 2, "generated": 1, "tokens": tokens}
    nothing_new = asyncio.run(run_stage(stage, transform, block, part.select(["answers"])))
    assert nothing_new.equals(part)
    assert dict(stage.counts(nothing_new, part)) == {"prompts": 2, "generated": 0, "tokens": 0}
    assert len(generator.prompts) == 1


def test_a_prompt_that_another_plan_had_refused_is_asked_again() -> None:
    (made,) = run([row(arm("igp", "x", 0))], ScriptedGenerator(refuse=["north"]), stored(None))
    assert made["error"] == "prompt of arm 'igp': the engine will not hear 'north'"


def test_plans_share_answers_under_one_model_and_one_way_to_answer() -> None:
    families = [
        answer.stage(cfg, passage_format="contents", generator=generator).family
        for cfg in (LITERAL, AnswerConfig(), AnswerConfig(template="literal", max_tokens=8))
        for generator in ({"model": "a"}, {"model": "b"})
    ]
    assert all(one != other for i, one in enumerate(families) for other in families[:i])
    # A prompt's id stands for its passages' format.
    by_format = [
        answer.stage(LITERAL, passage_format=known, generator={}).family
        for known in ("contents", "text")
    ]
    assert by_format[0] == by_format[1]


def test_the_arms_that_select_makes_are_answered_as_their_ids_promise() -> None:
    generator = ScriptedGenerator()
    selection = SelectionConfig(threshold=0, top_m=1, empty_context="closed_book")
    select = Select(main_arms(selection), settings(answer=LITERAL), generator.tokenizer)
    probed = [
        {
            "question_id": "q",
            "question": "Which wind?",
            "candidates": [NORTH, SOUTH],
            "gains": gains,
        }
        for gains in ([-0.5, 0.5], [-0.5, -0.5])
    ]
    block = select(table(probed, ["question_id", "question", "candidates", "gains"]))
    made = asyncio.run(Answer(LITERAL, "contents", generator)(block, None)).to_pylist()
    assert len(generator.prompts) == len(set(generator.prompts)) == 4
    for found in made:
        answered = {reply["prompt_id"] for reply in found["answers"]}
        assert answered == {one["prompt_id"] for one in found["arms"]}
