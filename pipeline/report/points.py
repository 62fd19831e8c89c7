"""The points that figures draw, as frames: what a picture shows can be read, tested and redrawn."""

import math
from collections.abc import Sequence
from typing import Any

import polars as pl
from scipy.stats import spearmanr

from pipeline.report.passages import CORRECT, IG, MISINFORMATION

Frame = pl.DataFrame
GOLD, FALSE, OTHER = "holds a golden answer", "misinformation", "other"
BINS = 40


def pareto(arms: Frame) -> Frame:
    """A row a data set and arm: F1 with its interval against TK; replays of other K, MT left out.

    `series` joins the arms that differ in their budget alone; `frontier` says of a policy that no
    other is both cheaper and at least as good, or as cheap and better. Controls and the oracle are
    no choices for a deployment: they have no frontier.
    """
    kept = arms.filter(~pl.col("replayed") & pl.col("f1").is_not_null())
    choices = (
        kept.filter(pl.col("kind") == "policy").select("dataset", "arm", "f1", "tk").to_dicts()
    )
    best = [
        {"dataset": row["dataset"], "arm": row["arm"], "frontier": not _dominated(row, choices)}
        for row in choices
    ]
    schema = {"dataset": pl.String, "arm": pl.String, "frontier": pl.Boolean}
    frontier = pl.DataFrame(best, schema=schema)
    return (
        kept.with_columns(_series())
        .join(frontier, on=["dataset", "arm"], how="left", maintain_order="left")
        .select(
            *("dataset", "arm", "kind", "label", "series", "threshold", "top_m", "token_guard"),
            *("tk", "f1", "f1_low", "f1_high", "frontier"),
        )
    )


def thresholds(arms: Frame) -> Frame:
    """A row a data set, method, budget and Tp: F1, TK and empty share, and retrieval order's F1.

    Only of methods with a defined F1 at two finite thresholds of that budget, at least; -inf is
    reordering alone, inf admits nothing.
    """
    own = ["dataset", "label", "top_m", "token_guard"]
    kept = arms.filter(
        (pl.col("kind") == "policy") & ~pl.col("replayed") & pl.col("f1").is_not_null()
    )
    swept = kept.filter(pl.col("threshold").is_finite().sum().over(own) >= 2)
    retriever = arms.select(
        "dataset",
        pl.col("arm").alias("baseline"),
        pl.col("f1").alias("baseline_f1"),
        pl.col("tk").alias("baseline_tk"),
    )
    joined = swept.join(retriever, on=["dataset", "baseline"], how="left", maintain_order="left")
    return joined.select(
        *own,
        *("threshold", "f1", "f1_low", "f1_high", "tk", "empty_share"),
        *("baseline_f1", "baseline_tk"),
    )


def heat(arms: Frame) -> Frame:
    """A row a data set and (K, MT) of IG: F1 with its interval, at one Tp, budget and options.

    Only of arms without gate, penalty and rule for refusals: with one they are another method. Of
    the settings at which several (K, MT) were tried, the one with most of them, the first at a
    tie; no rows where there is none.
    """
    own = ["threshold", "top_m", "token_guard", "empty_context"]
    by_ig = (pl.col("kind") == "policy") & (pl.col("selector") == "ig")
    ig = arms.filter(by_ig & pl.col("bare") & pl.col("f1").is_not_null())
    cells = ig.unique(["dataset", "ig_top_k", "ig_max_tokens", *own], maintain_order=True)
    made = []
    for _, of_dataset in cells.group_by("dataset", maintain_order=True):
        groups = [group for _, group in of_dataset.group_by(own, maintain_order=True)]
        largest = max(groups, key=len)
        if len(largest) > 1:
            made.append(largest)
    chosen = pl.concat(made) if made else cells.clear()
    return chosen.select(
        "dataset", *own, "ig_top_k", "ig_max_tokens", "f1", "f1_low", "f1_high", "f1_n"
    ).sort("ig_top_k", "ig_max_tokens", maintain_order=True)


def ndcg(arms: Frame) -> Frame:
    """A row a data set, budget and method whose order has an NDCG: NDCG@5 and F1.

    The order is of all candidates, before Tp and M. So a method is its arm that only reorders
    (Tp = -inf): its arms with a threshold have the same order, and would count it several times.
    """
    kept = arms.filter(
        (pl.col("kind") == "policy")
        & ~pl.col("replayed")
        & (pl.col("threshold") == -math.inf)
        & pl.col("ndcg").is_not_null()
        & pl.col("f1").is_not_null()
    )
    own = ["dataset", "top_m", "token_guard", "label"]
    return kept.unique(own, keep="first", maintain_order=True).select(
        *(*own, "arm"),
        *("ndcg", "ndcg_n", "ndcg_candidates", "f1", "f1_n"),
    )


def ndcg_spearman(points: Frame) -> Frame:
    """A row a data set and budget: rank correlation of NDCG and F1 over `methods` methods.

    Null where it has no meaning: fewer than three methods, or all alike in one of the two.
    """
    rows: list[dict[str, Any]] = []
    for (dataset, top_m, guard), group in points.group_by(
        "dataset", "top_m", "token_guard", maintain_order=True
    ):
        x, y = group["ndcg"].to_list(), group["f1"].to_list()
        alike = len(set(x)) < 2 or len(set(y)) < 2
        value = None if len(x) < 3 or alike else float(spearmanr(x, y).statistic)
        made = {"dataset": dataset, "top_m": top_m, "token_guard": guard}
        rows.append({**made, "spearman": value, "methods": len(x)})
    schema: dict[str, Any] = {
        **{"dataset": pl.String, "top_m": pl.Int64, "token_guard": pl.Int64},
        **{"spearman": pl.Float64, "methods": pl.Int64},
    }
    return pl.DataFrame(rows, schema=schema)


def histogram(dataset: str, passages: Frame, signal: str = IG) -> Frame:
    """Shares of passages by kind and bin of a signal, bins of equal width from least to largest.

    A kind's shares sum to 1. Where the pool labels misinformation its passages are a kind of their
    own. No rows where nothing was measured.
    """
    kind = (
        pl.when(pl.col("label") == MISINFORMATION)
        .then(pl.lit(FALSE))
        .when(pl.col("holds") == 1)
        .then(pl.lit(GOLD))
        .otherwise(pl.lit(OTHER))
    )
    if signal not in passages.columns:
        passages = passages.with_columns(pl.lit(None, pl.Float32).alias(signal))
    measured = passages.filter(pl.col(signal).is_not_null()).with_columns(kind.alias("kind"))
    numbers = dict.fromkeys(("low", "high", "share"), pl.Float64)
    schema: dict[str, Any] = {"kind": pl.String, "passages": pl.Int64, **numbers}
    rows = _bins(measured, signal) if len(measured) else []
    return pl.DataFrame(rows, schema=schema).select(pl.lit(dataset).alias("dataset"), pl.all())


def _bins(measured: Frame, signal: str) -> list[dict[str, Any]]:
    """The rows of `histogram` of passages with a kind and a signal, without the data set."""
    low, high = (float(v) for v in (measured[signal].min(), measured[signal].max()))  # type: ignore[arg-type]
    width = (high - low) / BINS or 1.0
    place = ((pl.col(signal).cast(pl.Float64) - low) / width).floor().clip(0, BINS - 1)
    counted = measured.with_columns(place.cast(pl.Int64).alias("bin"))
    rows: list[dict[str, Any]] = []
    for name in (GOLD, FALSE, OTHER):
        own = counted.filter(pl.col("kind") == name)
        by_bin = dict(own.group_by("bin").len().iter_rows())
        rows.extend(
            {
                **{"kind": name, "passages": len(own)},
                **{"low": low + b * width, "high": low + (b + 1) * width},
                "share": by_bin.get(b, 0) / len(own),
            }
            for b in range(BINS if len(own) else 0)
        )
    return rows


def true_or_false(passages: Frame) -> bool:
    """Whether the passages' labels tell correct ones from misinformation."""
    return {CORRECT, MISINFORMATION} <= set(passages["label"].drop_nulls().unique())


def _series() -> pl.Expr:
    """Method and Tp: what the arms of one line of a frontier share."""
    tp = pl.col("threshold")
    shown = (
        pl.when((tp == -math.inf) | tp.is_null())
        .then(pl.lit(""))
        .otherwise(
            pl.format(" {}", tp.map_elements(lambda value: f"{value:g}", return_dtype=pl.String))
        )
    )
    control = pl.col("kind").replace_strict(
        {"same_size": " [retriever]", "random_same_size": " [random]"}, default=""
    )
    return (pl.col("label") + shown + control).alias("series")


def _dominated(row: dict[str, Any], others: Sequence[dict[str, Any]]) -> bool:
    return any(
        other["dataset"] == row["dataset"]
        and other["tk"] <= row["tk"]
        and other["f1"] >= row["f1"]
        and (other["tk"], -other["f1"]) != (row["tk"], -row["f1"])
        for other in others
    )


def threshold_text(value: float) -> str:
    """A threshold as figures name it: -inf only reorders, inf admits nothing."""
    if math.isinf(value):
        return "reorder" if value < 0 else "Tp ∞"
    return f"Tp {value:g}"
