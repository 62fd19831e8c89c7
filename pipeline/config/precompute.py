"""Contexts made beforehand: the main job's way from questions to evidence, and a date."""

import datetime
from typing import Any, ClassVar

from pydantic import Field, model_validator

from pipeline.config.jobs import OfflineIgpConfig


class PrecomputeConfig(OfflineIgpConfig):
    """Everything jobs/precompute_contexts.py needs: one input, one policy, and a date.

    Nothing is answered: of `evaluation` the refusal patterns alone count, for policies with a rule
    for refusals.
    """

    answered: ClassVar[bool] = False
    date: datetime.date | None = Field(
        None, description="of the partition that is written, YYYY-MM-DD; null: today, in UTC"
    )

    @model_validator(mode="before")
    @classmethod
    def _one_policy_and_no_answers(cls, values: Any) -> Any:
        """Before what such a section lacks is told."""
        given = values if isinstance(values, dict) else {}
        if given.get("arms") is not None:
            raise ValueError("arms: contexts are of one policy; give selection or policy")
        if "answer" in given:
            raise ValueError("answer: contexts are not answered; leave the section out")
        return values
