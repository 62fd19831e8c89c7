"""F1 against what it costs: the Pareto frontier, the curve over Tp, and its frontier over M."""

import math
from collections.abc import Iterator
from itertools import pairwise
from typing import Any

import polars as pl
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FixedLocator, FuncFormatter, MaxNLocator

from pipeline.report import points
from pipeline.report.figures import style
from pipeline.report.figures.style import BLACK, DASHES, GREY, Look

HOLLOW = {
    "same_size": "x",
    "random_same_size": "+",
    "oracle": "*",
    "no_evidence": "s",
    "closed_book": "o",
}
NAMES = {
    "same_size": "control: retrieval's prefix of equal size",
    "random_same_size": "control: random passages, equal size",
    "oracle": "oracle: best single passage",
    "no_evidence": "no evidence",
    "closed_book": "closed book",
}
QUALITY, COST = "F1", "TK: tokens of the final prompt"


def pareto(found: pl.DataFrame) -> Figure:
    """One data set's rows of points.pareto: a line a method and Tp over its budgets."""
    figure, (axes,) = style.canvas(8.4, 5.6)
    policies = found.filter(pl.col("kind") == "policy")
    look = Look(policies["label"])
    tps: dict[str, list[str]] = {}
    for (series, label), own in policies.group_by("series", "label", maintain_order=True):
        seen = tps.setdefault(str(label), [])
        seen.append(str(series))
        dash, shade = DASHES[(len(seen) - 1) % len(DASHES)], style.shade(len(seen) - 1)
        ordered = own.sort("tk")
        axes.plot(
            *_xy(ordered),
            dash,
            color=style.lighter(look.colour(str(label)), shade),
            marker=look.marker(str(label)),
            label=str(series),
        )
        if label == "retriever":
            _name_budgets(axes, ordered)
    _frontier(axes, policies)
    for (kind,), own in found.filter(pl.col("kind") != "policy").group_by(
        "kind", maintain_order=True
    ):
        axes.scatter(
            *_xy(own), marker=HOLLOW[str(kind)], label=NAMES[str(kind)], **_hollow(str(kind))
        )
    axes.set(xlabel=COST, ylabel=QUALITY)
    style.legend(figure, axes)
    return figure


def thresholds(found: pl.DataFrame) -> Figure:
    """One data set's rows of points.thresholds: F1, TK and empty share, one above the other."""
    figure, panels = style.canvas(8.4, 7.6, rows=3)
    look, spread = Look(_lines(found)), _Axis(found)
    for line, own in _by_line(found):
        at = [spread.place(value) for value in own["threshold"]]
        how: dict[str, Any] = {"color": look.colour(line), "marker": look.marker(line)}
        panels[0].plot(at, own["f1"].to_list(), label=line, **how)
        if own["f1_low"].null_count() == 0:
            low, high = own["f1_low"].to_list(), own["f1_high"].to_list()
            panels[0].fill_between(at, low, high, color=look.colour(line), alpha=0.12, linewidth=0)
        panels[1].plot(at, own["tk"].to_list(), **how)
        panels[2].plot(at, own["empty_share"].to_list(), **how)
        for panel, name in ((panels[0], "baseline_f1"), (panels[1], "baseline_tk")):
            if (level := own[name][0]) is not None:
                panel.axhline(level, color=look.colour(line), linestyle=":", linewidth=1.2)
    for panel, name in zip(panels, (QUALITY, "TK", "share with\nnone admitted"), strict=True):
        panel.set_ylabel(name)
        spread.show(panel)
    panels[2].set(xlabel="threshold Tp (dotted: retrieval order, same budget)", ylim=(-0.03, 1.03))
    style.legend(figure, panels[0], columns=6)
    return figure


def budgets(found: pl.DataFrame) -> Figure:
    """One data set's rows of points.thresholds as frontiers: a line a budget, its Tp along it."""
    figure, (axes,) = style.canvas(8.4, 5.2)
    look = Look(_lines(found))
    for line, own in _by_line(found):
        axes.plot(*_xy(own), color=look.colour(line), marker=look.marker(line), label=line)
        shown = {0, len(own) - 1, own["f1"].arg_max()}
        for place, row in enumerate(own.to_dicts()):
            if place in shown:
                axes.annotate(
                    points.threshold_text(row["threshold"]),
                    (row["tk"], row["f1"]),
                    (5, 6),
                    textcoords="offset points",
                    fontsize=8,
                    color=look.colour(line),
                )
    baseline = found.unique(["top_m", "token_guard"], maintain_order=True).drop_nulls("baseline_f1")
    axes.plot(
        baseline["baseline_tk"].to_list(),
        baseline["baseline_f1"].to_list(),
        linestyle="",
        marker="X",
        color=BLACK,
        label="retrieval order",
    )
    axes.set(xlabel=COST, ylabel=QUALITY)
    axes.margins(x=0.1, y=0.12)
    style.legend(figure, axes, columns=6)
    return figure


class _Axis:
    """Places of thresholds on an axis: -inf (reorder only) left of the finite ones, inf (nothing
    is admitted) right of them, each as far off as the widest gap between two."""

    def __init__(self, found: pl.DataFrame) -> None:
        values = sorted(found["threshold"].unique())
        finite = [value for value in values if math.isfinite(value)]
        gap = max([*(b - a for a, b in pairwise(finite)), 0.02])
        beyond = {-math.inf: finite[0] - gap, math.inf: finite[-1] + gap}
        self._place: dict[float, float] = {v: beyond.get(v, v) for v in values}
        self._text = {
            at: f"{style.MINUS}∞" if value < 0 else "∞"
            for value, at in self._place.items()
            if math.isinf(value)
        }

    def place(self, threshold: float) -> float:
        return self._place[threshold]

    def show(self, axes: Axes) -> None:
        ticks = list(self._place.values())
        if len(ticks) > 12:
            ticks = sorted({ticks[0], *ticks[1::2], *self._text})
        axes.xaxis.set_major_locator(FixedLocator(ticks))
        axes.xaxis.set_major_formatter(FuncFormatter(lambda x, _: self._text.get(x, f"{x:g}")))
        axes.yaxis.set_major_locator(MaxNLocator(5))


def _lines(found: pl.DataFrame) -> list[str]:
    return [line for line, _ in _by_line(found)]


def _by_line(found: pl.DataFrame) -> Iterator[tuple[str, pl.DataFrame]]:
    """The rows of each method and budget, by rising Tp."""
    own = ("label", "top_m", "token_guard")
    for (label, top_m, guard), rows in found.group_by(*own, maintain_order=True):
        yield (
            f"{label} M={top_m}" + ("" if guard is None else f" B={guard}"),
            rows.sort("threshold"),
        )


def _xy(rows: pl.DataFrame) -> tuple[list[float], list[float]]:
    return rows["tk"].to_list(), rows["f1"].to_list()


def _hollow(kind: str) -> dict[str, Any]:
    """Controls are grey and empty inside: they are no choices."""
    if HOLLOW[kind] in ("x", "+"):
        return {"color": GREY, "s": 36, "linewidths": 1.1, "zorder": 1.5}
    return {"facecolors": "none", "edgecolors": GREY, "s": 70, "linewidths": 1.4, "zorder": 1.5}


def _frontier(axes: Axes, policies: pl.DataFrame) -> None:
    best = policies.filter(pl.col("frontier")).sort("tk")
    if len(best) > 1:
        x, y = _xy(best)
        axes.step(
            x,
            y,
            where="post",
            color="#bdbdbd",
            linewidth=5,
            zorder=0.5,
            label="frontier",
            alpha=0.7,
        )


def _name_budgets(axes: Axes, rows: pl.DataFrame) -> None:
    for row in rows.to_dicts():
        text = f"M={row['top_m']}" + (
            "" if row["token_guard"] is None else f" B={row['token_guard']}"
        )
        axes.annotate(
            text,
            (row["tk"], row["f1"]),
            (0, -14),
            textcoords="offset points",
            fontsize=8,
            ha="center",
            bbox={"facecolor": "white", "edgecolor": "none", "alpha": 0.75, "pad": 0.6},
        )
