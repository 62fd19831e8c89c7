"""Sweep: ranges of thresholds, budgets, K and MT, and the grid of arms that they make."""

from typing import Annotated, Self

from pydantic import Field, model_validator

from pipeline.config.base import Frozen
from pipeline.config.policy import ArmsConfig, EmptyContext, GridEntry, Number


class SweepRanges(Frozen):
    """What a sweep crosses: Tp x M at the probe's K and MT, and K x MT at one Tp and M."""

    thresholds: tuple[Number, ...] = Field(min_length=1, description="Tp")
    top_m: tuple[Annotated[int, Field(ge=1)], ...] = Field(min_length=1, description="M")
    empty_context: EmptyContext = Field(description="prompt of a question without evidence")
    top_k: tuple[Annotated[int, Field(ge=2)], ...] = Field(
        (), description="K of the heat map, from the probes' trace"
    )
    max_tokens: tuple[Annotated[int, Field(ge=1)], ...] = Field(
        (), description="MT of the heat map"
    )
    heat_threshold: Number = Field(0.05, description="Tp of the heat map")
    heat_top_m: int = Field(5, ge=1, description="M of the heat map")

    @model_validator(mode="after")
    def _both_or_none(self) -> Self:
        if bool(self.top_k) != bool(self.max_tokens):
            raise ValueError("sweep.top_k and sweep.max_tokens need each other")
        return self

    def arms(self) -> ArmsConfig:
        """The ranges as a grid of arms of the selector ig."""
        heat = [
            GridEntry(
                selector="ig",
                label=f"ig-K{k}-MT{steps}",
                ig_top_k=k,
                ig_max_tokens=steps,
                thresholds=(self.heat_threshold,),
                top_m=(self.heat_top_m,),
            )
            for k in self.top_k
            for steps in self.max_tokens
        ]
        return ArmsConfig(
            top_m=self.top_m,
            empty_context=self.empty_context,
            grid=(GridEntry(selector="ig", thresholds=self.thresholds), *heat),
        )
