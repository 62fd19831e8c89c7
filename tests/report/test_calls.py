"""Tests of pipeline.report.calls: one line about what sharing spared, recounted from the rows."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from pipeline.config import ArmsConfig, GridEntry
from pipeline.report.calls import spared
from pipeline.report.costs import ledger, sharing
from pipeline.report.finished import Finished, open_run
from tests.report.runs import json_of, make_runs, rows_of


def test_the_line_counts_calls_as_made_and_as_they_would_be_arm_by_arm(
    runs: Sequence[Finished], folders: dict[str, str]
) -> None:
    for run in runs:
        rows = rows_of(folders[run.dataset])
        asked = sum(arm["prompt_id"] is not None for row in rows for arm in row["arms"])
        prompts = {answer["prompt_id"] for row in rows for answer in row["answers"]}
        rollouts = sum(len(row["probes"]["steps"]) for row in rows)
        distinct = {key for row in rows for key in row["probes"]["keys"]}
        # The grid replays IG at (8, 2), (8, 6) and (128, 2) beside the probe's (128, 6).
        assert spared(run) == (
            f"generated {len(prompts)} of {len(prompts)} distinct prompts; "
            f"one generation per arm and question would be {asked}; "
            f"made {len(distinct)} of {len(distinct)} distinct rollouts, "
            f"one pass per (K, MT) would be {4 * rollouts}"
        )
        assert len(prompts) < asked


def counted(run: Finished, stage: str, **counts: int) -> Finished:
    """The run with other counts of a stage."""
    ledger = run.metrics["ledger"]
    changed = {**ledger, stage: {**ledger[stage], **counts}}
    return replace(run, metrics={**run.metrics, "ledger": changed})


def test_answers_that_were_taken_up_from_another_grid_are_not_generated(
    runs: Sequence[Finished],
) -> None:
    prompts = runs[0].metrics["ledger"]["answer"]["prompts"]
    again = counted(runs[0], "answer", generated=0)
    assert spared(again).startswith(f"generated 0 of {prompts} distinct")


def test_rollouts_that_were_taken_up_from_another_plan_are_not_made(
    runs: Sequence[Finished],
) -> None:
    again = counted(runs[0], "probe", rollouts=3, taken_up=67)
    assert "; made 3 of 70 distinct rollouts, one pass" in spared(again)
    made = {row["calls"]: row for row in sharing([again]).to_dicts()}
    assert (made["rollouts"]["made"], made["rollouts"]["taken_up"]) == (3, 67)
    (probe,) = ledger([again]).filter(stage="probe").to_dicts()
    assert (probe["rollouts"], probe["taken_up"]) == (3, 67)


def test_without_probes_nothing_is_said_of_rollouts(tmp_path: Path) -> None:
    grid = (GridEntry(selector="coverage"),)
    made = make_runs(tmp_path, ArmsConfig(top_m=(1,), empty_context="frame", grid=grid))
    assert "probe" not in json_of(made["plain"], "metrics.json")["ledger"]
    assert "rollouts" not in spared(open_run("plain", made["plain"]))
