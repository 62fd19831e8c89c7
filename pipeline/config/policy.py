"""The questions put to models and the decisions taken: probe and selection."""

import math
import os
from typing import Annotated, Any, Literal, Self, TypeAlias, get_args

from pydantic import AfterValidator, Field, ValidationInfo, model_validator

from pipeline.config.base import Frozen, Path
from pipeline.config.clues import ClueOptions
from pipeline.config.listwise import LISTWISE
from pipeline.config.scorers import ScorerName


class ProbeConfig(Frozen):
    """The rollouts that measure uncertainty (spec: paper sections 3.2 and 3.3)."""

    template: Literal["literal", "chat"] = Field(description="raw prompt, or the chat template")
    passage_format: Literal["contents", "text"] = Field("contents", description="with title or not")
    top_k: int = Field(ge=2, description="K: largest logits that enter the entropy")
    allow_smaller_k: bool = Field(
        False, exclude=True, description="engine endpoint: K is what it gives where that is less"
    )
    max_tokens: int = Field(ge=1, description="MT: rollout length limit")
    trace: bool = Field(False, description="keep u_t for every K in {2..128}")
    free_rule_threshold: float | None = Field(
        None,
        allow_inf_nan=False,
        description="NU(q) below it: skip the conditional rollouts. Exact for any threshold >= it",
    )
    early_stop_threshold: float | None = Field(
        None,
        allow_inf_nan=False,
        description="end conditional rollouts whose gain cannot reach it. Exact for any threshold "
        ">= it; gains below it are then not measured",
    )

    @model_validator(mode="after")
    def _whole_traces(self) -> Self:
        if self.trace and self.early_stop_threshold is not None:
            raise ValueError("probe.trace needs whole rollouts: no probe.early_stop_threshold")
        return self


SCORERS: tuple[str, ...] = get_args(ScorerName)
"""What stages/score.py can compute; the column of each is score_<name>."""

Selector = Literal[
    "retriever", "ig", "set_aware", "adarank", "listwise", "clues", "blend", ScorerName
]
EmptyContext = Literal["frame", "closed_book", "top1", "abstain"]


def _not_nan(value: float) -> float:
    if math.isnan(value):
        raise ValueError("must be a number or -.inf")
    return value


Number: TypeAlias = Annotated[float, AfterValidator(_not_nan)]


class PolicyOptions(ClueOptions):
    """How candidates are ordered and admitted, whatever the threshold and the budget."""

    selector: Selector = Field("ig", description="signal that orders and admits, higher is better")
    guard_rule: Literal["prefix", "skip"] = Field("prefix", description="at the first misfit")
    blend: Path | None = Field(None, description="selector blend: JSON written by calibrate")
    ig_top_k: int | None = Field(
        None, ge=2, description="selector ig: K smaller than the probe's, from its trace"
    )
    ig_max_tokens: int | None = Field(
        None, ge=1, description="selector ig: MT smaller than the probe's, from its steps"
    )
    duplicate_penalty: float = Field(
        0.0,
        ge=0,
        allow_inf_nan=False,
        description="taken from the signal of a near-duplicate of a better passage",
    )
    pass_rate: tuple[float, float] | None = Field(
        None, description="[low, high]: outside, the share admitted hands over to the fallback"
    )
    nu0_limit: float | None = Field(
        None, ge=0, le=1, description="NU(q) below it hands over to the fallback"
    )
    on_refusal: Literal["keep", "treat_as_uncertain", "fallback"] = Field(
        "keep", description="where the rollout without evidence reads as a refusal"
    )
    refusal_nu0: float | None = Field(
        None, ge=0, le=1, description="treat_as_uncertain: NU(q) of a refusal, e.g. others' median"
    )
    fallback: Selector = Field(
        "retriever", description="orders, without threshold, where a gate hands over"
    )
    order_by: Literal["adarank", "listwise"] | None = Field(
        None, description="puts what the selector admits in this one's order, before the budget"
    )
    veto: Literal["adarank"] | None = Field(
        None, description="nothing is admitted where it names no passage"
    )

    @model_validator(mode="after")
    def _options_agree(self) -> Self:
        if (self.selector == "blend") != (self.blend is not None):
            raise ValueError("selector blend and the file `blend` need each other")
        if self.fallback in ("blend", "set_aware", "clues"):
            raise ValueError(
                f"fallback {self.fallback} has no signal; allowed: the other selectors"
            )
        if self.selector != "ig" and (self.ig_top_k or self.ig_max_tokens):
            raise ValueError("ig_top_k and ig_max_tokens are of selector ig alone")
        if self.selector in ("set_aware", *LISTWISE) and self.duplicate_penalty:
            raise ValueError(
                f"selector {self.selector} sees near-duplicates itself: no duplicate_penalty"
            )
        if (self.on_refusal == "treat_as_uncertain") != (self.refusal_nu0 is not None):
            raise ValueError("on_refusal treat_as_uncertain and refusal_nu0 need each other")
        if self.on_refusal == "treat_as_uncertain" and self.selector != "ig":
            raise ValueError("on_refusal treat_as_uncertain is of selector ig alone")
        if self.pass_rate is not None and not 0 <= self.pass_rate[0] <= self.pass_rate[1] <= 1:
            raise ValueError(f"pass_rate {list(self.pass_rate)}; allowed: 0 <= low <= high <= 1")
        return self

    @model_validator(mode="after")
    def _clues_agree(self) -> Self:
        if self.selector != "clues":
            names = ClueOptions.model_fields
            if other := [name for name in names if getattr(self, name) != names[name].default]:
                raise ValueError(f"{other[0]} is of selector clues alone")
            return self
        if self.order_by is not None or self.duplicate_penalty:
            name = "duplicate_penalty" if self.order_by is None else "order_by"
            raise ValueError(f"selector clues chooses sentences: no {name}, which is of passages")
        return self

    @property
    def rankings(self) -> tuple[str, ...]:
        """The listwise selectors whose lists the policy may read."""
        named = (self.selector, self.fallback, self.order_by, self.veto)
        return tuple(name for name in LISTWISE if name in named)

    @property
    def clue_models(self) -> tuple[Literal["extractor", "truncator"], ...]:
        """The language models of clues that the policy asks."""
        if self.selector != "clues":
            return ()
        asked: list[Literal["extractor", "truncator"]] = []
        asked += ["extractor"] * (self.extract == "model")
        asked += ["truncator"] * (self.truncate == "model")
        return tuple(asked)

    @property
    def probes_clues(self) -> bool:
        """Whether the policy needs rollouts with single sentences."""
        return self.selector == "clues" and self.rerank == "ig"

    @property
    def probed(self) -> bool:
        """Whether the policy cannot be formed without the probes."""
        needs_ig = "ig" in (self.selector, self.fallback) or self.selector == "set_aware"
        return needs_ig or self.nu0_limit is not None or self.on_refusal != "keep"

    @property
    def other_nu0(self) -> bool:
        """Whether NU(q) is another than the probe's: under a smaller K or MT, or a refusal's."""
        return any((self.ig_top_k, self.ig_max_tokens, self.refusal_nu0 is not None))


class SelectionConfig(PolicyOptions):
    """Admission and truncation (paper Algorithm 1), and what happens to an empty set."""

    threshold: Number = Field(description="Tp: smallest signal admitted; -.inf only reorders")
    top_m: int = Field(ge=0, description="M: passages kept")
    token_guard: int | None = Field(None, ge=1, description="B: passage tokens kept")
    empty_context: EmptyContext = Field(description="prompt of a question without evidence")

    @model_validator(mode="after")
    def _can_be_compared(self) -> Self:
        _check_threshold(self, "threshold", self.threshold)
        return self


def _check_threshold(policy: PolicyOptions, key: str, *thresholds: float) -> None:
    """A listwise order, or that of an extractor, has ranks and no scale on which a Tp would mean
    anything."""
    high = [threshold for threshold in thresholds if threshold > -math.inf]
    unscaled = policy.selector == "clues" and policy.rerank == "none"
    if high and (policy.selector in LISTWISE or unscaled):
        name = f"selector {policy.selector}" + " with rerank none" * unscaled
        raise ValueError(f"{name} has no threshold: {key} {high[0]:g}; allowed: -.inf")


class PolicyFile(Frozen):
    """What jobs/calibrate.py writes: a policy, and what it was found with."""

    selection: SelectionConfig
    origin: dict[str, Any] = Field(default_factory=dict, description="data, settings, figures")

    @model_validator(mode="before")
    @classmethod
    def _beside_the_file(cls, values: Any, info: ValidationInfo) -> Any:
        """A relative `selection.blend` is beside the policy file (context: its folder or URI)."""
        selection = values.get("selection") if isinstance(values, dict) else None
        if not isinstance(selection, dict) or not isinstance(selection.get("blend"), str):
            return values
        blend, folder = selection["blend"], (info.context or {}).get("folder", "")
        if "://" not in blend and not blend.startswith("~"):
            blend = os.path.join(folder, blend)
        return {**values, "selection": {**selection, "blend": blend}}


class GridEntry(PolicyOptions):
    """A selector with its thresholds, crossed with the budgets: one arm each."""

    label: str | None = Field(
        None,
        pattern=r"^[A-Za-z0-9][A-Za-z0-9._+-]*$",
        description="name in the arms' names and the report's files; null: the selector's",
    )
    thresholds: tuple[Number, ...] = Field(
        (-math.inf,), min_length=1, description="Tp: smallest signals admitted; -.inf only reorders"
    )
    top_m: Annotated[tuple[Annotated[int, Field(ge=1)], ...], Field(min_length=1)] | None = Field(
        None, description="M; null: those of the grid"
    )
    empty_context: EmptyContext | None = Field(None, description="null: that of the grid")

    @model_validator(mode="after")
    def _can_be_compared(self) -> Self:
        _check_threshold(self, "thresholds", *self.thresholds)
        return self


class ArmsConfig(Frozen):
    """A grid of arms: selectors x thresholds x M x B, and what they are compared with.

    Retrieval order at every budget, no evidence and closed book always belong to it.
    """

    top_m: tuple[Annotated[int, Field(ge=1)], ...] = Field(min_length=1, description="M")
    token_guards: tuple[Annotated[int, Field(ge=1)] | None, ...] = Field(
        (None,), min_length=1, description="B; null: no guard"
    )
    empty_context: EmptyContext = Field(description="prompt of a question without evidence")
    grid: tuple[GridEntry, ...] = Field((), description="selectors")
    controls: bool = Field(
        True,
        description="of every arm that prunes: retrieval's prefix and a random subset"
        " of the same size",
    )
    oracle: bool = Field(True, description="the best single passage, as the golden answers say")
