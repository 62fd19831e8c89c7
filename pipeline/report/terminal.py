"""The arms of a run, and the ranking of a report, for the terminal."""

import sys
from collections.abc import Callable, Mapping, Sequence
from itertools import groupby
from typing import Any

from rich.console import Console, Group, JustifyMethod, RenderableType
from rich.table import Table
from rich.text import Text

from pipeline.report.answer import WIDE
from pipeline.report.html import Lead

MANY = 12
"""More arms than this come in sections, one a selector."""

Row = Mapping[str, Any]
Column = tuple[str, Callable[[Row], str]]


def table(metrics: Mapping[str, Any]) -> Table:
    """The arms of `summarise`; "-" where a number is undefined.

    Columns that no arm has a number for, such as wrong answers where none is labelled, are left
    out.
    """
    shown = Table(title=f"{metrics['questions']} questions, 95% bootstrap intervals")
    rows: Sequence[Row] = metrics["arms"]
    columns = _columns(rows)
    shown.add_column("arm", no_wrap=True)
    for name, _ in columns:
        shown.add_column(name, justify="right")
    for _, group in groupby(rows, key=_section if len(rows) > MANY else lambda _: ""):
        shown.add_section()
        for row in group:
            shown.add_row(Text(row["arm"]), *(cell(row) for _, cell in columns))
    shown.caption = "* of the answers given without evidence, the share that refuses"
    return shown


def ranking(lead: Lead) -> Group:
    """The report's answer: its sentences, and its table where F1 is defined."""
    said = [Text(f"{lead.title} ({lead.dataset})", style="bold"), *map(Text, lead.sentences)]
    if lead.sheet is None:
        return Group(*said)
    shown = Table()
    kept = [column for column in lead.sheet.columns if column.heading not in WIDE]
    for column in kept:
        justify: JustifyMethod = "right" if column.numeric else "left"
        shown.add_column(column.heading, justify=justify, no_wrap=column.numeric)
    for row in lead.sheet.frame.to_dicts():
        shown.add_row(*(Text(column.cell(row).text) for column in kept))
    return Group(*said, shown)


def show(shown: RenderableType) -> None:
    """Prints to the terminal, or 130 characters wide where there is none."""
    Console(width=None if sys.stdout.isatty() else 130).print(shown)


def _columns(rows: Sequence[Row]) -> list[Column]:
    columns: list[Column] = [
        ("F1", lambda row: interval(row["f1"])),
        ("SubEM", lambda row: interval(row["sub_em"])),
        ("TK", lambda row: number(row["tk"], ".1f")),
        ("NTE", lambda row: number(row["nte"], ".2f")),
        ("NTE with selection", lambda row: number(row["nte_with_probes"], ".2f")),
        ("none admitted", lambda row: number(row["empty_share"], ".2f")),
        ("refused*", lambda row: number(row["refusal_share_without_evidence"], ".2f")),
    ]
    if any(row["wrong"]["value"] is not None for row in rows):
        columns.append(("wrong", lambda row: number(row["wrong"]["value"], ".2f")))
    if any(row["ndcg"]["value"] is not None for row in rows):
        columns.append(("NDCG@5", lambda row: number(row["ndcg"]["value"], ".3f")))
    return [*columns, ("n", lambda row: str(row["f1"]["n"]))]


def _section(row: Row) -> str:
    """What the arms of one section share: the first word of their names, the selector's label."""
    return str(row["arm"]).split(" ")[0] if row["baseline"] is not None else ""


def number(value: float | None, how: str) -> str:
    """A number in a format, "-" where it is undefined."""
    return "-" if value is None else format(value, how)


def interval(mean: Row, how: str = ".3f") -> str:
    """A mean with its interval, "-" where it is undefined."""
    if mean["value"] is None:
        return "-"
    return f"{mean['value']:{how}} [{mean['low']:{how}}, {mean['high']:{how}}]"
