"""Tests of pipeline.writers.tables: CSV and Markdown."""

import csv
import io
import math
from pathlib import Path

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeline.writers import as_csv, as_markdown, write_text

ROWS = [
    {"arm": "igp", "f1": 0.12345, "n": 50},
    {"arm": 'a "b", c|d', "f1": math.nan, "n": None},
]


@pytest.mark.parametrize("table", [ROWS, pl.DataFrame(ROWS)], ids=["rows", "frame"])
def test_csv_quotes_what_it_must_and_leaves_the_undefined_empty(
    table: pl.DataFrame | list[dict[str, object]],
) -> None:
    assert as_csv(table) == 'arm,f1,n\nigp,0.12345,50\n"a ""b"", c|d",,\n'


@pytest.mark.parametrize("table", [ROWS, pl.DataFrame(ROWS)], ids=["rows", "frame"])
def test_markdown_aligns_numbers_and_escapes_bars(
    table: pl.DataFrame | list[dict[str, object]],
) -> None:
    assert as_markdown(table, digits=2) == (
        '| arm | f1 | n |\n| --- | ---: | ---: |\n| igp | 0.12 | 50 |\n| a "b", c\\|d | - | - |\n'
    )


@given(cells=st.lists(st.text(min_size=1), min_size=1))
def test_any_texts_come_back_from_csv(cells: list[str]) -> None:
    written = as_csv([{"a": cell, "b": "x"} for cell in cells])
    assert [row["a"] for row in csv.DictReader(io.StringIO(written, newline=""))] == cells


def test_rows_with_other_columns_are_refused() -> None:
    with pytest.raises(ValueError, match=r"columns \['b'\] differ from .* first, \['a'\]"):
        as_markdown([{"a": 1}, {"b": 2}])


def test_a_table_is_written_in_utf_8(tmp_path: Path) -> None:
    write_text(f"file://{tmp_path}/t.md", as_markdown([{"é": "ü"}]))
    assert (tmp_path / "t.md").read_bytes() == "| é |\n| --- |\n| ü |\n".encode()
