"""Tests of pipeline.stages.score_likelihood: what is asked, and what becomes of the answers.

The scripted scorer gives log p -1 to a token that was read before, and -3 to another.
"""

import asyncio
import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeline.engines.base import EngineDead, Floats, ModelNotFound, Refusal
from pipeline.engines.fake import FakeTokenizer
from pipeline.stages.score_likelihood import (
    AnswerPmi,
    Qlm,
    YesNo,
    continuation,
    log_odds,
    yes_no_ids,
)
from tests.stages.scorers import ScriptedScorer
from tests.stages.tables import candidate, table

WIND, RAIN = candidate("p-wind", "north wind", title="Weather"), candidate("p-rain", "cold rain")
PROMPT = "Please write a question. Question:"


def row(*candidates: dict[str, Any], question: str = "Which wind blows", **more: Any) -> Any:
    return {"question_id": "q", "question": question, "candidates": list(candidates), **more}


def probes(answers: Sequence[str], nu: Sequence[float | None]) -> dict[str, Any]:
    """The parts of a probe's record that answer_pmi reads."""
    return {"answers": list(answers), "nu": list(nu)}


def run(transform: Any, rows: Sequence[Any]) -> list[dict[str, Any]]:
    """The rows after the transform."""
    columns = ["question_id", "question", "candidates"]
    columns += ["probes"] if "probes" in rows[0] else []
    made = asyncio.run(transform(table(rows, columns)))
    assert made.column_names[: len(columns)] == columns
    found = made.to_pylist()
    assert isinstance(found, list)
    return found


def qlm(scorer: ScriptedScorer, limit: int = 512) -> Qlm:
    return Qlm(scorer, "contents", max_passage_tokens=limit)


def test_the_likelihood_of_the_question_is_a_sum_and_its_gain_is_over_no_passage() -> None:
    scorer = ScriptedScorer()
    (made,) = run(qlm(scorer), [row(WIND, RAIN)])
    # Which, blows: new, -3 each. wind: -1 over the first passage, else -3.
    assert made["score_qlm"] == [-7.0, -9.0]
    assert made["qlm_prior"] == -9.0
    assert made["score_qlm_gain"] == [2.0, 0.0]
    assert made["qlm_tokens"] == 3
    assert made["error"] is None
    # Prompts of 5, 13 and 12 words, each with the question's 3.
    assert made["score_tokens_qlm"] == 5 + 13 + 12 + 3 * 3
    assert scorer.asked == [
        (PROMPT, "Which wind blows"),
        (
            "Passage: Weather north wind Please write a question based on this passage. Question:",
            "Which wind blows",
        ),
        (
            "Passage: cold rain Please write a question based on this passage. Question:",
            "Which wind blows",
        ),
    ]


def test_a_long_passage_is_cut_at_its_first_tokens() -> None:
    scorer = ScriptedScorer()
    (made,) = run(qlm(scorer, 2), [row(WIND)])
    assert scorer.asked[1][0].startswith("Passage: Weather north Please")
    assert made["score_qlm"] == [-9.0]


def test_a_question_without_candidates_has_a_prior_and_no_scores() -> None:
    (made,) = run(qlm(ScriptedScorer()), [row()])
    assert made["score_qlm"] == [] == made["score_qlm_gain"]
    assert made["qlm_prior"] == -9.0


def test_equal_requests_of_a_block_are_made_once_and_counted_once_a_row() -> None:
    scorer = ScriptedScorer()
    twin = candidate("p-twin", "north wind", title="Weather")
    first, second = run(qlm(scorer), [row(WIND, twin), row(WIND)])
    assert len(scorer.asked) == 2
    assert first["score_qlm"] == [-7.0, -7.0]
    assert first["score_tokens_qlm"] == second["score_tokens_qlm"] == 5 + 13 + 2 * 3


def test_a_refusal_kills_the_question_and_names_the_passage() -> None:
    scorer = ScriptedScorer(refuse=["cold"])
    dead, alive = run(qlm(scorer), [row(WIND, RAIN), row(WIND)])
    assert dead["error"] == "passage 'p-rain': the engine will not hear 'cold'"
    assert dead["score_qlm"] is dead["qlm_prior"] is dead["score_tokens_qlm"] is None
    assert alive["error"] is None and alive["score_qlm"] == [-7.0]
    (without,) = run(qlm(ScriptedScorer(refuse=["question."])), [row(WIND)])
    assert without["error"] == "without passage: the engine will not hear 'question.'"


def test_an_engine_that_is_lost_is_not_taken_for_a_refusal() -> None:
    class Dying(ScriptedScorer):
        async def log_likelihood(
            self, prefix_ids: Sequence[int], target_ids: Sequence[int]
        ) -> Floats:
            raise EngineDead("gone")

    with pytest.raises(EngineDead, match="gone"):
        run(qlm(Dying()), [row(WIND)])


YES_NO = {"Yes": 0.1, "yes": 0.2, "YES": 0.3, "No": 0.05, "no": 0.1, "NO": 0.15}
RAINY = {"Yes": 0.02, "yes": 0.03, "YES": 0.05, "No": 0.05, "no": 0.1, "NO": 0.25}


def test_yes_over_no_is_the_log_odds_of_their_summed_spellings() -> None:
    scorer = ScriptedScorer({"Passage:": YES_NO, "rain": RAINY})
    (made,) = run(YesNo(scorer, "contents", template="literal"), [row(WIND, RAIN)])
    # 0.6 / 0.3, and 0.1 / 0.4.
    assert made["score_yes_no"] == pytest.approx([math.log(2), math.log(0.25)], abs=1e-6)
    assert scorer.asked[1][0] == (
        "Passage: cold rain Question: Which wind blows Does the passage answer the question? "
        "Answer Yes or No. Answer:"
    )
    assert made["score_tokens_yes_no"] == 19 + 18


def test_yes_or_no_can_be_asked_through_the_chat_template() -> None:
    scorer = ScriptedScorer({"Passage:": YES_NO})
    run(YesNo(scorer, "text", template="chat"), [row(WIND)])
    prompt = scorer.asked[0][0]
    assert prompt.startswith("<user> Passage: north wind Question:")
    assert prompt.endswith("Answer Yes or No. <assistant>")


def test_a_yes_that_cannot_be_asked_kills_the_question() -> None:
    scorer = ScriptedScorer({"Passage:": YES_NO}, refuse=["cold"])
    (made,) = run(YesNo(scorer, "contents", template="literal"), [row(WIND, RAIN)])
    assert made["error"] == "passage 'p-rain': the engine will not hear 'cold'"
    assert made["score_yes_no"] is None


class Pieces(FakeTokenizer):
    """A tokenizer that knows some texts as one token; any other is two."""

    def __init__(self, whole: dict[str, int]) -> None:
        super().__init__()
        self._whole = whole

    def ids(self, text: str) -> list[int]:
        return [self._whole[text]] if text in self._whole else [1, 2]


def test_only_spellings_that_are_one_token_count_and_each_token_once() -> None:
    found = yes_no_ids(Pieces({"Yes": 7, " Yes": 9, "yes": 7, " no": 4}))
    assert found == ((7, 9), (4,))


@pytest.mark.parametrize("whole", [{"Yes": 7}, {" no": 4}, {"Yes": 3, "YES": 5, "NO": 3}])
def test_a_tokenizer_without_tokens_of_their_own_for_yes_and_no_is_refused(
    whole: dict[str, int],
) -> None:
    with pytest.raises(ModelNotFound, match="no tokens of their own for Yes"):
        yes_no_ids(Pieces(whole))


@given(
    yes=st.lists(st.floats(-30, 0), min_size=1, max_size=4),
    no=st.lists(st.floats(-30, 0), min_size=1, max_size=4),
)
def test_log_odds_are_antisymmetric_and_the_ratio_of_the_sums(
    yes: list[float], no: list[float]
) -> None:
    yes_J, no_J = np.array(yes, np.float32), np.array(no, np.float32)
    found = log_odds(yes_J, no_J)
    assert found == -log_odds(no_J, yes_J)
    ratio = np.exp(yes_J.astype(float)).sum() / np.exp(no_J.astype(float)).sum()
    assert found == pytest.approx(math.log(ratio), abs=1e-4)


def pmi(scorer: ScriptedScorer) -> AnswerPmi:
    return AnswerPmi(scorer, "contents", template="literal")


def test_the_answer_to_each_passage_is_scored_with_it_and_without_any() -> None:
    scorer = ScriptedScorer()
    probed = probes(["ignored", "north wind", "snow"], [0.1, 0.2])
    (made,) = run(pmi(scorer), [row(WIND, RAIN, probes=probed)])
    # "north wind" after its passage -1 -1, alone -3 -1 (the question has wind); "snow" -3 both.
    assert made["score_answer_pmi"] == [2.0, 0.0]
    assert made["score_answer_prior"] == [4.0, 3.0]
    assert made["score_tokens_answer_pmi"] == (5 + 2) + (9 + 2) + (5 + 1) + (8 + 1)
    assert sorted(scorer.asked) == sorted(
        [
            ("User: Which wind blows Assistant:", "north wind"),
            ("User: Which wind blows Context: Weather north wind Assistant:", "north wind"),
            ("User: Which wind blows Assistant:", "snow"),
            ("User: Which wind blows Context: cold rain Assistant:", "snow"),
        ]
    )


def test_a_probe_that_was_not_run_or_said_nothing_has_no_score() -> None:
    free = probes(["said"], [None, None])  # the free rule spared the rollouts with a passage
    silent = probes(["said", " ", "rain"], [0.3, 0.2])
    stopped = probes(["said", "north", "rain"], [None, 0.2])
    scorer = ScriptedScorer()
    rows = [row(WIND, RAIN, probes=record) for record in (free, silent, stopped)]
    made = run(pmi(scorer), rows)
    assert made[0]["score_answer_pmi"] == [None, None] == made[0]["score_answer_prior"]
    assert made[0]["score_tokens_answer_pmi"] == 0
    for one in made[1:]:
        assert one["score_answer_pmi"] == [None, 2.0]
        assert one["error"] is None
    assert len(scorer.asked) == 2


def test_a_refused_answer_kills_the_question() -> None:
    probed = probes(["", "north", "snow"], [0.1, 0.2])
    (made,) = run(pmi(ScriptedScorer(refuse=["cold"])), [row(WIND, RAIN, probes=probed)])
    assert made["error"] == "passage 'p-rain': the engine will not hear 'cold'"
    assert made["score_answer_pmi"] is None


def test_a_text_continues_with_a_space_or_is_refused() -> None:
    class Characters(FakeTokenizer):
        """A token a character, but for the text of the marks that it merges."""

        def ids(self, text: str) -> list[int]:
            return [0] if "!" in text else [ord(c) for c in text]

    tokenizer = Characters()
    assert continuation(tokenizer, "Question:", " who ") == tuple(map(ord, " who"))
    assert continuation(tokenizer, "Question:", "  ") == ()
    with pytest.raises(Refusal, match="merges 'who!'"):
        continuation(tokenizer, "Question:", "who!")


def test_a_question_without_words_is_refused_by_the_engine_with_a_reason() -> None:
    from pipeline.config import GeneratorConfig
    from pipeline.engines.fake import FakeScorer

    fake = FakeScorer(GeneratorConfig(engine="fake", model="fake"))
    (made,) = run(Qlm(fake, "contents", max_passage_tokens=512), [row(WIND, question=" ")])
    assert made["error"] == "without passage: nothing to score: 0 tokens after a prompt of 5"
