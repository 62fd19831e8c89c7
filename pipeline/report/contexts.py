"""The numbers of a run that ends in contexts: how much evidence is left, at what cost."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from pipeline import schema
from pipeline.report.finished import Arm

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


def lines(metrics: Mapping[str, Any], *, complete: bool) -> list[str]:
    """What the terminal is told of a run's metrics; `complete`: nothing was made this time."""
    found, ledger = metrics["contexts"], metrics["ledger"]
    none = f"{found['none_admitted']} of them with no passage admitted"
    said = [f"contexts: {metrics['questions']}, {none}"]
    if metrics["questions"]:
        of_passages = "; ".join(f"{n} {t:.1f}" for n, t in found["passage_tokens"].items())
        said += [
            f"a context: {found['passages']:.2f} passages, {found['tokens']:.1f} tokens",
            f"tokens of its passages: {of_passages}",
        ]
    for stage, counts in ledger.items():
        if "rollouts" in counts:
            said.append(f"{stage}: {_rollouts(counts, complete=complete)}")
    return said


def _rollouts(counts: Mapping[str, float], *, complete: bool) -> str:
    made = f"{counts['rollouts']:.0f} rollouts made"
    if "taken_up" in counts:
        made += f", {counts['taken_up']:.0f} taken up"
    return f"no rollout now; when the run was made: {made}" if complete else made


def _passage_tokens(part: pa.Table) -> dict[str, int]:
    """The tokens of the evidence of every arm, summed over a part's questions."""
    made = part[ARMS].combine_chunks().flatten()
    evidence = pc.struct_field(made, "evidence")
    tokens = pc.struct_field(pc.list_flatten(evidence), "tokens").to_numpy()
    arm_of = pc.struct_field(made, "arm").take(pc.list_parent_indices(evidence))
    names = arm_of.to_numpy(zero_copy_only=False)
    return {str(name): int(tokens[names == name].sum()) for name in set(names)}
