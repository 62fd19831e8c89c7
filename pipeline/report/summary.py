"""A run's numbers per arm, from its finished rows, and the table that shows them.

Every mean is over the run's living questions and travels with its n. Intervals are bootstrap
intervals over questions. TK and NTE follow the paper (eq. 14, 15), with the retriever's order at
the same M as the baseline. Arms that cannot be formed without probes pay for them in
`NTE with probes`; the others have the same NTE in both columns.
"""

from collections.abc import Iterable
from functools import partial
from typing import Any

import numpy as np
import polars as pl
import pyarrow as pa
from rich.table import Table

from pipeline.core import cost, stats
from pipeline.stages.select import ARMS, PROBED_ARMS

PROBE_FIELDS = ("nu0", "steps", "prompt_tokens", "free_rule", "refusal")
COLUMNS = ("question_id", "metrics", *(f"probes.{name}" for name in PROBE_FIELDS))
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
    draw = partial(stats.bootstrap_mean, seed=seed, samples=samples)
    f1 = {arm: draw(rows["f1"].to_list()) for arm, rows in by_arm.items()}
    tk = {arm: cost.mean_tokens(rows["prompt_tokens"].to_list()) for arm, rows in by_arm.items()}
    baseline = {"baseline_f1": f1[BASELINE].value, "baseline_tk": tk[BASELINE]}
    probe_tokens = float(probed["tokens"].to_numpy().mean())
    arms = []
    for arm in ARMS:
        paid = probe_tokens if arm in PROBED_ARMS else 0.0
        against = stats.paired_difference(
            by_arm[arm]["f1"].to_list(),
            by_arm[BASELINE]["f1"].to_list(),
            seed=seed,
            samples=samples,
        )
        arms.append(
            {
                "arm": arm,
                "f1": _mean(f1[arm]),
                "f1_minus_retriever": _mean(against),
                "sub_em": _mean(draw(by_arm[arm]["sub_em"].to_list())),
                "em": _mean(draw(by_arm[arm]["em"].to_list())),
                "tk": _number(tk[arm]),
                "nte": _number(cost.nte(f1[arm].value, tk[arm], **baseline)),
                "nte_with_probes": _number(
                    cost.nte_with_probes(f1[arm].value, tk[arm], paid, **baseline)
                ),
                **_without_evidence(by_arm[arm]),
            }
        )
    return {"questions": len(probed), "arms": arms, "probe": _probe(probed, by_arm["igp"])}


def _without_evidence(rows: pl.DataFrame) -> dict[str, Any]:
    empty = rows.filter(pl.col("evidence_size") == 0)
    return {
        "empty_share": float((rows["admitted"] == 0).to_numpy().mean()),
        "refusal_share_without_evidence": _share(empty["refusal"]),
        "n": len(rows),
    }


def _probe(probed: pl.DataFrame, igp: pl.DataFrame) -> dict[str, Any]:
    refused = probed["refusal"]
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
            str(row["n"]),
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
        *(probes.field(name) for name in ("nu0", "free_rule", "refusal")),
    )
    return measured, probed


def _mean(mean: stats.Mean) -> dict[str, Any]:
    return {
        "value": _number(mean.value),
        "low": _number(mean.low),
        "high": _number(mean.high),
        "n": mean.n,
        "undefined": mean.undefined,
    }


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
