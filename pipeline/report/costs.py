"""What a run cost, and what it would have cost without sharing: frames of tokens and seconds."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import polars as pl
import pyarrow.compute as pc

from pipeline.core import cost
from pipeline.report.finished import Finished
from pipeline.schema import REPAIRS


def ledger(runs: Sequence[Finished]) -> pl.DataFrame:
    """A row a data set and durable stage: rows, seconds, tokens, and both a question.

    Seconds are those of the making of the stage's parts, waiting for a busy engine included. A
    part that several runs share is counted in each of them; tokens are null for a stage without.
    `refused` counts the questions that the stage could not serve: they died, or have no such score
    where no arm needs it.
    """
    rows = []
    for run in runs:
        for stage, counted in run.metrics.get("ledger", {}).items():
            rows.append(
                {
                    "dataset": run.dataset,
                    "stage": stage,
                    "rows": int(counted["rows"]),
                    "seconds": float(counted["seconds"]),
                    "refused": counted.get("dead", 0) + counted.get("unmeasured", 0),
                    "tokens": counted.get("tokens"),
                    "rollouts": counted.get("rollouts"),
                    "prompts": counted.get("prompts"),
                    "generated": counted.get("generated"),
                }
            )
    schema: dict[str, Any] = {
        **dict.fromkeys(("dataset", "stage"), pl.String),
        "rows": pl.Int64,
        "seconds": pl.Float64,
        **dict.fromkeys(("refused", "tokens", "rollouts", "prompts", "generated"), pl.Int64),
    }
    per = [(pl.col(n) / pl.col("rows")).alias(f"{n}_per_question") for n in ("seconds", "tokens")]
    return pl.DataFrame(rows, schema=schema, strict=False).with_columns(per)


def sharing(runs: Sequence[Finished]) -> pl.DataFrame:
    """A row a data set and kind of model call: how many a naive pipeline makes, how many we made.

    Answers: an arm and question each (the oracle asks once a candidate), against the distinct
    prompts of the questions. Rollouts: N + 1 a question for each (K, MT) of the arms by IG,
    against those of the one probe pass.
    """
    rows: list[dict[str, Any]] = []
    for run in runs:
        asked, answered, rollouts = _calls(run)
        settings = {"answers": len(run.arms), "rollouts": len(_ig_settings(run)) or 1}
        made = {"answers": answered, "rollouts": rollouts}
        naive = {"answers": asked, "rollouts": rollouts * settings["rollouts"]}
        rows.extend(
            {
                "dataset": run.dataset,
                "calls": calls,
                "settings": settings[calls],
                "naive": naive[calls],
                "made": made[calls],
            }
            for calls in made
            if made[calls]
        )
    counts = dict.fromkeys(("settings", "naive", "made"), pl.Int64)
    return pl.DataFrame(rows, schema={"dataset": pl.String, "calls": pl.String, **counts})


def _calls(run: Finished) -> tuple[int, int, int]:
    """(prompts asked for by all arms, distinct ones answered, rollouts) over the run's rows."""
    asked = answered = rollouts = 0
    columns = ("arms.list.element.prompt_id", "answers.list.element.prompt_id", "probes.steps")
    for part in run.parts(columns):
        prompt_ids = pc.struct_field(part["arms"].combine_chunks().flatten(), "prompt_id")
        asked += len(prompt_ids) - prompt_ids.null_count
        answered += len(part["answers"].combine_chunks().flatten())
        if "probes" in part.column_names:
            rollouts += len(pc.struct_field(part["probes"].combine_chunks(), "steps").flatten())
    return asked, answered, rollouts


def _ig_settings(run: Finished) -> set[tuple[int, int]]:
    """The (K, MT) that the run's arms by IG ask for."""
    policies = [arm["policy"] for arm in run.arms if arm["policy"] is not None]
    probe = run.probe
    return {
        (p["ig_top_k"] or probe["top_k"], p["ig_max_tokens"] or probe["max_tokens"])
        for p in policies
        if p["selector"] == "ig"
    }


def replies(runs: Sequence[Finished]) -> pl.DataFrame:
    """A row a data set and listwise selector: replies, the shares that could not be read at first
    and at last, the share of questions left without a passage, and each kind of repair a reply."""
    numbers = ("retried", "malformed", "none", *REPAIRS)
    schema: dict[str, Any] = {
        **dict.fromkeys(("dataset", "selector"), pl.String),
        "calls": pl.Int64,
        **dict.fromkeys(numbers, pl.Float64),
    }
    rows = [
        {"dataset": run.dataset, "selector": selector, **rates, **rates["repairs"]}
        for run in runs
        for selector, rates in run.metrics.get("listwise", {}).items()
    ]
    return pl.DataFrame([{name: row[name] for name in schema} for row in rows], schema=schema)


def per_arm(arms: pl.DataFrame) -> pl.DataFrame:
    """A row a data set and policy arm that a model selects for: what the selection costs and saves.

    `selection_tokens` is the cost of the arm by itself, whatever the run made for its other arms.
    `saved_tokens` is TK of retrieval order under the same budget minus the arm's own;
    `break_even_uses` is how often the pruned context must be used until its shorter prompts have
    repaid the selection, inf when they never do. `probes_saved` is the share of the rollouts with a
    passage that the arm's gate on NU(q) alone spares, and `minus_ungated` what it costs: F1 minus
    that of the same arm without the gate. All over every living question.
    """
    baseline = arms.select(
        "dataset", pl.col("arm").alias("baseline"), pl.col("tk").alias("baseline_tk")
    )
    chosen = arms.filter((pl.col("kind") == "policy") & (pl.col("selection_tokens") > 0))
    joined = chosen.join(baseline, on=["dataset", "baseline"], how="left", maintain_order="left")
    uses = [
        cost.break_even_uses(
            row["selection_tokens"],
            baseline_prompt_tokens=np.nan if row["baseline_tk"] is None else row["baseline_tk"],
            pruned_prompt_tokens=row["tk"],
        )
        for row in joined.to_dicts()
    ]
    return joined.select(
        *("dataset", "arm", "tk", "baseline_tk"),
        (pl.col("baseline_tk") - pl.col("tk")).alias("saved_tokens"),
        *("selection_tokens", "nte", "nte_with_selection"),
        pl.Series("break_even_uses", uses, pl.Float64),
        *("probes_saved", "minus_ungated", "minus_ungated_low", "minus_ungated_high"),
    )
