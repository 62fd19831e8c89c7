"""Tests of pipeline.report.legend: it names exactly the columns that the CSV files have."""

import re
from dataclasses import replace

import polars as pl
import pytest

from pipeline.report import costs, export, generators, legend, tables
from pipeline.report.finished import Finished
from pipeline.report.html import Report
from pipeline.report.sheets import Sheet
from tests.report.runs import SAMPLES, SEED

HOW = {"seed": SEED, "samples": SAMPLES}


def named(text: str) -> dict[str, list[str]]:
    """By file: the columns that the legend names, in its order."""
    made: dict[str, list[str]] = {}
    for part in text.split("\n## ")[1:]:
        head, *lines = part.splitlines()
        first = [line.split(" | ")[0] for line in lines if line.startswith("| `")]
        columns = [name for cell in first for name in re.findall(r"`([^`]+)`", cell)]
        made |= dict.fromkeys(head.split(", "), columns)
    return made


def test_the_legend_covers_every_column_of_every_table_and_no_other(report: Report) -> None:
    rare = [tables.replies(costs.replies([])), tables.generators(generators.frame([], **HOW))]
    sheets = [*report.sheets, *rare]
    text = legend.of_report(sheets)
    found = named(text)
    assert set(found) == {f"{sheet.name}.csv" for sheet in sheets}
    for sheet in sheets:
        assert sorted(found[f"{sheet.name}.csv"]) == sorted(sheet.frame.columns)
    rows = [line.strip("|").split(" | ") for line in text.splitlines() if line.startswith("| `")]
    assert all(cell.strip() for row in rows for cell in row)  # a meaning and a unit each


def test_a_column_without_a_legend_is_refused() -> None:
    sheet = Sheet("s", "S", "", [], pl.DataFrame({"arm": ["a"], "novel": [1]}))
    with pytest.raises(ValueError, match="column 'novel' has no legend"):
        legend.of_report([sheet])
    told = replace(sheet, meanings={"novel": ("what is new", "count"), "arm": ("a limb", "text")})
    assert "| `novel` | what is new | count |" in legend.of_report([told])
    assert "| `arm` | a limb | text |" in legend.of_report([told])


def test_the_exported_evidence_has_a_legend_that_names_the_score_as_retrievals(
    runs: list[Finished],
) -> None:
    text = legend.of_evidence()
    frame = export.evidence(runs[0], "ig 0 M3")
    assert re.findall(r"(?m)^\| `([^`]+)` \|", text) == frame.columns
    assert "score by which the retriever ranked it, not the arm's signal" in text
    assert "retriever_score" in frame.columns and "score" not in frame.columns
