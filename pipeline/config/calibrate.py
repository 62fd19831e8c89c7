"""Calibration: how a policy is found from a finished run."""

import math
from typing import Literal, Self

from pydantic import Field, field_validator, model_validator

from pipeline.config.base import Frozen, Path
from pipeline.config.policy import EmptyContext, Selector


class QuantileConfig(Frozen):
    """A threshold from the quantiles of a signal: needs no golden answers."""

    signal: Selector = Field("ig", description="selector whose signal is cut")
    share: float | None = Field(None, gt=0, le=1, description="of the candidates, admit this share")
    tokens: float | None = Field(
        None, gt=0, description="admit so many passage tokens a question on average"
    )
    top_m: int = Field(ge=1, description="M of the policy")
    empty_context: EmptyContext = Field(description="prompt of a question without evidence")

    @model_validator(mode="after")
    def _one_target(self) -> Self:
        if (self.share is None) == (self.tokens is None):
            raise ValueError("quantile: give one of share and tokens")
        if self.signal in ("blend", "set_aware", "retriever"):
            raise ValueError(
                f"quantile.signal {self.signal}: allowed: ig and the scorers, which stand alone"
            )
        return self


class ChooseConfig(Frozen):
    """The best of a run's arms on labelled questions, cross-validated against a baseline."""

    target: Literal["best", "tokens", "quality"] = Field(
        "best",
        description="best F1; best F1 within `value` prompt tokens; fewest tokens at F1 "
        "`value` or more",
    )
    value: float | None = Field(None, description="of target tokens and quality")
    baseline: str = Field(
        description="arm to beat; for 'retriever M5' and the like the best M of that order"
    )
    folds: int = Field(5, ge=2, description="folds of the cross-validation, by question")

    @model_validator(mode="after")
    def _target_has_its_value(self) -> Self:
        if (self.target == "best") != (self.value is None):
            raise ValueError("choose: targets tokens and quality need a `value`, best takes none")
        return self


class BlendFitConfig(Frozen):
    """A logistic blend of cheap signals, fitted on labelled questions."""

    features: tuple[str, ...] = Field(
        ("retriever_z", "qlm_gain", "qlm_z"),
        min_length=1,
        description="signals as they are, or with _z or _gap: within the question",
    )
    folds: int = Field(5, ge=2, description="folds of the out-of-fold figures, by question")
    l2: float = Field(1.0, gt=0, description="penalty on the standardised weights")
    threshold: float = Field(
        0.0, description="Tp of the policy in log-odds: 0 admits what is more likely good than not"
    )
    top_m: int = Field(ge=1, description="M of the policy")
    empty_context: EmptyContext = Field(description="prompt of a question without evidence")

    @field_validator("threshold")
    @classmethod
    def _a_number(cls, value: float) -> float:
        if math.isnan(value):
            raise ValueError("must be a number or -.inf")
        return value


class CalibrateConfig(Frozen):
    """Everything jobs/calibrate.py needs: a finished run, and one of three ways."""

    run: Path = Field(description="folder of a finished run")
    output: Path = Field(description="folder for policy.yaml, calibration.json and a blend")
    seed: int = Field(20240601, description="root of folds and resamples")
    samples: int = Field(2000, ge=100, description="resamples of an interval")
    quantile: QuantileConfig | None = None
    choose: ChooseConfig | None = None
    blend: BlendFitConfig | None = None

    @model_validator(mode="after")
    def _one_way(self) -> Self:
        ways = ("quantile", "choose", "blend")
        given = [name for name in ways if getattr(self, name) is not None]
        if len(given) != 1:
            raise ValueError(f"give one of {', '.join(ways)}, got {' and '.join(given) or 'none'}")
        return self
