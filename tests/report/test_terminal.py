"""Tests of pipeline.report.terminal: what the table of a run shows."""

import io
import math
from typing import Any

import polars as pl
from rich.console import Console

from pipeline.config import ArmsConfig, GridEntry
from pipeline.report import answer, standings
from pipeline.report.html import Lead
from pipeline.report.sheets import UNDEFINED
from pipeline.report.summary import summarise
from pipeline.report.terminal import ranking, table
from pipeline.stages.arms import grid_arms
from tests.report import rows as made
from tests.report.rows import metric, probe
from tests.report.test_summary import ARMS, ROWS, row, summary


def rendered(metrics: dict[str, Any]) -> str:
    """The table as text."""
    console = Console(file=io.StringIO(), width=150)
    console.print(table(metrics))
    output = console.file
    assert isinstance(output, io.StringIO)
    return output.getvalue()


def cells(text: str) -> dict[str, list[str]]:
    """The cells of each arm's line."""
    lines = [line for line in text.splitlines() if line.startswith("│")]
    split = [[cell.strip() for cell in line.split("│")[1:-1]] for line in lines]
    return {row[0]: row[1:] for row in split}


def test_the_table_shows_every_arm_and_a_dash_for_what_is_undefined() -> None:
    text = rendered(summary())
    assert "3 questions, 95% bootstrap intervals" in text
    shown = cells(text)
    assert list(shown) == list(ARMS)
    assert shown["igp"][0].startswith("0.500 [")
    assert shown["igp"][2:] == ["20.0", "3.00", "2.00", "0.33", "1.00", "3"]
    assert shown["retriever"][-2] == "-"
    nan = math.nan
    log = row("q", probe(0.5, [3], [1]), **{name: metric(name, nan, 0, 0) for name in ARMS})
    assert cells(rendered(summary([log])))["igp"][:5] == ["-", "-", "0.0", "-", "-"]


def test_wrong_answers_and_ndcg_are_shown_where_an_arm_has_them() -> None:
    assert "wrong" not in rendered(summary()) and "NDCG" not in rendered(summary())
    labelled = metric("igp", 1.0, 9, 1, wrong=True, ndcg=0.25)
    shown = rendered(summary([*ROWS, row("q", probe(0.5, [3], [1]), igp=labelled)]))
    assert "wrong" in shown and "NDCG@5" in shown
    assert cells(shown)["igp"][-3:] == ["1.00", "0.250", "4"]
    assert cells(shown)["retriever"][-3:] == ["-", "-", "4"]


def test_a_run_without_living_questions_has_an_empty_table() -> None:
    assert "0 questions" in rendered({"questions": 0, "arms": [], "probe": {}})


def test_many_arms_come_in_sections_by_selector() -> None:
    entry = GridEntry(selector="ig", thresholds=(-0.1, 0.0, 0.1))
    arms = grid_arms(ArmsConfig(top_m=(1, 3), empty_context="frame", grid=(entry,)))
    question = {
        "question_id": "q",
        "metrics": [metric(arm.name, 0.5, 9, 1) for arm in arms],
        "probes": probe(0.5, [3], [1]),
        "refused": False,
        "empty_golds": 0,
    }
    columns = ("question_id", "metrics", "probes", "refused", "empty_golds")
    metrics = summarise(
        [made.part([question], columns)], arms=made.plain(arms), seed=1, samples=100
    )
    text = rendered(metrics)
    assert list(cells(text)) == [arm.name for arm in arms]
    rules = [line for line in text.splitlines() if line.startswith("├")]
    assert len(rules) >= 2  # retrieval order, ig, and the rest


def test_the_ranking_stands_below_its_sentences() -> None:
    frame = pl.DataFrame(
        [
            {"selector": "qlm", "selection": "ranking", "top_m": 1, "tk": 90.0}
            | {"metric": "F1", "score": 0.25}
        ],
        schema=standings.SCHEMA,
    )
    sheet = answer.sheet("ranking", "Best?", frame)
    console = Console(file=io.StringIO(), width=130)
    console.print(ranking(Lead("Best?", "d", ["It is qlm."], sheet)))
    assert isinstance(console.file, io.StringIO)
    text = console.file.getvalue()
    assert text.startswith("Best? (d)\nIt is qlm.\n")
    assert list(cells(text)["qlm"])[:4] == ["ranking", "1", UNDEFINED, "0.250"]
    assert "beats controls" not in text  # no room on a line
    console.print(ranking(Lead("Best?", "d", ["Nothing."], None)))
    assert console.file.getvalue().endswith("Nothing.\n")
