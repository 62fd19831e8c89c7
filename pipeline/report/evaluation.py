"""Arms over several data sets as frames: one row a data set and arm, and the papers' table."""

from collections.abc import Mapping, Sequence
from typing import Any

import polars as pl

from pipeline.report.comparisons import BASELINE, CONTROLS, UNGATED, bare, ungated
from pipeline.report.finished import Finished
from pipeline.report.resampled import columns as mean_columns
from pipeline.report.resampled import schema as mean_schema
from pipeline.stages.arms import prunes, replays, threshold

MEANS = {
    "f1": "f1",
    "em": "em",
    "sub_em": "sub_em",
    "f1_minus_baseline": BASELINE,
    "f1_minus_ungated": UNGATED,
    "wrong": "wrong",
    "ndcg": "ndcg",
    "ndcg_candidates": "ndcg_candidates",
}
"""Of a summary's arm: means with intervals, and their names in frames."""
NUMBERS = {
    "tk": "tk",
    "tk_labelled": "tk_labelled",
    "answer_tokens": "answer_tokens",
    "selection_tokens": "selection_tokens",
    "selection_tokens_labelled": "selection_tokens_labelled",
    "probes_saved": "probes_saved",
    "nte": "nte",
    "nte_with_probes": "nte_with_selection",
    "empty_share": "empty_share",
    "evidence_size": "evidence_size",
    "refusal_share_without_evidence": "refused_without_evidence",
}
PAPER = {
    **{"f1": "F1", "f1_low": "F1_low", "f1_high": "F1_high"},
    **{"tk": "TK", "nte": "NTE", "empty_share": "none admitted"},
}
"""Of a data set's columns in the papers' table, and what they are called there."""


def arms(runs: Sequence[Finished]) -> pl.DataFrame:
    """One row a data set and arm, in declared order: what the arm is, and all its numbers.

    A mean x comes as x, x_low, x_high, x_n, x_undefined; null is undefined. `difference` is F1
    minus that of retrieval order under the same budget, `minus_same_size` and `minus_random` F1
    minus those of the arm's controls of equal size, `minus_ungated` F1 minus that of the arm that
    differs in the gate on NU(q) alone, which `ungated` names, all paired. `threshold` is -inf where
    an arm only reorders.
    `replayed` arms take IG under a smaller K or MT than the probe's; `bare` ones have no gate, no
    penalty for near-duplicates and no rule for refusals.
    """
    rows = []
    for run in runs:
        others = ungated(run.arms)
        for declared, measured in zip(run.arms, run.metrics["arms"], strict=True):
            made = {"dataset": run.dataset, **_declared(declared, run), **_measured(measured)}
            rows.append(made | {"ungated": others.get(str(declared["arm"]))})
    schema = dict(_SCHEMA.items())
    return pl.DataFrame(rows, schema=schema)


def paper_table(arms: pl.DataFrame, average: pl.DataFrame) -> pl.DataFrame:
    """The papers' table: a row an arm, and of each data set and `average` what PAPER names.

    Rows come by budget, those without one last, and in declared order within it. `top_m` is null
    without a budget.
    """
    budget = pl.when(pl.col("kind").is_in(["oracle", "no_evidence", "closed_book"]))
    wide = arms.unique("arm", keep="first", maintain_order=True).select(
        "arm", budget.then(None).otherwise(pl.col("top_m")).alias("top_m"), "token_guard"
    )
    for frame in (arms, average):
        for (name,), part in frame.group_by("dataset", maintain_order=True):
            own = _columns(part, str(name))
            wide = wide.join(own, on="arm", how="left", maintain_order="left")
    return wide.sort("top_m", "token_guard", nulls_last=True, maintain_order=True)


def _columns(part: pl.DataFrame, name: str) -> pl.DataFrame:
    return part.select(
        "arm", *(pl.col(column).alias(f"{name} {shown}") for column, shown in PAPER.items())
    )


DECLARED = (
    "kind",
    "selector",
    "label",
    "threshold",
    "top_m",
    "token_guard",
    "empty_context",
    "ig_top_k",
    "ig_max_tokens",
    "control_of",
    "baseline",
    "ungated",
    "prunes",
    "replayed",
    "bare",
)
_TEXT = (*("kind", "selector", "label", "empty_context", "control_of", "baseline", "ungated"),)
_COUNTS = ("top_m", "token_guard", "ig_top_k", "ig_max_tokens", "without_evidence", "n")


def _declared(arm: Mapping[str, Any], run: Finished) -> dict[str, Any]:
    """What an arm is. K and MT of IG are the probe's where the policy replays no smaller ones."""
    policy = arm["policy"]
    made: dict[str, Any] = {"arm": arm["arm"], "kind": arm["kind"], "label": label(arm)}
    made |= {"control_of": arm["control_of"], "baseline": arm["baseline"], "prunes": prunes(arm)}
    made["replayed"] = replays(arm)
    if policy is None:
        return made
    names = ("selector", "top_m", "token_guard", "empty_context")
    made |= {name: policy[name] for name in names} | {"threshold": threshold(policy)}
    made["bare"] = bare(policy)
    if policy["selector"] == "ig":
        made["ig_top_k"] = policy["ig_top_k"] or run.probe["top_k"]
        made["ig_max_tokens"] = policy["ig_max_tokens"] or run.probe["max_tokens"]
    return made


def label(arm: Mapping[str, Any]) -> str:
    """The method that an arm belongs to: the first word of its name, the rest being Tp, M and B."""
    return str(arm["arm"]).split(" ")[0]


def _measured(arm: Mapping[str, Any]) -> dict[str, Any]:
    made: dict[str, Any] = {name: arm[key] for key, name in NUMBERS.items()}
    made |= {"n": arm["n"], "without_evidence": arm["without_evidence"]}
    made["spearman_ndcg_f1"] = arm["spearman_ndcg_f1"]["value"]
    made["spearman_n"] = arm["spearman_ndcg_f1"]["n"]
    means = {name: arm[key] for key, name in MEANS.items()}
    means |= {one.column: arm["f1_minus_controls"].get(one.kind) for one in CONTROLS}
    for name, mean in means.items():
        made |= mean_columns(name, mean)
    return made


def _schema() -> dict[str, pl.DataType]:
    text, number, count = pl.String(), pl.Float64(), pl.Int64()
    made: dict[str, pl.DataType] = dict.fromkeys(("dataset", "arm"), text)
    for name in DECLARED:
        made[name] = text if name in _TEXT else count if name in _COUNTS else number
    made |= dict.fromkeys(("prunes", "replayed", "bare"), pl.Boolean())
    made |= mean_schema(*MEANS.values(), *(one.column for one in CONTROLS))
    made |= dict.fromkeys((*NUMBERS.values(), "spearman_ndcg_f1"), number)
    return made | dict.fromkeys(("without_evidence", "n", "spearman_n"), count)


_SCHEMA = _schema()
