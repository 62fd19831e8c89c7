"""Tests of pipeline.config.precompute: a policy, a date, and nothing that is answered."""

import datetime
from typing import Any

import pytest
from pydantic import ValidationError

from pipeline.config import OfflineIgpConfig, PrecomputeConfig

GIVEN: dict[str, Any] = {
    "input": {"questions": "q.jsonl", "candidates": "c.jsonl", "corpus": "p.jsonl"},
    "generator": {"engine": "fake", "model": "m"},
    "probe": {"template": "chat", "top_k": 8, "max_tokens": 4},
    "selection": {"threshold": 0.05, "top_m": 2, "empty_context": "frame"},
}


def test_contexts_are_of_a_date_and_are_not_answered() -> None:
    cfg = PrecomputeConfig.model_validate({**GIVEN, "date": "2026-11-30"})
    assert cfg.date == datetime.date(2026, 11, 30)
    assert PrecomputeConfig.model_validate(GIVEN).date is None
    assert not cfg.answered and OfflineIgpConfig.model_validate(GIVEN).answered


@pytest.mark.parametrize(
    ("section", "value", "said"),
    [
        ("answer", {"max_tokens": 8}, "answer: contexts are not answered; leave the section out"),
        ("arms", {"top_m": [1], "empty_context": "frame"}, "arms: contexts are of one policy"),
        ("arms", {"top_m": [1]}, "arms: contexts are of one policy; give selection or policy"),
        ("date", "30.11.2026", "date"),
        ("selection", None, "give one of selection and policy, got none"),
    ],
)
def test_what_contexts_cannot_be_made_of_is_refused(section: str, value: Any, said: str) -> None:
    given = {**GIVEN, section: value}
    if section == "arms":
        del given["selection"]
    with pytest.raises(ValidationError, match=said):
        PrecomputeConfig.model_validate(given)
