"""A run's numbers per arm, from its finished rows, and the table that shows them.

Means of quality are over the living questions that have golden answers, and travel with their n;
TK is over all living questions. Intervals are bootstrap intervals over questions. NTE follows the
paper (eq. 15) with the retriever's order at the same M as the baseline, F1 and tokens taken over
the same questions, those with golden answers. Arms that cannot be formed without probes pay for
them in `NTE with probes`; the others have the same NTE in both columns.
"""

import math
from collections.abc import Iterable
from dataclasses import asdict
from functools import partial
from typing import Any

import numpy as np
import polars as pl
import pyarrow as pa
from rich.table import Table

from pipeline.core import cost, stats
from pipeline.stages.select import ARMS, PROBED_ARMS

PROBE_FIELDS = ("nu0", "steps", "prompt_tokens", "free_rule")
COLUMNS = (
    "question_id",
    "metrics",
    "refused",
    "empty_golds",
    *(f"probes.{name}" for name in PROBE_FIELDS),
)
BASELINE = "retriever"


def summarise(parts: Iterable[pa.Table], *, seed: int, samples: int) -> dict[str, Any]:
    """The metrics of a run, JSON-able, NaN as None; `parts` hold COLUMNS.

    `arms` is a list in the order of ARMS; `probe` describes the rollouts.
    """
    frames = [_frame(part) for part in parts if part.num_rows]
    if not frames:
        return {"questions": 0, "arms": [], "probe": {}}
    measured = pl.concat([rows for rows, _ in frames])
    probed = pl.concat([rows for _, rows in frames])
    by_arm = {str(key[0]): rows for key, rows in measured.group_by("arm", maintain_order=True)}
    draw = partial(_drawn, seed=seed, samples=samples)
    baseline = _quality_and_tokens(by_arm[BASELINE])
    costs = _labelled(probed.with_columns(f1=by_arm[BASELINE]["f1"]))["tokens"].to_list()
    probe_tokens = cost.mean_tokens(costs)
    arms = []
    for arm in ARMS:
        rows = by_arm[arm]
        f1, tk = _quality_and_tokens(rows)
        paid = probe_tokens if arm in PROBED_ARMS else 0.0
        against = {"baseline_f1": baseline[0], "baseline_tk": baseline[1]}
        arms.append(
            {
                "arm": arm,
                "f1": draw(rows["f1"]),
                "f1_minus_retriever": draw(rows["f1"] - by_arm[BASELINE]["f1"]),
                "sub_em": draw(rows["sub_em"]),
                "em": draw(rows["em"]),
                "tk": _number(cost.mean_tokens(rows["prompt_tokens"].to_list())),
                "nte": _number(cost.nte(f1, tk, **against)),
                "nte_with_probes": _number(cost.nte_with_probes(f1, tk, paid, **against)),
                **_without_evidence(rows),
            }
        )
    return {
        "questions": len(probed),
        "empty_golds": int(probed["empty_golds"].sum()),
        "arms": arms,
        "probe": _probe(probed, by_arm["igp"]),
    }


def _labelled(rows: pl.DataFrame) -> pl.DataFrame:
    return rows.filter(pl.col("f1").is_not_nan())


def _quality_and_tokens(rows: pl.DataFrame) -> tuple[float, float]:
    """Mean F1 and mean prompt tokens of an arm, over the questions where F1 is defined."""
    labelled = _labelled(rows)
    f1 = float(labelled["f1"].to_numpy().mean()) if len(labelled) else math.nan
    return f1, cost.mean_tokens(labelled["prompt_tokens"].to_list())


def _drawn(values: pl.Series, *, seed: int, samples: int) -> dict[str, Any]:
    mean = stats.bootstrap_mean(values.to_list(), seed=seed, samples=samples)
    return {name: _number(v) if isinstance(v, float) else v for name, v in asdict(mean).items()}


def _without_evidence(rows: pl.DataFrame) -> dict[str, Any]:
    empty = rows.filter(pl.col("evidence_size") == 0)
    return {
        "empty_share": float((rows["admitted"] == 0).to_numpy().mean()),
        "refusal_share_without_evidence": _share(empty["refusal"]),
        "n": len(rows),
    }


def _probe(probed: pl.DataFrame, igp: pl.DataFrame) -> dict[str, Any]:
    refused = probed["refused"]
    empty = igp["admitted"] == 0
    return {
        "rollouts": int(probed["rollouts"].sum()),
        "tokens_per_question": float(probed["tokens"].to_numpy().mean()),
        "mean_nu0": float(probed["nu0"].to_numpy().mean()),
        "free_rule_share": _share(probed["free_rule"]),
        "refusal_share": _share(refused),
        "empty_share_of_refused": _share(empty.filter(refused)),
        "empty_share_of_others": _share(empty.filter(~refused)),
    }


def table(metrics: dict[str, Any]) -> Table:
    """The arms of `summarise` as a terminal table; "-" where a number is undefined."""
    shown = Table(title=f"{metrics['questions']} questions, 95% bootstrap intervals")
    shown.add_column("arm", no_wrap=True)
    for name in ("F1", "SubEM", "TK", "NTE", "NTE with probes", "empty", "refused*", "n"):
        shown.add_column(name, justify="right")
    for row in metrics["arms"]:
        shown.add_row(
            row["arm"],
            _interval(row["f1"]),
            _interval(row["sub_em"]),
            _shown(row["tk"], ".1f"),
            _shown(row["nte"], ".2f"),
            _shown(row["nte_with_probes"], ".2f"),
            _shown(row["empty_share"], ".2f"),
            _shown(row["refusal_share_without_evidence"], ".2f"),
            str(row["f1"]["n"]),
        )
    shown.caption = "* of the answers given without evidence, the share that refuses"
    return shown


def _frame(part: pa.Table) -> tuple[pl.DataFrame, pl.DataFrame]:
    """One row per question and arm; one row per question about its probe."""
    rows = pl.DataFrame(pl.from_arrow(part))
    measured = rows.select("question_id", "metrics").explode("metrics").unnest("metrics")
    probes = pl.col("probes").struct
    probed = rows.select(
        (probes.field("prompt_tokens").list.sum() + probes.field("steps").list.sum()).alias(
            "tokens"
        ),
        probes.field("steps").list.len().alias("rollouts"),
        *(probes.field(name) for name in ("nu0", "free_rule")),
        "refused",
        "empty_golds",
    )
    return measured, probed


def _number(value: float) -> float | None:
    return None if np.isnan(value) else float(value)


def _share(flags: pl.Series) -> float | None:
    return None if len(flags) == 0 else float(flags.cast(pl.Float64).to_numpy().mean())


def _shown(value: float | None, how: str) -> str:
    return "-" if value is None else format(value, how)


def _interval(mean: dict[str, Any]) -> str:
    if mean["value"] is None:
        return "-"
    return f"{mean['value']:.3f} [{mean['low']:.3f}, {mean['high']:.3f}]"
