"""The questions put to models and the decisions taken: probe, selection, answer, evaluation."""

import math
import re
from typing import Literal

from pydantic import Field, field_validator

from pipeline.config.base import Frozen


class ProbeConfig(Frozen):
    """The rollouts that measure uncertainty (spec: paper sections 3.2 and 3.3)."""

    template: Literal["literal", "chat"] = Field(description="raw prompt, or the chat template")
    passage_format: Literal["contents", "text"] = Field("contents", description="with title or not")
    top_k: int = Field(ge=2, description="K: largest logits that enter the entropy")
    max_tokens: int = Field(ge=1, description="MT: rollout length limit")
    trace: bool = Field(False, description="keep u_t for every K in {2..128}")
    free_rule_threshold: float | None = Field(
        None,
        allow_inf_nan=False,
        description="NU(q) below it: skip the conditional rollouts. Exact for any threshold >= it",
    )


class SelectionConfig(Frozen):
    """Admission and truncation (paper Algorithm 1), and what happens to an empty set."""

    threshold: float = Field(description="Tp: smallest gain admitted; -.inf only reorders")
    top_m: int = Field(ge=0, description="M: passages kept")
    token_guard: int | None = Field(None, ge=1, description="B: passage tokens kept")
    guard_rule: Literal["prefix", "skip"] = Field("prefix", description="at the first misfit")
    empty_context: Literal["frame", "closed_book", "top1", "abstain"] = Field(
        description="prompt of a question without evidence"
    )

    @field_validator("threshold")
    @classmethod
    def _a_number(cls, value: float) -> float:
        if math.isnan(value):
            raise ValueError("must be a number or -.inf")
        return value


class AnswerConfig(Frozen):
    """Final generation."""

    template: Literal["chat", "literal"] = Field("chat", description="chat template, or plain text")
    max_tokens: int = Field(32, ge=1, description="answer length limit")


class EvaluationConfig(Frozen):
    """Metrics and their intervals."""

    bootstrap_samples: int = Field(2000, ge=100, description="resamples of an interval")
    refusal_patterns: tuple[str, ...] = Field((), description="extra patterns of refusals")

    @field_validator("refusal_patterns")
    @classmethod
    def _regular(cls, patterns: tuple[str, ...]) -> tuple[str, ...]:
        for pattern in patterns:
            try:
                re.compile(pattern)
            except re.error as error:
                raise ValueError(f"{pattern!r} is not a regular expression ({error})") from None
        return patterns
