"""The average over data sets, with intervals.

It is that of "Less is More for RAG", tables 4 and 6: every data set weighs the same, and the
average NTE is the NTE of the averaged F1 and TK, not an average of NTEs (their +IGP(0.05) at
TopM = 5: .322/202.9 over .288/836.9 = 4.6; the five NTEs average to 5.0). Its intervals resample
the questions of each data set by themselves: the data sets are those that there are, no sample.
"""

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import polars as pl

from pipeline.core import cost
from pipeline.report import resampled
from pipeline.report.comparisons import BASELINE, CONTROLS, UNGATED
from pipeline.report.evaluation import DECLARED, NUMBERS
from pipeline.report.measured import Floats, Measured

AVERAGE = "Avg."
QUALITY = ("f1", "em", "sub_em", "wrong", "ndcg", "ndcg_candidates")
_PLAIN = [name for name in NUMBERS.values() if name not in ("nte", "nte_with_selection")]


def averages(
    arms: pl.DataFrame, found: Mapping[str, Measured], *, seed: int, samples: int
) -> pl.DataFrame:
    """A row an arm with the columns of evaluation.arms, `AVERAGE` for its data set; none where
    there is one data set.

    A number is null where one of the data sets has none. n and undefined are sums. `found` holds
    what was measured on each data set of `arms`.
    """
    if len(found) < 2:
        return arms.clear()
    everywhere = pl.col("dataset").n_unique().over("arm") == len(found)
    whole = [
        pl.when(pl.col(name).count() == len(found)).then(pl.col(name).mean()).alias(name)
        for name in _PLAIN
    ]
    kept = [pl.col(name).first() for name in DECLARED]
    counts = [pl.col(name).sum() for name in ("n", "without_evidence")]
    made = arms.filter(everywhere).group_by("arm", maintain_order=True).agg(*kept, *whole, *counts)
    means = _means(made["arm"].to_list(), _pairs(arms), found, seed=seed, samples=samples)
    rows = {row["arm"]: row | means[row["arm"]] | {"dataset": AVERAGE} for row in made.to_dicts()}
    for paid, name in ((False, "nte"), (True, "nte_with_selection")):
        for row in rows.values():
            row[name] = _nte(row, rows, paid=paid)
    return pl.DataFrame(list(rows.values()), schema=arms.schema)


def _pairs(arms: pl.DataFrame) -> dict[str, dict[str, str]]:
    """By the name of a difference: the arm that is taken from each arm which has one."""
    made = {
        column: dict(arms.select("arm", name).drop_nulls().iter_rows())
        for column, name in ((BASELINE, "baseline"), (UNGATED, "ungated"))
    }
    for one in CONTROLS:
        copies = arms.filter(pl.col("kind") == one.kind).select("control_of", "arm")
        made[one.column] = dict(copies.iter_rows())
    return made


def _means(
    names: Sequence[str],
    pairs: Mapping[str, Mapping[str, str]],
    found: Mapping[str, Measured],
    *,
    seed: int,
    samples: int,
) -> dict[str, dict[str, Any]]:
    """By arm: every mean with its interval, as columns."""
    made: dict[str, dict[str, Any]] = {name: {} for name in names}

    def add(column: str, own: Sequence[str], tables: Sequence[Floats]) -> None:
        drawn = resampled.means(tables, seed=seed, samples=samples) if own else []
        for name, mean in zip(own, drawn, strict=True):
            made[name] |= resampled.columns(column, mean)

    for field in QUALITY:
        add(field, names, [np.stack([m.of(n, field) for n in names]) for m in found.values()])
    for column, others in pairs.items():
        own = [name for name in names if name in others]
        tables = [
            np.stack([m.of(name, "f1") - m.of(others[name], "f1") for name in own])
            for m in found.values()
            if own
        ]
        add(column, own, tables)
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
