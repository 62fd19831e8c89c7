"""Monitoring: whether a later run still looks like the one that was calibrated on."""

import math

from pydantic import Field, field_validator

from pipeline.config.base import Frozen, Path


class DriftLimits(Frozen):
    """What counts as drift of NU, IG, T and pass rate."""

    psi_limit: float = Field(0.25, gt=0, description="population stability index, 10 bins")
    ks_limit: float = Field(0.15, gt=0, le=1, description="Kolmogorov-Smirnov statistic")
    pass_rate_limit: float = Field(0.1, gt=0, le=1, description="change of the mean pass rate")
    alpha: float = Field(
        0.01, gt=0, lt=1, description="drift this likely by chance alone is not flagged"
    )


class DriftConfig(DriftLimits):
    """Everything jobs/drift.py needs."""

    reference: Path = Field(description="folder of the finished run that the policy came from")
    current: Path = Field(description="folder of the finished run to judge")
    output: Path = Field(description="folder for drift.json and drift.md")
    threshold: float = Field(description="Tp: the pass rate is the share of candidates at or over")

    @field_validator("threshold")
    @classmethod
    def _finite(cls, value: float) -> float:
        if not math.isfinite(value):
            raise ValueError("must be a finite number: at -.inf or .inf the pass rate says nothing")
        return value
