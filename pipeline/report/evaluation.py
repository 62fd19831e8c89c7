"""Arms over several data sets as frames: one row a data set and arm, and the papers' table.

The average over data sets is that of "Less is More for RAG", tables 4 and 6: every data set
weighs the same, and the average NTE is the NTE of the averaged F1 and TK, not an average of NTEs
(their +IGP(0.05) at TopM = 5: .322/202.9 over .288/836.9 = 4.6; the five NTEs average to 5.0).
"""

import math
from collections.abc import Mapping, Sequence
from typing import Any

import polars as pl

from pipeline.core import cost
from pipeline.report.finished import Finished
from pipeline.stages.arms import prunes, replays, threshold

AVERAGE = "Avg."
MEANS = {
    "f1": "f1",
    "em": "em",
    "sub_em": "sub_em",
    "f1_minus_baseline": "difference",
    "f1_minus_ungated": "minus_ungated",
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
PARTS = {"value": "", "low": "_low", "high": "_high", "n": "_n", "undefined": "_undefined"}
CONTROLS = {"same_size": "minus_same_size", "random_same_size": "minus_random"}
PAPER = {"f1": "F1", "tk": "TK", "nte": "NTE", "empty_share": "empty"}


def arms(runs: Sequence[Finished]) -> pl.DataFrame:
    """One row a data set and arm, in declared order: what the arm is, and all its numbers.

    A mean x comes as x, x_low, x_high, x_n, x_undefined; null is undefined. `difference` is F1
    minus that of retrieval order under the same budget, `minus_same_size` and `minus_random` F1
    minus those of the arm's controls of equal size, `minus_ungated` F1 minus that of the arm that
    differs in the gate on NU(q) alone, all paired. `threshold` is -inf where an arm only reorders.
    `replayed` arms take IG under a smaller K or MT than the probe's; `bare` ones have no gate, no
    penalty for near-duplicates and no rule for refusals.
    """
    rows = [
        {"dataset": run.dataset, **_declared(declared, run), **_measured(measured)}
        for run in runs
        for declared, measured in zip(run.arms, run.metrics["arms"], strict=True)
    ]
    schema = dict(_SCHEMA.items())
    return pl.DataFrame(rows, schema=schema)


def averages(frame: pl.DataFrame) -> pl.DataFrame:
    """One row an arm: the unweighted averages over data sets; null where one of them has none.

    `datasets` counts the data sets, NTE is that of the averages.
    """
    datasets = frame["dataset"].n_unique()
    names = ("f1", "em", "sub_em", *NUMBERS.values())
    plain = [name for name in names if name not in ("nte", "nte_with_selection")]
    whole = [
        pl.when(pl.col(name).count() == datasets).then(pl.col(name).mean()).alias(name)
        for name in plain
    ]
    kept = [pl.col(name).first() for name in DECLARED]
    made = frame.group_by("arm", maintain_order=True).agg(*kept, *whole)
    by_arm = {row["arm"]: row for row in made.to_dicts()}
    made = made.with_columns(
        pl.Series("nte", [_nte(row, by_arm, paid=False) for row in by_arm.values()], pl.Float64),
        pl.Series(
            "nte_with_selection",
            [_nte(row, by_arm, paid=True) for row in by_arm.values()],
            pl.Float64,
        ),
        pl.lit(datasets, pl.Int64).alias("datasets"),
    )
    return made


def paper_table(frame: pl.DataFrame) -> pl.DataFrame:
    """The papers' table: a row an arm, F1, TK, NTE and empty share of each data set, and Avg.

    Rows come by budget, those without one last, and in declared order within it. `top_m` is null
    without a budget.
    """
    datasets = frame["dataset"].unique(maintain_order=True).to_list()
    budget = pl.when(pl.col("kind").is_in(["oracle", "no_evidence", "closed_book"]))
    first = frame.unique("arm", keep="first", maintain_order=True).select(
        "arm", budget.then(None).otherwise(pl.col("top_m")).alias("top_m"), "token_guard"
    )
    wide = first
    for name in datasets:
        part = frame.filter(pl.col("dataset") == name)
        wide = wide.join(_columns(part, name), on="arm", how="left", maintain_order="left")
    if len(datasets) > 1:
        part = _columns(averages(frame), AVERAGE)
        wide = wide.join(part, on="arm", how="left", maintain_order="left")
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
    "prunes",
    "replayed",
    "bare",
)
_TEXT = ("dataset", "arm", "kind", "selector", "label", "empty_context", "control_of", "baseline")
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
    gated = policy["pass_rate"] is not None or policy["nu0_limit"] is not None
    made["bare"] = not (gated or policy["duplicate_penalty"] or policy["on_refusal"] != "keep")
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
    means |= {name: arm["f1_minus_controls"].get(kind) for kind, name in CONTROLS.items()}
    for name, mean in means.items():
        for part, suffix in PARTS.items():
            made[f"{name}{suffix}"] = None if mean is None else mean[part]
    return made


def _nte(
    row: Mapping[str, Any], by_arm: Mapping[str, Mapping[str, Any]], *, paid: bool
) -> float | None:
    """NTE of averaged F1 and tokens, over the questions with golden answers as everywhere."""
    baseline = by_arm.get(row["baseline"] or "")
    if baseline is None:
        return None
    inputs = (row["f1"], row["tk_labelled"], baseline["f1"], baseline["tk_labelled"])
    if None in inputs:
        return None
    extra = row["selection_tokens_labelled"] if paid else 0.0
    value = cost.nte_with_probes(
        row["f1"],
        row["tk_labelled"],
        extra,
        baseline_f1=baseline["f1"],
        baseline_tk=baseline["tk_labelled"],
    )
    return None if math.isnan(value) else value


def _schema() -> dict[str, pl.DataType]:
    text, number, count = pl.String(), pl.Float64(), pl.Int64()
    made: dict[str, pl.DataType] = dict.fromkeys(("dataset", "arm"), text)
    for name in DECLARED:
        made[name] = text if name in _TEXT else count if name in _COUNTS else number
    made |= dict.fromkeys(("prunes", "replayed", "bare"), pl.Boolean())
    for name in (*MEANS.values(), *CONTROLS.values()):
        for suffix in PARTS.values():
            made[f"{name}{suffix}"] = count if suffix in ("_n", "_undefined") else number
    made |= dict.fromkeys((*NUMBERS.values(), "spearman_ndcg_f1"), number)
    return made | dict.fromkeys(("without_evidence", "n", "spearman_n"), count)


_SCHEMA = _schema()
