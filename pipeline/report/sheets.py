"""Tables as a reader sees them: cells made of a frame's numbers, the same in HTML and Markdown.

An undefined number is a dash; a mean stands with its interval, and with its n where the arms or
signals of a table may differ in it.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import polars as pl

UNDEFINED = "\N{EN DASH}"
Row = Mapping[str, Any]


@dataclass(frozen=True)
class Cell:
    """What is shown, and the number that it sorts by; None for text and for undefined numbers."""

    text: str
    number: float | None = None


@dataclass(frozen=True)
class Column:
    """A heading and how a row of the frame becomes its cell. `numeric` ones stand to the right."""

    heading: str
    cell: Callable[[Row], Cell]
    numeric: bool = True


@dataclass(frozen=True)
class Sheet:
    """A table. `frame` holds its numbers in full, for CSV; `name` is the file's.

    `meanings` are (meaning, unit) by column of the frame that pipeline.report.legend does not know,
    or knows as another thing.
    """

    name: str
    title: str
    note: str
    columns: Sequence[Column]
    frame: pl.DataFrame
    meanings: Mapping[str, tuple[str, str]] = field(default_factory=dict)

    @property
    def rows(self) -> list[list[Cell]]:
        """The cells, row by row."""
        return [[column.cell(row) for column in self.columns] for row in self.frame.to_dicts()]

    def texts(self) -> pl.DataFrame:
        """The cells' texts as a frame, for Markdown."""
        rows = [[cell.text for cell in row] for row in self.rows]
        schema = {column.heading: pl.String for column in self.columns}
        return pl.DataFrame(rows, schema=schema, orient="row")


def text(heading: str, key: str) -> Column:
    """A column of texts."""

    def cell(row: Row) -> Cell:
        return Cell(UNDEFINED if row[key] is None else str(row[key]))

    return Column(heading, cell, numeric=False)


def number(heading: str, key: str, how: str) -> Column:
    """A column of numbers in a format."""

    def cell(row: Row) -> Cell:
        return _cell(row[key], how)

    return Column(heading, cell)


def mean(heading: str, key: str, how: str = ".3f") -> Column:
    """A column of means with their intervals, `key`_low to `key`_high."""

    def cell(row: Row) -> Cell:
        value, low, high = row[key], row[f"{key}_low"], row[f"{key}_high"]
        if value is None:
            return Cell(UNDEFINED)
        if low is None or high is None:
            return _cell(value, how)
        return Cell(f"{value:{how}} [{low:{how}}, {high:{how}}]", value)

    return Column(heading, cell)


def count(heading: str, key: str, left_out: str | None = None) -> Column:
    """A column of counts, with how many were left out as undefined where that is not 0."""

    def cell(row: Row) -> Cell:
        value = row[key]
        if value is None:
            return Cell(UNDEFINED)
        missing = 0 if left_out is None else row[left_out]
        return Cell(f"{value:,}" + (f" ({missing:,} undefined)" if missing else ""), value)

    return Column(heading, cell)


def _cell(value: float | None, how: str) -> Cell:
    if value is None or math.isnan(value):
        return Cell(UNDEFINED)
    if math.isinf(value):
        return Cell("never" if value > 0 else "\N{MINUS SIGN}∞", value)
    return Cell(format(value, how), value)
