"""Contexts made beforehand: the main job's way from questions to evidence, and a date."""

import datetime
from typing import ClassVar, Self

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

    @model_validator(mode="after")
    def _one_policy_and_no_answers(self) -> Self:
        if self.arms is not None:
            raise ValueError("arms: contexts are of one policy; give selection or policy")
        if "answer" in self.model_fields_set:
            raise ValueError("answer: contexts are not answered; leave the section out")
        return self
