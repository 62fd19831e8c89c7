"""Tests of pipeline.report.sheets and tables: how a number becomes a cell."""

import math

import polars as pl
import pytest

from pipeline.report import costs, evaluation, tables
from pipeline.report.finished import Finished
from pipeline.report.sheets import UNDEFINED, Cell, Sheet, count, mean, number, text


def test_a_mean_stands_with_its_interval() -> None:
    row = {"f1": 0.1234, "f1_low": 0.05, "f1_high": 0.2}
    assert mean("F1", "f1").cell(row) == Cell("0.123 [0.050, 0.200]", 0.1234)
    assert mean("F1", "f1", "+.2f").cell(row) == Cell("+0.12 [+0.05, +0.20]", 0.1234)
    assert mean("F1", "f1").cell(row | {"f1_low": None}) == Cell("0.123", 0.1234)
    assert mean("F1", "f1").cell(row | {"f1": None}) == Cell(UNDEFINED)


@pytest.mark.parametrize(
    ("value", "shown"),
    [(None, UNDEFINED), (math.nan, UNDEFINED), (0.0, "0.00"), (math.inf, "never"), (2.345, "2.35")],
)
def test_an_undefined_number_is_a_dash_and_one_never_reached_says_so(
    value: float | None, shown: str
) -> None:
    assert number("x", "x", ".2f").cell({"x": value}).text == shown


def test_a_count_tells_how_many_were_left_out() -> None:
    n = count("n", "n", "undefined")
    assert n.cell({"n": 1200, "undefined": 0}) == Cell("1,200", 1200)
    assert n.cell({"n": 12, "undefined": 3}) == Cell("12 (3 undefined)", 12)
    assert n.cell({"n": None, "undefined": None}) == Cell(UNDEFINED)


def test_texts_are_the_cells_in_order() -> None:
    frame = pl.DataFrame({"arm": ["a", "b"], "f1": [0.5, None]})
    sheet = Sheet("s", "S", "", [text("arm", "arm"), number("F1", "f1", ".3f")], frame)
    assert sheet.texts().rows() == [("a", "0.500"), ("b", UNDEFINED)]


def test_every_table_fits_its_frame(runs: list[Finished]) -> None:
    arms = evaluation.arms(runs)
    sheets = [
        *(tables.paper(arms, arms.clear()), tables.detail(arms, "pool"), tables.controls(arms)),
        *(tables.wrong(arms), tables.relevance(arms), tables.costs(costs.per_arm(arms))),
        *(tables.ledger(costs.ledger(runs)), tables.sharing(costs.sharing(runs))),
    ]
    for sheet in tables.filled(sheets):
        assert len(sheet.rows) == len(sheet.frame)
        assert {len(row) for row in sheet.rows} == {len(sheet.columns)}
    assert len(tables.filled(sheets)) == len(sheets)
    assert set(tables.wrong(arms).frame["dataset"]) == {"pool"}
    assert set(tables.relevance(arms).frame["dataset"]) == {"plain"}


def test_a_table_without_rows_is_left_out(runs: list[Finished]) -> None:
    arms = evaluation.arms(runs[:1])
    assert tables.filled([tables.wrong(arms), tables.controls(arms)])[0].name == "controls"
