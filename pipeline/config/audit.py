"""The determinism audit: which run is probed again, how crowded, in which dtypes."""

from typing import Literal, Self

from pydantic import Field, model_validator

from pipeline.config.base import Frozen, Path
from pipeline.config.models import RuntimeConfig


class CompositionConfig(Frozen):
    """One way to put the sample's rollouts to the engine, which is started anew for it."""

    name: str = Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9 ._+-]*$", description="name in the report")
    in_flight: int | None = Field(
        None, ge=1, description="rollouts at once; 1: each alone; null: all, as the engine takes"
    )
    shuffled: bool = Field(False, description="in a seeded random order, not question by question")
    repeats: int = Field(
        1,
        ge=1,
        description="passes in a row in one engine: the later ones find a warm prefix cache",
    )


class LimitsConfig(Frozen):
    """What the audit lets pass; every comparison that it reports is held to it."""

    ig: float | None = Field(None, ge=0, description="largest |dIG|; null: reported only")
    admissions: int | None = Field(
        None, ge=0, description="candidates admitted otherwise at a Tp; null: reported only"
    )


class AuditConfig(Frozen):
    """Everything jobs/audit.py needs."""

    run: Path = Field(description="folder of a finished run with probes")
    output: Path | None = Field(
        None, description="folder for audit.json and audit.md; null: audit/ in the run's folder"
    )
    questions: int = Field(50, ge=1, description="questions in the sample")
    seed: int = Field(20240601, description="root of the sample and of the shuffles")
    dtypes: tuple[Literal["float32", "bfloat16", "float16"] | None, ...] = Field(
        (None,), min_length=1, description="weights to probe with; null: the run's own"
    )
    compositions: tuple[CompositionConfig, ...] = Field(
        min_length=1, description="the first is what the others of its dtype are compared with"
    )
    runtime: RuntimeConfig | None = Field(None, description="speed settings; null: the run's own")
    limits: LimitsConfig = Field(default_factory=LimitsConfig, description="the quality gate")

    @model_validator(mode="after")
    def _names_differ(self) -> Self:
        names = [composition.name for composition in self.compositions]
        if repeated := sorted({name for name in names if names.count(name) > 1}):
            raise ValueError(f"two compositions are called {repeated[0]!r}")
        return self
