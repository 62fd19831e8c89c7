"""Small tables as CSV and as Markdown, from a Polars frame or a list of rows."""

import math
from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

import polars as pl

Table: TypeAlias = pl.DataFrame | Sequence[Mapping[str, Any]]


def as_csv(table: Table) -> str:
    """Commas between, a header, numbers in full; an undefined or missing value is an empty cell."""
    frame = _frame(table)
    return frame.with_columns(pl.selectors.float().fill_nan(None)).write_csv()


def as_markdown(table: Table, *, digits: int = 3) -> str:
    """A pipe table: numbers right-aligned, floats with `digits` decimals, "-" where undefined."""
    frame = _frame(table)
    right = [frame[name].dtype.is_numeric() for name in frame.columns]
    head = [frame.columns, ["---:" if numeric else "---" for numeric in right]]
    body = [[_cell(value, digits) for value in row] for row in frame.iter_rows()]
    escaped = [[_escaped(cell) for cell in row] for row in (head[0], *body)]
    lines = [escaped[0], head[1], *escaped[1:]]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


def _frame(table: Table) -> pl.DataFrame:
    """The table as a frame; ValueError where rows differ in their columns."""
    if isinstance(table, pl.DataFrame):
        return table
    for row in table:
        if list(row) != list(table[0]):
            raise ValueError(
                f"columns {list(row)} differ from those of the first, {list(table[0])}"
            )
    return pl.DataFrame([dict(row) for row in table], infer_schema_length=None)


def _cell(value: Any, digits: int) -> str:
    if value is None or (isinstance(value, float) and math.isnan(value)):
        return "-"
    return f"{value:.{digits}f}" if isinstance(value, float) else str(value)


def _escaped(cell: str) -> str:
    return cell.replace("\\", "\\\\").replace("|", "\\|").replace("\n", "<br>")
