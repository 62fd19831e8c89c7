"""What is asked for in the end, and how the answers are measured."""

import re
from typing import Any, Literal, TypeAlias

from pydantic import Field, field_validator, model_validator

from pipeline.config.base import Frozen
from pipeline.config.nli import NliConfig

Task: TypeAlias = Literal["short_answer", "asqa", "qampari", "eli5"]
"""What an answer is: a short one; of ALCE a paragraph that covers all readings of the question, a
comma-separated list, or a paragraph that explains."""
SHORT_ANSWER: Task = "short_answer"
TASK_TOKENS = 300
"""The default answer length limit of the ALCE tasks, ALCE's own."""


class AnswerConfig(Frozen):
    """Final generation."""

    task: Task = Field(
        SHORT_ANSWER,
        exclude_if=lambda task: task == SHORT_ANSWER,  # so that older stages are found
        description="what is asked for: its prompt, its length limit, and its own metrics",
    )
    template: Literal["chat", "literal"] = Field("chat", description="chat template, or plain text")
    max_tokens: int = Field(
        32, ge=1, description=f"answer length limit; of the other tasks {TASK_TOKENS} by default"
    )

    @model_validator(mode="before")
    @classmethod
    def _length_of_task(cls, values: Any) -> Any:
        if not isinstance(values, dict) or values.get("task", SHORT_ANSWER) == SHORT_ANSWER:
            return values
        return {"max_tokens": TASK_TOKENS, **values}


class EvaluationConfig(Frozen):
    """Metrics and their intervals."""

    bootstrap_samples: int = Field(2000, ge=100, description="resamples of an interval")
    refusal_patterns: tuple[str, ...] = Field((), description="extra patterns of refusals")
    first_line: bool = Field(
        True, description="ALCE tasks: of an answer only the first line is scored, as ALCE does"
    )
    nli: NliConfig | None = Field(
        None, description="task eli5: model of claim_recall; null: it stays undefined"
    )

    @field_validator("refusal_patterns")
    @classmethod
    def _regular(cls, patterns: tuple[str, ...]) -> tuple[str, ...]:
        for pattern in patterns:
            try:
                re.compile(pattern)
            except re.error as error:
                raise ValueError(f"{pattern!r} is not a regular expression ({error})") from None
        return patterns
