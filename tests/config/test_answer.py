"""Tests of pipeline.config.answer and nli: what a task implies."""

from typing import Any

import pytest
from pydantic import ValidationError

from pipeline.config import AnswerConfig, EvaluationConfig
from tests.config.test_jobs import dataset, evaluate


@pytest.mark.parametrize(
    ("given", "tokens"),
    [
        ({}, 32),
        ({"task": "short_answer"}, 32),
        ({"task": "asqa"}, 300),
        ({"task": "qampari", "max_tokens": 64}, 64),
    ],
)
def test_a_task_brings_its_length_limit_unless_one_is_given(
    given: dict[str, Any], tokens: int
) -> None:
    assert AnswerConfig.model_validate(given).max_tokens == tokens


def test_a_short_answer_s_settings_are_what_they_were_before_there_were_tasks() -> None:
    assert AnswerConfig().plain() == {"template": "chat", "max_tokens": 32}
    assert AnswerConfig(task="eli5").plain()["task"] == "eli5"


def test_every_data_set_of_an_evaluation_may_have_its_own_task() -> None:
    own = {"task": "asqa", "template": "literal"}
    cfg = evaluate(dataset("one", answer=own), dataset("two"), answer={"max_tokens": 9})
    answers = [cfg.run_of(one, None).answer for one in cfg.datasets]
    assert answers == [AnswerConfig.model_validate(own), AnswerConfig(max_tokens=9)]


def test_an_unknown_task_and_an_unknown_model_of_entailment_are_refused() -> None:
    with pytest.raises(ValidationError, match="'short_answer', 'asqa', 'qampari' or 'eli5'"):
        AnswerConfig.model_validate({"task": "triviaqa"})
    with pytest.raises(ValidationError, match="'seq2seq', 'classifier' or 'fake'"):
        EvaluationConfig.model_validate({"nli": {"engine": "judge", "model": "m"}})
