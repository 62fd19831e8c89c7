"""What an arm's F1 is compared with: the columns of the paired differences, and their words."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pipeline.report.finished import Arm


@dataclass(frozen=True)
class Control:
    """A control of an arm that prunes, with as many passages for each question.

    `kind` is that of the control's arm, `column` holds F1 minus the control's, `short` stands in a
    cell.
    """

    kind: str
    column: str
    short: str
    words: str


CONTROLS = (
    Control("same_size", "minus_same_size", "prefix", "retrieval's prefix of the same size"),
    Control("random_same_size", "minus_random", "random", "random passages of the same size"),
)
BASELINE, UNGATED, FIRST = "difference", "minus_ungated", "minus_first"
"""Columns of F1 minus that of retrieval order under the same budget, of the same arm without its
gate on NU(q), and of the first row of a ranking."""
COMPARISONS = {
    BASELINE: "retrieval order under the same budget",
    **{control.column: control.words for control in CONTROLS},
}
"""In words, by column."""


def bare(policy: Mapping[str, Any]) -> bool:
    """Whether a manifest's policy is its selector's own: no gate, no other's order, no penalty for
    duplicates, no rule for refusals. An arm's name need not say so."""
    given = ("pass_rate", "nu0_limit", "order_by", "veto")  # the last two not in older manifests
    gated = any(policy.get(name) is not None for name in given)
    return not (gated or policy["duplicate_penalty"] or policy["on_refusal"] != "keep")


def ungated(arms: Sequence[Arm]) -> dict[str, str | None]:
    """By policy arm with a gate on NU(q): the arm that differs in it and in its name alone.

    Where nothing else hands over, the fallback says nothing of an arm without the gate.
    """
    plain = {_but_gate(a): str(a["arm"]) for a in arms if _has_gate(a) is False}
    return {str(a["arm"]): plain.get(_but_gate(a)) for a in arms if _has_gate(a)}


def _has_gate(arm: Arm) -> bool | None:
    """None for what is no policy arm."""
    return arm["policy"]["nu0_limit"] is not None if arm["kind"] == "policy" else None


def _but_gate(arm: Arm) -> str:
    policy = {**arm["policy"], "nu0_limit": None}
    if policy["pass_rate"] is None and policy["on_refusal"] != "fallback":
        policy["fallback"] = None
    return json.dumps(policy, sort_keys=True)
