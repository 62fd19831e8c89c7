"""Tests of pipeline.stages.split_sentences and extract_clues: what is shown, and what is named."""

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any

import pytest

from pipeline.config import CluesConfig
from pipeline.core.replies import pattern
from pipeline.schema import CLUE_REPAIRS
from pipeline.stages import split_sentences
from pipeline.stages.extract_clues import ExtractClues, stage
from tests.stages.rankers import ConstrainedRanker, ScriptedRanker
from tests.stages.tables import candidate, table

PASSAGES = [
    candidate("a", "The wind is cold. It blows from the north [2].", title="Winds"),
    candidate("b", "The sun is warm."),
]
SENTENCES = [
    {"position": 0, "sentence": 0, "text": "The wind is cold."},
    {"position": 0, "sentence": 1, "text": "It blows from the north [2]."},
    {"position": 1, "sentence": 0, "text": "The sun is warm."},
]


def row(
    *sentences: dict[str, Any], question: str = "Which wind?", key: str = "q"
) -> dict[str, Any]:
    return {"question_id": key, "question": question, "sentences": list(sentences)}


def config(**extractor: Any) -> CluesConfig:
    return CluesConfig.model_validate({"extractor": {"template": "literal"} | extractor})


def run(model: ScriptedRanker, rows: Sequence[Any], **extractor: Any) -> list[dict[str, Any]]:
    """The clues of each row with its `error`."""
    transform = ExtractClues(config(**extractor), model)
    made = asyncio.run(transform(table(rows, ["question_id", "question", "sentences"])))
    assert made.column_names[3:] == ["clues", "error"]
    return [(r["clues"] or {}) | {"error": r["error"]} for r in made.to_pylist()]


def repairs(**counts: int) -> dict[str, int]:
    return dict.fromkeys(CLUE_REPAIRS, 0) | counts


def test_passages_become_sentences_that_say_where_they_come_from() -> None:
    rows = [{"question_id": "q", "candidates": PASSAGES}]
    rows += [{"question_id": "none", "candidates": [candidate("c", "...")]}]
    block = table(rows, ["question_id", "candidates"])
    made = split_sentences.stage(CluesConfig()).build(None)(block)  # type: ignore[arg-type]
    assert made["sentences"].to_pylist() == [SENTENCES, []]  # type: ignore[index]


def test_only_the_first_passages_and_the_first_sentences_of_each_are_taken() -> None:
    block = table([{"question_id": "q", "candidates": PASSAGES}], ["question_id", "candidates"])
    for cfg, kept in (
        (CluesConfig(passages=1), SENTENCES[:2]),
        (CluesConfig(max_sentences=1), SENTENCES[::2]),
    ):
        made = split_sentences.stage(cfg).build(None)(block)  # type: ignore[arg-type]
        assert made["sentences"].to_pylist() == [kept]  # type: ignore[index]


def test_the_model_copies_the_sentences_that_help_and_each_is_known_by_its_place() -> None:
    said = "[3] The sun is warm.\n[2] It blows from the north (2)."
    model = ScriptedRanker({"wind?": said})
    (made,) = run(model, [row(*SENTENCES)])
    (prompt,) = model.prompts
    # A number in square brackets within a sentence is not one of the list.
    assert "[2] It blows from the north (2). [3] The sun is warm. Question:" in prompt
    assert "word for word" in prompt and prompt.endswith("Reply:")
    assert made == {
        "named": [2, 1],
        "calls": 1,
        "retries": 0,
        "malformed": 0,
        "tokens": len(prompt.split()) + len(said.split()),
        "lines": 2,
        "unfaithful": 0,
        "replies": [said],
        "repairs": repairs(),
        "error": None,
    }


def test_it_can_be_asked_for_numbers_alone() -> None:
    model = ScriptedRanker({"wind?": "[3] > [1]"})
    (made,) = run(model, [row(*SENTENCES)], reply="numbers")
    assert "by their numbers" in model.prompts[0] and made["named"] == [2, 0]


def test_unfaithful_text_is_counted_and_left_out_or_snapped() -> None:
    model = ScriptedRanker({"wind?": "[1] The wind is very cold.\n[3] The sun is warm."})
    (dropped,) = run(model, [row(*SENTENCES)])
    (snapped,) = run(model, [row(*SENTENCES)], unfaithful="snap")
    assert dropped["named"] == [2] and snapped["named"] == [0, 2]
    assert dropped["lines"] == snapped["lines"] == 2
    assert dropped["unfaithful"] == snapped["unfaithful"] == 1
    assert snapped["repairs"] == repairs(snapped=1)


def test_a_zero_names_nothing_and_is_no_failure() -> None:
    (made,) = run(ScriptedRanker({"wind?": "[0]"}), [row(*SENTENCES)])
    assert (made["named"], made["malformed"], made["retries"]) == ([], 0, 0)


def test_a_reply_that_cannot_be_read_is_asked_for_again_with_its_bracket_open() -> None:
    model = ScriptedRanker({"wind?": "Gladly"}, again={"wind?": "3] The sun is warm."})
    (made,) = run(model, [row(*SENTENCES)])
    assert model.prompts[1] == f"{model.prompts[0]} ["
    assert (made["named"], made["retries"], made["malformed"]) == ([2], 1, 0)
    assert made["replies"] == ["Gladly", "[3] The sun is warm."]


@pytest.mark.parametrize(
    "again", ["1] Penguins rule.", "[1] Penguins rule.", " [1] Penguins rule."]
)
def test_a_bracket_that_a_second_reply_opens_once_more_is_one(again: str) -> None:
    (made,) = run(ScriptedRanker({"wind?": "Sure"}, again={"wind?": again}), [row(*SENTENCES)])
    assert made["replies"] == ["Sure", "[1] Penguins rule."]
    assert (made["named"], made["lines"], made["unfaithful"]) == ([0, 1, 2], 1, 1)
    assert made["malformed"] == 1


def test_after_two_bad_replies_every_sentence_stays_or_the_question_dies() -> None:
    model = ScriptedRanker({"wind?": "so", "rain?": "[1]"}, again={"wind?": "it goes"})
    rows = [row(*SENTENCES), row(*SENTENCES, question="Which rain?", key="r")]
    kept, other = run(model, rows)
    assert (kept["named"], kept["malformed"], kept["error"]) == ([0, 1, 2], 1, None)
    assert (kept["lines"], kept["unfaithful"]) == (1, 1)
    dead, alive = run(model, rows, on_malformed="dead_letter")
    said = "3 sentences: no sentence of the passages in the reply '[it goes'"
    assert dead == {"error": said}
    assert alive == other and alive["named"] == [0]


def test_a_refused_prompt_kills_its_question_alone() -> None:
    model = ScriptedRanker({"wind?": "[1]", "rain?": "[2]"}, refuse=["rain?"])
    rows = [row(*SENTENCES), row(*SENTENCES, question="Which rain?", key="r")]
    alive, dead = run(model, rows)
    assert alive["named"] == [0]
    assert dead == {"error": "3 sentences: the engine will not hear 'rain?'"}


def test_without_sentences_nobody_is_asked() -> None:
    (made,) = run(ScriptedRanker({}), [row()])
    assert (made["named"], made["calls"], made["tokens"], made["replies"]) == ([], 0, 0, [])
    assert run(ScriptedRanker({}), []) == []


def test_equal_prompts_of_a_block_run_once() -> None:
    model = ScriptedRanker({"wind?": "[2]"})
    first, second = run(model, [row(*SENTENCES, key="a"), row(*SENTENCES, key="b")])
    assert len(model.prompts) == 1 and first == second


def test_a_constrained_extractor_is_held_to_the_numbers_of_its_sentences() -> None:
    model = ConstrainedRanker({"wind?": "[2]"})
    run(model, [row(*SENTENCES)], constrained=True, reply="numbers")
    assert model.patterns == [pattern(3)]
    with pytest.raises(TypeError, match="ScriptedRanker cannot be held to a grammar"):
        run(ScriptedRanker({}), [row(*SENTENCES)], constrained=True, reply="numbers")


@pytest.mark.parametrize(
    "change",
    [
        {"template": "chat"},
        {"max_tokens": 64},
        {"reply": "numbers"},
        {"unfaithful": "snap"},
        {"on_malformed": "dead_letter"},
        {"reply": "numbers", "constrained": True},
    ],
)
def test_all_that_decides_the_clues_is_in_the_fingerprint(change: Mapping[str, Any]) -> None:
    model = {"model": "m"}
    assert stage(config(), model).depends_on != stage(config(**change), model).depends_on


def test_the_stage_has_the_generator_s_pool_unless_the_extractor_is_another_model() -> None:
    own = config(model={"engine": "fake", "model": "small"})
    assert (stage(config(), {}).pool, stage(own, {}).pool) == ("generator", "extractor")
    assert stage(own, {}).depends_on == stage(config(), {}).depends_on


def test_a_part_is_counted_in_calls_tokens_and_unfaithful_lines() -> None:
    model = ScriptedRanker({"wind?": "[1] The wind is warm.\n[3] The sun is warm."})
    transform = ExtractClues(config(), model)
    block = table([row(*SENTENCES), row(key="none")], ["question_id", "question", "sentences"])
    part = asyncio.run(transform(block))
    counted = stage(config(), {}).counts(part)
    tokens = len(model.prompts[0].split()) + 10
    assert counted == {
        **{"calls": 1, "retries": 0, "malformed": 0},
        **{"unfaithful": 1, "tokens": tokens},
    }
