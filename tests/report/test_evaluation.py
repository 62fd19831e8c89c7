"""Tests of pipeline.report.evaluation: every number of its frames, recounted from the rows."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import polars as pl
import pytest

from pipeline.report import evaluation
from pipeline.report.finished import Finished
from tests.report import recount
from tests.report.recount import NAN, column, interval, mean, minus, same
from tests.report.runs import json_of, rows_of

QUALITY = {name: name for name in ("f1", "em", "sub_em", "wrong", "ndcg", "ndcg_candidates")}


@pytest.fixture(scope="module")
def frame(runs: list[Finished]) -> pl.DataFrame:
    """The arms of both runs."""
    return evaluation.arms(runs)


def each(
    folders: Mapping[str, str], frame: pl.DataFrame
) -> Iterator[tuple[list[dict[str, Any]], Mapping[str, Any], dict[str, Any]]]:
    """(rows of the run, the arm as declared, the arm's row of the frame) of every arm."""
    for dataset, folder in folders.items():
        rows, declared = rows_of(folder), json_of(folder, "manifest.json")["arms"]
        made = frame.filter(pl.col("dataset") == dataset).to_dicts()
        assert [row["arm"] for row in made] == [arm["arm"] for arm in declared]
        for arm, row in zip(declared, made, strict=True):
            yield rows, arm, row


def check_mean(row: Mapping[str, Any], name: str, values: Sequence[float]) -> None:
    """A mean of the frame with all that travels with it."""
    low, high = interval(values)
    n = len(recount.defined(values))
    at = f"{row['dataset']} {row['arm']} {name}"
    assert same(row[name], mean(values)), at
    assert same(row[f"{name}_low"], low) and same(row[f"{name}_high"], high), at
    assert (row[f"{name}_n"], row[f"{name}_undefined"]) == (n, len(values) - n), at


def test_every_mean_with_its_interval_is_that_of_the_rows(
    folders: dict[str, str], frame: pl.DataFrame
) -> None:
    for rows, arm, row in each(folders, frame):
        for field, name in QUALITY.items():
            check_mean(row, name, column(rows, arm["arm"], field))


def test_every_difference_is_paired_with_the_right_arm(
    folders: dict[str, str], frame: pl.DataFrame
) -> None:
    for rows, arm, row in each(folders, frame):
        own = column(rows, arm["arm"], "f1")
        check_mean(row, "difference", minus(own, column(rows, arm["baseline"], "f1")))
        for suffix, name in (("[retriever]", "minus_same_size"), ("[random]", "minus_random")):
            control = f"{arm['arm']} {suffix}"
            if any(metric["arm"] == control for metric in rows[0]["metrics"]):
                check_mean(row, name, minus(own, column(rows, control, "f1")))
            else:
                assert row[name] is None and row[f"{name}_n"] is None


def test_every_cost_is_that_of_the_rows(folders: dict[str, str], frame: pl.DataFrame) -> None:
    for rows, arm, row in each(folders, frame):
        name, kept = arm["arm"], recount.labelled(rows, arm["arm"])
        tokens = column(rows, name, "prompt_tokens")
        assert same(row["tk"], mean(tokens))
        assert same(row["answer_tokens"], mean(column(rows, name, "answer_tokens")))
        paid = recount.selection(rows, arm["stages"])
        assert same(row["selection_tokens"], mean([float(p) for p in paid]))
        f1, tk = mean(column(kept, name, "f1")), mean(column(kept, name, "prompt_tokens"))
        extra = mean([float(p) for p in recount.selection(kept, arm["stages"])])
        base = recount.labelled(rows, arm["baseline"])
        base_f1 = mean(column(base, arm["baseline"], "f1"))
        base_tk = mean(column(base, arm["baseline"], "prompt_tokens"))
        known = base_f1 > 0
        assert same(row["nte"], f1 / tk / (base_f1 / base_tk) if known else NAN)
        assert same(
            row["nte_with_selection"], f1 / (tk + extra) / (base_f1 / base_tk) if known else NAN
        )


def test_every_share_is_that_of_the_rows(folders: dict[str, str], frame: pl.DataFrame) -> None:
    for rows, arm, row in each(folders, frame):
        admitted = column(rows, arm["arm"], "admitted")
        assert same(row["empty_share"], admitted.count(0.0) / len(admitted))
        assert same(row["evidence_size"], mean(column(rows, arm["arm"], "evidence_size")))
        metrics = [m for r in rows for m in r["metrics"] if m["arm"] == arm["arm"]]
        bare = [float(m["refusal"]) for m in metrics if m["evidence_size"] == 0]
        assert same(row["refused_without_evidence"], mean(bare))
        assert row["without_evidence"] == len(bare)


def test_the_papers_table_has_every_arm_by_budget_and_the_numbers_of_the_frame(
    frame: pl.DataFrame,
) -> None:
    average = frame.filter(pl.col("dataset") == "pool").with_columns(
        pl.lit("Avg.").alias("dataset"), pl.lit(0.5).alias("f1")
    )
    table = evaluation.paper_table(frame, average)
    assert set(table["arm"]) == set(frame["arm"])
    budgets = table["top_m"].to_list()
    assert budgets == sorted(budgets, key=lambda m: (m is None, m))
    assert table["arm"][-3:].to_list() == ["oracle", "no_evidence", "closed_book"]
    whole = pl.concat([frame, average])
    for row in table.to_dicts():
        for dataset in ("plain", "pool", "Avg."):
            (own,) = whole.filter(
                (pl.col("dataset") == dataset) & (pl.col("arm") == row["arm"])
            ).to_dicts()
            shown = [row[f"{dataset} {name}"] for name in evaluation.PAPER.values()]
            assert shown == [own[name] for name in evaluation.PAPER]


def test_an_arm_with_a_gate_names_the_arm_without_it(runs: list[Finished]) -> None:
    run = runs[0]
    (at,) = [i for i, arm in enumerate(run.arms) if arm["arm"] == "ig 0 M3"]
    policy = {**run.arms[at]["policy"], "nu0_limit": 0.3}
    arms = [*run.arms, {**run.arms[at], "arm": "gated 0 M3", "policy": policy}]
    metrics = {**run.metrics, "arms": [*run.metrics["arms"], run.metrics["arms"][at]]}
    gated = replace(run, manifest={**run.manifest, "arms": arms}, metrics=metrics)
    named = evaluation.arms([gated]).select("arm", "ungated").drop_nulls()
    assert named.rows() == [("gated 0 M3", "ig 0 M3")]


def test_k_and_mt_of_ig_are_the_probes_own_unless_replayed(frame: pl.DataFrame) -> None:
    by_arm = {row["arm"]: row for row in frame.to_dicts()}
    seen = {
        name: (by_arm[name]["ig_top_k"], by_arm[name]["ig_max_tokens"], by_arm[name]["replayed"])
        for name in ("ig 0 M3", "igK8T2 0 M3", "igK8T6 0 M1", "qlm M1")
    }
    assert seen == {
        "ig 0 M3": (128, 6, False),
        "igK8T2 0 M3": (8, 2, True),
        "igK8T6 0 M1": (8, 6, True),
        "qlm M1": (None, None, False),
    }
