"""F1 and prompt tokens from generator to generator, with and without pruning."""

from collections.abc import Sequence
from typing import Any

import polars as pl
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FixedLocator, NullFormatter, NullLocator

from pipeline.report.figures import style
from pipeline.report.figures.style import Look
from pipeline.report.generators import PLAIN, family_of


def scale(found: pl.DataFrame) -> Figure:
    """One data set's rows of generators.frame: a column of F1 and TK for the smallest and for the
    largest budget.

    Models stand on a logarithmic axis of size where every name gives one, and then a line joins a
    family; otherwise side by side in their order. Retrieval order is dashed.
    """
    budgets = sorted(found["top_m"].unique())
    shown = list(dict.fromkeys([budgets[0], budgets[-1]]))
    figure, panels = style.canvas(1 + 4.2 * len(shown), 6.4, rows=2, columns=len(shown))
    for column, top_m in enumerate(shown):
        own = found.filter(pl.col("top_m") == top_m)
        for row, (key, name) in enumerate((("f1", "F1"), ("tk", "TK"))):
            axes = panels[row * len(shown) + column]
            _draw(axes, own, key)
            axes.set(ylabel=name)
        panels[column].set_title(f"M = {top_m}")
    style.legend(figure, *panels, columns=2)
    return figure


def _draw(axes: Axes, own: pl.DataFrame, key: str) -> None:
    sized = own["size"].null_count() == 0
    names = own["generator"].unique(maintain_order=True).to_list()
    place = {name: i for i, name in enumerate(names)}
    at = dict(own.select("generator", "size").iter_rows()) if sized else place
    families = {name: family_of(name) if sized else "" for name in names}
    look = Look(["", *dict.fromkeys(families.values())])
    for family in dict.fromkeys(families.values()):
        for (method,), rows in own.group_by("method", maintain_order=True):
            kept = [r for r in rows.to_dicts() if families[r["generator"]] == family]
            kept.sort(key=lambda r: at[r["generator"]])
            plain = method == PLAIN
            label = ", ".join(filter(None, [family, str(method)]))
            axes.errorbar(
                [at[r["generator"]] for r in kept],
                [r[key] for r in kept],
                yerr=_around(kept, key),
                label=label,
                linestyle=("--" if plain else "-") if sized else "",
                marker="o" if plain else "s",
                color=look.colour(family) if sized or plain else style.PALETTE[0],
                markerfacecolor="white" if plain else None,
                capsize=3,
            )
    if sized:
        axes.set_xscale("log")
        axes.set_xlabel("parameters")
    _name(axes, names, [float(at[name]) for name in names], sized=sized)


def _around(rows: Sequence[dict[str, Any]], key: str) -> list[list[float]]:
    """How far the intervals reach below and above the means."""
    return [
        [row[key] - row[f"{key}_low"] for row in rows],
        [row[f"{key}_high"] - row[key] for row in rows],
    ]


def _name(axes: Axes, names: Sequence[str], at: Sequence[float], *, sized: bool) -> None:
    axes.xaxis.set_major_locator(FixedLocator(sorted(set(at))))
    axes.xaxis.set_minor_locator(NullLocator())
    axes.xaxis.set_minor_formatter(NullFormatter())
    if sized:
        axes.set_xticklabels([_short(size) for size in sorted(set(at))])
    else:
        axes.set_xticklabels(list(names), rotation=20, ha="right")
        axes.set_xlim(-0.5, len(names) - 0.5)


def _short(size: float) -> str:
    return f"{size / 1e9:g}B" if size >= 1e9 else f"{size / 1e6:g}M"
