"""Tests of pipeline.report.averages: the average over data sets, recounted from the rows."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import polars as pl
import pytest

from pipeline.report import evaluation, measured
from pipeline.report.averages import AVERAGE, averages
from pipeline.report.finished import Finished
from pipeline.report.measured import FIELDS, Measured
from tests.report import recount
from tests.report.recount import average_interval, column, mean, minus, same
from tests.report.runs import SAMPLES, SEED, rows_of

HOW = {"seed": SEED, "samples": SAMPLES}


@pytest.fixture(scope="module")
def average(runs: list[Finished]) -> pl.DataFrame:
    """The average over both runs."""
    found = {run.dataset: measured.of_run(run) for run in runs}
    return averages(evaluation.arms(runs), found, **HOW)


def test_the_average_weighs_data_sets_equally(runs: list[Finished], average: pl.DataFrame) -> None:
    frame = evaluation.arms(runs)
    means = {row["arm"]: row for row in average.to_dicts()}
    assert set(average["dataset"]) == {AVERAGE}
    assert list(means) == [arm["arm"] for arm in runs[0].arms]
    for name, made in means.items():
        own = frame.filter(pl.col("arm") == name)
        for key in ("f1", "tk", "empty_share", "selection_tokens"):
            assert same(made[key], sum(own[key]) / 2)
        baseline = means[own["baseline"][0]]
        f1, tk = made["f1"] / baseline["f1"], made["tk_labelled"] / baseline["tk_labelled"]
        assert same(made["nte"], f1 / tk)


def test_its_intervals_resample_the_questions_of_each_data_set(
    folders: dict[str, str], average: pl.DataFrame
) -> None:
    sets = [rows_of(folder) for folder in folders.values()]
    for row in average.to_dicts():
        own = [column(rows, row["arm"], "f1") for rows in sets]
        base = [column(rows, row["baseline"], "f1") for rows in sets]
        difference = [minus(a, b) for a, b in zip(own, base, strict=True)]
        for name, values in (("f1", own), ("difference", difference)):
            low, high = average_interval(values)
            assert same(row[name], sum(mean(v) for v in values) / 2)
            assert same(row[f"{name}_low"], low) and same(row[f"{name}_high"], high)
            assert row[f"{name}_n"] == sum(len(recount.defined(v)) for v in values)


def test_differences_from_controls_are_averaged_where_an_arm_has_some(
    folders: dict[str, str], average: pl.DataFrame
) -> None:
    sets = [rows_of(folder) for folder in folders.values()]
    by_arm = {row["arm"]: row for row in average.to_dicts()}
    for suffix, name in (("[retriever]", "minus_same_size"), ("[random]", "minus_random")):
        pairs = [
            minus(column(rows, "ig 0 M3", "f1"), column(rows, f"ig 0 M3 {suffix}", "f1"))
            for rows in sets
        ]
        low, high = average_interval(pairs)
        row = by_arm["ig 0 M3"]
        assert same(row[f"{name}_low"], low) and same(row[f"{name}_high"], high)
        assert by_arm["ig M3"][name] is None


def two(**other: float | None) -> tuple[pl.DataFrame, dict[str, Measured]]:
    """A retriever and a policy on two data sets with numbers of the paper's table 4, TopM = 5."""
    base = {"n1": (0.214, 835.2), "n2": (0.504, 853.5)}
    policy = {"n1": (0.257, 168.2), "n2": (0.520, 155.3)}
    rows, found = [], {}
    for dataset in base:
        f1_AQ = np.full((2, 1), np.nan)
        for place, (arm, (f1, tk)) in enumerate((("b", base[dataset]), ("p", policy[dataset]))):
            row: dict[str, Any] = {"dataset": dataset, "arm": arm, "kind": "policy"}
            numbers = {"f1": f1, "tk": tk, "tk_labelled": tk, "selection_tokens_labelled": 0.0}
            row |= {"baseline": "b", "top_m": 5} | numbers
            row |= other if (dataset, arm) == ("n2", "p") else {}
            rows.append(row)
            f1_AQ[place] = np.nan if row["f1"] is None else row["f1"]
        found[dataset] = measured_of(f1_AQ)
    empty = pl.DataFrame(schema=evaluation.arms([]).schema)
    return pl.concat([empty, pl.DataFrame(rows)], how="diagonal_relaxed"), found


def measured_of(f1_AQ: Any) -> Measured:
    """What was measured of the arms b and p, with F1 alone."""
    values: Mapping[str, Any] = {field: np.full_like(f1_AQ, np.nan) for field in FIELDS}
    nothing = np.full(f1_AQ.shape[1], np.nan)
    return Measured(("b", "p"), {**values, "f1": f1_AQ}, {}, None, None, nothing, 0, {})


def test_the_average_nte_is_that_of_the_averages() -> None:
    arms, found = two()
    policy = averages(arms, found, **HOW).filter(pl.col("arm") == "p").to_dicts()[0]
    # ((.257 + .520) / (168.2 + 155.3)) / ((.214 + .504) / (835.2 + 853.5)) = 5.649
    assert policy["nte"] == pytest.approx(5.649, abs=1e-3)
    assert policy["difference"] == pytest.approx((0.257 - 0.214 + 0.520 - 0.504) / 2)


def test_what_a_gate_costs_is_averaged() -> None:
    arms, found = two()
    gated = arms.with_columns(ungated=pl.when(pl.col("arm") == "p").then(pl.lit("b")))
    base, policy = averages(gated, found, **HOW).to_dicts()
    assert policy["minus_ungated"] == pytest.approx((0.257 - 0.214 + 0.520 - 0.504) / 2)
    assert policy["minus_ungated_low"] is not None and policy["minus_ungated_n"] == 2
    assert base["minus_ungated"] is None


def test_the_average_is_undefined_where_one_data_set_has_no_number() -> None:
    arms, found = two(f1=None)
    policy = averages(arms, found, **HOW).filter(pl.col("arm") == "p").to_dicts()[0]
    assert policy["f1"] is None and policy["f1_low"] is None and policy["nte"] is None
    assert policy["tk"] == pytest.approx((168.2 + 155.3) / 2)


def test_one_data_set_has_no_average() -> None:
    arms, found = two()
    one = arms.filter(pl.col("dataset") == "n1")
    assert averages(one, {"n1": found["n1"]}, **HOW).is_empty()
