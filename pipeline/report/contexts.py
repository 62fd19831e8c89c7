"""The numbers of a run that ends in contexts: how much evidence is left, at what cost."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from pipeline import schema
from pipeline.report.finished import Arm
from pipeline.stages.plan import Ledger

ARMS = schema.ARMS.name
COLUMNS = ("context.tokens", "context.admitted", "context.passage_ids", ARMS)
"""Of the finished rows, what `summarise` reads."""


def summarise(parts: Iterable[pa.Table], *, arms: Sequence[Arm]) -> dict[str, Any]:
    """The metrics of a run, JSON-able, None where there is no question.

    parts: finished rows with COLUMNS. `tokens` are of the contexts, `passage_tokens` by arm of
    its passages alone: the policy's, and those of retrieval order under the same budget.
    """
    sums = dict.fromkeys(("questions", "passages", "tokens", "empty"), 0)
    passages = {str(arm["arm"]): 0 for arm in arms}
    for part in parts:
        context = part[schema.CONTEXT.name].combine_chunks()
        field = {name: pc.struct_field(context, name) for name in context.type.names}
        sums["questions"] += len(part)
        sums["tokens"] += pc.sum(field["tokens"]).as_py() or 0
        sums["empty"] += int(np.sum(field["admitted"].to_numpy() == 0))
        sums["passages"] += len(pc.list_flatten(field["passage_ids"]))
        for name, tokens in _passage_tokens(part).items():
            passages[name] += tokens
    count = sums["questions"]
    means = {name: sums[name] / count if count else None for name in ("passages", "tokens")}
    return {
        "questions": count,
        "arms": [],
        "probe": {},
        "contexts": {
            "none_admitted": sums["empty"],
            **means,
            "passage_tokens": {n: t / count if count else None for n, t in passages.items()},
        },
    }


def work(before: Ledger, after: Ledger) -> Ledger:
    """By stage, what was counted between two ledgers of a run; beside the rollouts made and those
    taken up from other runs, `found`: those that the stage's parts held before."""
    made: Ledger = {}
    for stage, counts in after.items():
        was = before.get(stage, {})
        made[stage] = {name: value - was.get(name, 0) for name, value in counts.items()}
        if "rollouts" in counts:
            made[stage]["found"] = was.get("rollouts", 0) + was.get("taken_up", 0)
    return made


def lines(metrics: Mapping[str, Any]) -> list[str]:
    """What the terminal is told of a run's metrics, whose `work` is of this time."""
    found = metrics["contexts"]
    none = f"{found['none_admitted']} of them with no passage admitted"
    said = [f"contexts: {metrics['questions']}, {none}"]
    if metrics["questions"]:
        of_passages = "; ".join(f"{n} {t:.1f}" for n, t in found["passage_tokens"].items())
        said += [
            f"a context: {found['passages']:.2f} passages, {found['tokens']:.1f} tokens",
            f"tokens of its passages: {of_passages}",
        ]
    for stage, counts in metrics["work"].items():
        if "rollouts" in counts:
            ways = ("taken_up", "found")
            others = [
                f", {counts[name]:.0f} {name.replace('_', ' ')}" for name in ways if name in counts
            ]
            said.append(f"{stage}: {counts['rollouts']:.0f} rollouts made{''.join(others)}")
    return said


def _passage_tokens(part: pa.Table) -> dict[str, int]:
    """The tokens of the evidence of every arm, summed over a part's questions."""
    made = part[ARMS].combine_chunks().flatten()
    evidence = pc.struct_field(made, "evidence")
    tokens = pc.struct_field(pc.list_flatten(evidence), "tokens").to_numpy()
    arm_of = pc.struct_field(made, "arm").take(pc.list_parent_indices(evidence))
    names = arm_of.to_numpy(zero_copy_only=False)
    return {str(name): int(tokens[names == name].sum()) for name in set(names)}
