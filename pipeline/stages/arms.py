"""Arms: every named way to form a question's evidence, expanded from a policy or a grid.

A pruning policy never stands alone: beside it there are retrieval order under the same budget
and two controls of as many passages per question as it kept, since any truncation saves tokens.
"""

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any, Literal

from pipeline.config import ArmsConfig, GridEntry, PolicyOptions, SelectionConfig
from pipeline.config.listwise import LISTWISE
from pipeline.config.policy import SCORERS
from pipeline.stages import clues

Kind = Literal[
    "policy", "same_size", "random_same_size", "single", "oracle", "no_evidence", "closed_book"
]
PROBED = frozenset({"ig", "neg_nu", "answer_pmi", "answer_prior"})
"""Signals that come from the probes; all of them from the rollouts with a passage."""
NO_EVIDENCE, CLOSED_BOOK, ORACLE = "no_evidence", "closed_book", "oracle"


@dataclass(frozen=True)
class Arm:
    """One arm. `policy` is that of a policy arm, and of the arm `of` whose size a control copies.

    `baseline` names retrieval order under the same budget, None where there is no budget;
    `blended` are the signals of the policy's blend, once its file has been read.
    """

    name: str
    kind: Kind
    policy: SelectionConfig | None = None
    of: str | None = None
    baseline: str | None = None
    blended: tuple[str, ...] = ()

    @property
    def stages(self) -> tuple[str, ...]:
        """The durable stages without which the arm could not be formed; retrieval is free."""
        return () if self.policy is None else policy_stages(self.policy, self.blended)

    @property
    def reads_rollouts(self) -> bool:
        """Whether the arm is made of the rollouts with a passage, not only of the first one."""
        return self.policy is not None and _reads_rollouts(
            (self.policy.selector, _used_fallback(self.policy), *self.blended)
        )

    @property
    def spared_below(self) -> float | None:
        """NU(q) below which the arm reads no rollout with a passage; None: there is no such limit.

        The limit must be of the NU(q) that the probe measures, and the fallback must not need
        what is spared.
        """
        policy = self.policy
        if policy is None or policy.other_nu0 or _reads_rollouts((policy.fallback,)):
            return None
        return policy.nu0_limit

    def plain(self) -> dict[str, Any]:
        """The arm as manifests hold it."""
        policy = None if self.policy is None else self.policy.plain()
        return {
            "arm": self.name,
            "kind": self.kind,
            "control_of": self.of,
            "baseline": self.baseline,
            "stages": list(self.stages),
            "reads_rollouts": self.reads_rollouts,
            "policy": policy,
        }


class ArmError(ValueError):
    """Arms that cannot stand together."""


def main_arms(selection: SelectionConfig) -> tuple[Arm, ...]:
    """The arms of the main job: the policy, its controls, and what it is compared with."""
    name = "igp" if selection.selector == "ig" else selection.selector
    retriever = _retriever(selection, selection.top_m, selection.token_guard)
    top1 = _retriever(selection, 1, None)
    arms = [Arm(name, "policy", selection, None, "retriever")]
    if name != "retriever":
        arms.append(Arm("retriever", "policy", retriever, None, "retriever"))
    arms.append(Arm("retriever_top1", "policy", top1, None, "retriever"))
    if name != "retriever":
        arms.append(Arm("retriever_same_size", "same_size", selection, name, "retriever"))
        arms.append(Arm("random_same_size", "random_same_size", selection, name, "retriever"))
    arms.append(Arm(NO_EVIDENCE, "no_evidence", baseline="retriever"))
    arms.append(Arm(CLOSED_BOOK, "closed_book", baseline="retriever"))
    return _checked(arms)


def context_arms(selection: SelectionConfig) -> tuple[Arm, ...]:
    """The arms of contexts that nobody answers: the policy, and retrieval order under its budget
    where it is another, whose size theirs is told beside."""
    policy, *others = main_arms(selection)
    return (policy, *(arm for arm in others if arm.name == "retriever"))


def grid_arms(grid: ArmsConfig) -> tuple[Arm, ...]:
    """Every arm of a grid; ArmError where two would have one name."""
    budgets = list(product(grid.top_m, grid.token_guards))
    every = [*budgets, *((m, b) for e in grid.grid for m, b in _budgets(e, grid))]
    arms = [
        Arm(name, "policy", _retriever(grid, m, b), None, name)
        for m, b in dict.fromkeys(every)
        for name in [_name("retriever", -math.inf, m, b)]
    ]
    for entry in grid.grid:
        arms.extend(_entry_arms(entry, grid))
    largest = _name("retriever", -math.inf, max(grid.top_m), grid.token_guards[0])
    if grid.oracle:
        arms.append(Arm(ORACLE, "oracle", baseline=largest))
    arms.append(Arm(NO_EVIDENCE, "no_evidence", baseline=largest))
    arms.append(Arm(CLOSED_BOOK, "closed_book", baseline=largest))
    return _checked(arms)


def spared_below(arms: Sequence[Arm], signals: Iterable[str]) -> float | None:
    """NU(q) below which nothing reads the rollouts with a passage: the smallest limit of the gates.

    signals: those that scorers and blends measure. None where one of them, or an arm without such
    a gate, reads the rollouts of every question.
    """
    if _reads_rollouts(signals):
        return None
    readers = [arm.spared_below for arm in arms if arm.reads_rollouts]
    gates = [arm.spared_below for arm in arms if arm.spared_below is not None]
    return None if None in readers else min(gates, default=None)


def threshold(policy: Mapping[str, Any]) -> float:
    """A plain policy's Tp, a number, "-Infinity" or "Infinity"."""
    return float(policy["threshold"])


def replays(arm: Mapping[str, Any]) -> bool:
    """Whether a plain arm takes IG under a smaller K or MT than the probe's."""
    policy = arm["policy"]
    return policy is not None and bool(policy["ig_top_k"] or policy["ig_max_tokens"])


def prunes(arm: Mapping[str, Any]) -> bool:
    """Whether a plain arm, or the one that it controls, has a threshold above -inf, or a selector
    that leaves passages out by itself."""
    policy = arm["policy"]
    return policy is not None and _prunes(policy)


def policy_under_test(arms: Sequence[Mapping[str, Any]]) -> Mapping[str, Any] | None:
    """The plain arm that reports look at closely; None where every policy is retrieval order.

    Of those that prune by IG (else of those that prune, else of those that reorder) at the largest
    M, those of the label that has most of them, and of these the middle one as declared. So the
    declaration decides and not the results: nobody picks the best of many, and a variant with a
    gate, or with another one's order or veto, is not taken for the selector itself.
    """
    policies = [
        arm for arm in arms if arm["kind"] == "policy" and arm["policy"]["selector"] != "retriever"
    ]
    pruning = [arm for arm in policies if prunes(arm)]
    by_ig = [arm for arm in pruning if _is_plain_ig(arm["policy"]) and not replays(arm)]
    kind = by_ig or pruning or policies
    if not kind:
        return None
    largest = max(arm["policy"]["top_m"] for arm in kind)
    by_label: dict[str, list[Mapping[str, Any]]] = {}
    for arm in kind:
        if arm["policy"]["top_m"] == largest:
            by_label.setdefault(str(arm["arm"]).partition(" ")[0], []).append(arm)
    alike = max(by_label.values(), key=len)  # the first of equally long ones
    return alike[len(alike) // 2]


def scorers(arms: Sequence[Arm]) -> set[str]:
    """The scorers that the arms need."""
    return _named(arms) & set(SCORERS)


def policy_stages(policy: PolicyOptions, blended: Sequence[str] = ()) -> tuple[str, ...]:
    """The durable stages that a policy's signals come from, those of its blend among them."""
    read = (policy.selector, _used_fallback(policy), policy.order_by, policy.veto, *blended)
    signals = [signal for signal in read if signal is not None]
    names = [scorer_stage(signal) for signal in signals if signal in SCORERS]
    if policy.probed or not PROBED.isdisjoint(signals):
        names.append("probe")
    if policy.selector == "set_aware":
        names.append("probe_sets")
    names += [rank_stage(signal) for signal in signals if signal in LISTWISE]
    names += clues.stages(policy)
    return tuple(dict.fromkeys(names))


def scorer_stage(scorer: str) -> str:
    """The stage that makes a scorer's column; two scorers may come from one pass."""
    shared = {"qlm_gain": "qlm", "answer_prior": "answer_pmi"}
    return f"score_{shared.get(scorer, scorer)}"


def rank_stage(selector: str) -> str:
    """The stage that makes a listwise selector's column."""
    return f"rank_{selector}"


def rankers(arms: Sequence[Arm]) -> list[str]:
    """The listwise selectors that the arms need, in plan order."""
    read = {name for arm in arms if arm.policy is not None for name in arm.policy.rankings}
    named = read.union(*(arm.blended for arm in arms))
    return [selector for selector in LISTWISE if selector in named]


def _named(arms: Sequence[Arm]) -> set[str]:
    """The selectors, fallbacks and blended signals of the arms."""
    policies = [arm.policy for arm in arms if arm.policy is not None]
    named: set[str] = {name for p in policies for name in (p.selector, p.fallback)}
    return {*named, *(name for arm in arms for name in arm.blended)}


def _prunes(policy: Mapping[str, Any]) -> bool:
    """Of a plain policy; those of older manifests have no veto."""
    by_itself = policy["selector"] == "adarank" or policy.get("veto") is not None
    if policy["selector"] == "clues":
        by_itself = (policy["extract"], policy["truncate"]) != ("none", "none")
    return by_itself or threshold(policy) > -math.inf


def _is_plain_ig(policy: Mapping[str, Any]) -> bool:
    """Whether nothing but IG orders and admits; policies of older manifests have nothing else."""
    return policy["selector"] == "ig" and not (policy.get("order_by") or policy.get("veto"))


def _reads_rollouts(signals: Iterable[str]) -> bool:
    return not (PROBED | {"set_aware"}).isdisjoint(signals)


def _used_fallback(policy: PolicyOptions) -> str:
    gated = policy.pass_rate is not None or policy.nu0_limit is not None
    return policy.fallback if gated or policy.on_refusal == "fallback" else "retriever"


def _entry_arms(entry: GridEntry, grid: ArmsConfig) -> Iterator[Arm]:
    label = entry.label or entry.selector
    options = {name: getattr(entry, name) for name in PolicyOptions.model_fields}
    empty = entry.empty_context or grid.empty_context
    for threshold, (top_m, guard) in product(entry.thresholds, _budgets(entry, grid)):
        name = _name(label, threshold, top_m, guard)
        baseline = _name("retriever", -math.inf, top_m, guard)
        policy = SelectionConfig(
            **options, threshold=threshold, top_m=top_m, token_guard=guard, empty_context=empty
        )
        plain = _retriever(grid, top_m, guard)
        if name == baseline and policy == (plain if entry.empty_context else _empty(plain, empty)):
            continue  # already there
        yield Arm(name, "policy", policy, None, baseline)
        if grid.controls and _prunes(policy.plain()):
            yield Arm(f"{name} [retriever]", "same_size", policy, name, baseline)
            yield Arm(f"{name} [random]", "random_same_size", policy, name, baseline)


def _budgets(entry: GridEntry, grid: ArmsConfig) -> list[tuple[int, int | None]]:
    return list(product(entry.top_m or grid.top_m, grid.token_guards))


def _retriever(
    like: SelectionConfig | ArmsConfig, top_m: int, guard: int | None
) -> SelectionConfig:
    rule = like.guard_rule if isinstance(like, SelectionConfig) else "prefix"
    return SelectionConfig(
        selector="retriever",
        threshold=-math.inf,
        top_m=top_m,
        token_guard=guard,
        guard_rule=rule,
        empty_context="frame",
    )


def _empty(policy: SelectionConfig, rule: str) -> SelectionConfig:
    return policy.model_copy(update={"empty_context": rule})


def _name(label: str, threshold: float, top_m: int, guard: int | None) -> str:
    parts = [label, "" if threshold == -math.inf else f"{threshold:g}", f"M{top_m}"]
    return " ".join([*filter(None, parts), *([] if guard is None else [f"B{guard}"])])


def _checked(arms: Sequence[Arm]) -> tuple[Arm, ...]:
    names = [arm.name for arm in arms]
    if repeated := sorted({name for name in names if names.count(name) > 1}):
        raise ArmError(
            f"two arms would be called {repeated[0]!r}: give one grid entry a `label` of its own"
        )
    return tuple(arms)
