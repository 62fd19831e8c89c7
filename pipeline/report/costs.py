"""What a run cost, and what it would have cost without sharing: frames of tokens and seconds."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import polars as pl
import pyarrow.compute as pc

from pipeline.core import cost
from pipeline.report.finished import Finished
from pipeline.schema import CLUE_REPAIRS
from pipeline.stages import clues

_SHARING = ("calls", "settings", "naive", "made", "taken_up")
_CALLS = ("rollouts", "taken_up", "prompts", "generated")


def ledger(runs: Sequence[Finished]) -> pl.DataFrame:
    """A row a data set and durable stage: rows, seconds, tokens, and both a question.

    Seconds are those of the making of the stage's parts, waiting for a busy engine included. A
    part that several runs share is counted in each of them; tokens are null for a stage without.
    `refused` counts the questions that the stage could not serve: they died, or have no such score
    where no arm needs it. `rollouts`, `generated` and tokens are of what was made; `taken_up` are
    the rollouts found in another plan, null for a stage without.
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
                    **{name: counted.get(name) for name in _CALLS},
                }
            )
    schema: dict[str, Any] = {
        **dict.fromkeys(("dataset", "stage"), pl.String),
        "rows": pl.Int64,
        "seconds": pl.Float64,
        **dict.fromkeys(("refused", "tokens", *_CALLS), pl.Int64),
    }
    per = [(pl.col(n) / pl.col("rows")).alias(f"{n}_per_question") for n in ("seconds", "tokens")]
    return pl.DataFrame(rows, schema=schema, strict=False).with_columns(per)


def sharing(runs: Sequence[Finished]) -> pl.DataFrame:
    """A row a data set and kind of model call: how many a naive pipeline makes, how many distinct
    ones were made here, and how many were taken up from other plans.

    Answers: an arm and question each (the oracle asks once a candidate), against the distinct
    prompts. Rollouts: N + 1 a question for each (K, MT) of the arms by IG, against the distinct
    ones of the one probe pass. Rollouts over sentences: those of each list, which its arms share.
    What was made and taken up is as the stages counted it, null where they did not.
    """
    rows: list[dict[str, Any]] = []
    for run in runs:
        asked, rollouts = _calls(run)
        settings = len(_ig_settings(run)) or 1
        counted = run.metrics.get("ledger", {})
        probe, answers = counted.get("probe", {}), counted.get("answer", {})
        found = [
            ("answers", len(run.arms), asked, *_made(answers, "generated", "prompts")),
            ("rollouts", settings, rollouts * settings, *_made(probe, "rollouts")),
            *((name, 1, sum(own), *own) for name, own in _over_sentences(run.metrics).items()),
        ]
        rows.extend(
            {"dataset": run.dataset, **dict(zip(_SHARING, row, strict=True))}
            for row in found
            if row[2]
        )
    schema = {"dataset": pl.String, **dict.fromkeys(_SHARING, pl.Int64), "calls": pl.String}
    return pl.DataFrame(rows, schema=schema, strict=False)


def over_sentences(metrics: Mapping[str, Any]) -> dict[str, float]:
    """{"rollouts over <list>": how many were made} of a run's metrics: over "clues", what an
    extractor named, or over all "sentences"."""
    return {name: made for name, (made, _) in _over_sentences(metrics).items()}


def _over_sentences(metrics: Mapping[str, Any]) -> dict[str, tuple[float, float]]:
    """The same with those that were taken up from another plan."""
    by_list = {of: metrics.get("ledger", {}).get(clues.probe_stage(of)) for of in clues.LISTS}
    return {
        f"rollouts over {of}": (counted.get("rollouts", 0), counted.get("taken_up", 0))
        for of, counted in by_list.items()
        if counted is not None
    }


def _made(
    counted: Mapping[str, float], name: str, whole: str | None = None
) -> tuple[float | None, float | None]:
    """(calls made, taken up) as a stage counted them. Parts from before rollouts could be taken up
    do not count any."""
    made = counted.get(name)
    if made is None:
        return None, None
    return made, counted.get("taken_up", 0) if whole is None else counted[whole] - made


def _calls(run: Finished) -> tuple[int, int]:
    """(prompts asked for by all arms, rollouts) over the run's rows."""
    asked = rollouts = 0
    for part in run.parts(("arms.list.element.prompt_id", "probes.steps")):
        prompt_ids = pc.struct_field(part["arms"].combine_chunks().flatten(), "prompt_id")
        asked += len(prompt_ids) - prompt_ids.null_count
        if "probes" in part.column_names:
            rollouts += len(pc.struct_field(part["probes"].combine_chunks(), "steps").flatten())
    return asked, rollouts


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
    """A row a data set and listwise selector, or stage over clues: replies, the shares that could
    not be read at first and at last, the share of questions left without evidence, that of an
    extractor's lines which are no source sentence, and each kind of repair a reply."""
    numbers = ("retried", "malformed", "none", "unfaithful", *CLUE_REPAIRS)
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
    return pl.DataFrame([{name: row.get(name) for name in schema} for row in rows], schema=schema)


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
