"""K x MT, NDCG against F1, the signal's histogram, and what the stages cost."""

import math
from collections.abc import Sequence

import numpy as np
import polars as pl
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from pipeline.report import points
from pipeline.report.figures import style
from pipeline.report.figures.style import DASHES, PALETTE, Look

KINDS = {points.GOLD: PALETTE[0], points.FALSE: PALETTE[1], points.OTHER: style.GREY}


def heat(found: pl.DataFrame) -> Figure:
    """One data set's rows of points.heat: the map, and its margins at the largest MT and K."""
    figure, panels = style.canvas(9.6, 4.6, columns=3)
    ks, mts = (sorted(found[name].unique()) for name in ("ig_top_k", "ig_max_tokens"))
    f1 = {
        (k, mt): value
        for k, mt, value in found.select("ig_top_k", "ig_max_tokens", "f1").iter_rows()
    }
    grid = np.array([[_nan(f1.get((k, mt))) for mt in mts] for k in ks])
    axes = panels[0]
    drawn = axes.imshow(grid, origin="lower", aspect="auto", cmap="cividis")
    middle = (np.nanmin(grid) + np.nanmax(grid)) / 2
    for i, j in np.ndindex(*grid.shape):
        text = style.UNDEFINED if math.isnan(grid[i, j]) else _share(float(grid[i, j]))
        colour = "white" if grid[i, j] < middle else "black"
        axes.text(j, i, text, ha="center", va="center", fontsize=8, color=colour)
    axes.set_xticks(range(len(mts)), [str(mt) for mt in mts])
    axes.set_yticks(range(len(ks)), [str(k) for k in ks])
    axes.set(xlabel="MT: rollout length", ylabel="K: largest logits", title="(a) F1")
    axes.grid(visible=False)
    figure.colorbar(drawn, ax=axes, shrink=0.8).ax.tick_params(labelsize=8)
    _margin(panels[1], found.filter(pl.col("ig_max_tokens") == mts[-1]), "ig_top_k")
    panels[1].set(xlabel="K", title=f"(b) MT = {mts[-1]}")
    _margin(panels[2], found.filter(pl.col("ig_top_k") == ks[-1]), "ig_max_tokens")
    panels[2].set(xlabel="MT", title=f"(c) K = {ks[-1]}")
    low = min(axis.get_ylim()[0] for axis in panels[1:])
    high = max(axis.get_ylim()[1] for axis in panels[1:])
    for axis in panels[1:]:
        axis.set_ylim(low, high)
    return figure


def ndcg(found: pl.DataFrame, spearman: pl.DataFrame) -> Figure:
    """One data set's rows of points.ndcg and of their correlations: a panel a budget."""
    budgets = list(spearman.iter_rows(named=True))
    columns = 2 if len(budgets) == 4 else min(3, len(budgets))
    rows = math.ceil(len(budgets) / columns)
    figure, panels = style.canvas(3.6 * columns + 1.2, 3.6 * rows + 0.8, rows=rows, columns=columns)
    look = Look(found["label"])
    for axes, budget in zip(panels, budgets, strict=False):
        own = found.filter(
            (pl.col("top_m") == budget["top_m"])
            & pl.col("token_guard").eq_missing(pl.lit(budget["token_guard"], pl.Int64))
        )
        for (label,), points_of in own.group_by("label", maintain_order=True):
            axes.scatter(
                points_of["ndcg"].to_list(),
                points_of["f1"].to_list(),
                color=look.colour(str(label)),
                marker=look.marker(str(label)),
                s=52,
                alpha=0.85,
                label=str(label),
            )
        rho = style.UNDEFINED if budget["spearman"] is None else f"{budget['spearman']:+.2f}"
        guard = "" if budget["token_guard"] is None else f", B = {budget['token_guard']}"
        axes.set(
            title=f"M = {budget['top_m']}{guard}: {style.RHO} = {rho}, {budget['methods']} methods"
        )
        axes.set(xlabel="NDCG@5 of the order", ylabel="F1")
        axes.margins(0.12)
        axes.xaxis.set_major_locator(MaxNLocator(5))
    for axes in panels[len(budgets) :]:
        axes.set_visible(False)
    style.legend(figure, *panels, columns=6)
    return figure


def histogram(found: pl.DataFrame) -> Figure:
    """One data set's rows of points.histogram: a stepped outline a kind of passage."""
    figure, (axes,) = style.canvas(8.4, 3.8)
    for dash, ((kind,), own) in zip(
        DASHES, found.group_by("kind", maintain_order=True), strict=False
    ):
        edges = [*own["low"], own["high"][-1]]
        colour = KINDS[str(kind)]
        label = f"{kind} (n = {own['passages'][0]})"
        axes.stairs(
            own["share"].to_list(), edges, color=colour, linestyle=dash, linewidth=1.8, label=label
        )
        axes.stairs(own["share"].to_list(), edges, fill=True, color=colour, alpha=0.12)
    axes.axvline(0, color=style.BLACK, linewidth=0.8)
    axes.set(xlabel=f"IG = NU(q) {style.MINUS} NU(q|d)", ylabel="share of the kind's passages")
    style.legend(figure, axes)
    return figure


def stages(ledger: pl.DataFrame) -> Figure:
    """The ledger: seconds and tokens a question, a bar a stage and data set."""
    datasets = ledger["dataset"].unique(maintain_order=True).to_list()
    names = ledger["stage"].unique(maintain_order=True).to_list()
    height = 1.4 + 0.28 * len(names) * max(1, len(datasets)) * 0.9
    figure, panels = style.canvas(9.2, max(2.6, height), columns=2)
    look = Look(["retriever", *datasets])
    thick = 0.8 / len(datasets)
    for place, dataset in enumerate(datasets):
        own = {row["stage"]: row for row in ledger.filter(pl.col("dataset") == dataset).to_dicts()}
        at = [len(names) - 1 - i + 0.4 - thick * (place + 0.5) for i in range(len(names))]
        for axes, key in zip(panels, ("seconds_per_question", "tokens_per_question"), strict=True):
            values = [own[name][key] if name in own else None for name in names]
            long = [value or 0.0 for value in values]
            bars = axes.barh(at, long, thick * 0.92, color=look.colour(dataset), label=dataset)
            axes.bar_label(bars, [_short(value) for value in values], padding=3, fontsize=8)
    _bars(panels, names)
    if len(datasets) > 1:
        style.legend(figure, *panels, columns=5)
    return figure


def _share(value: float) -> str:
    """Three decimals, without the nought before the point: .250, and 1.000."""
    return f"{value:.3f}".removeprefix("0")


def _bars(panels: Sequence[Axes], names: Sequence[str]) -> None:
    for axes, title in zip(panels, ("seconds a question", "model tokens a question"), strict=True):
        axes.set_yticks(range(len(names)), list(reversed(names)))
        axes.set_title(title)
        axes.margins(x=0.18)
        axes.grid(visible=False, axis="y")
        axes.xaxis.set_major_locator(MaxNLocator(4))
    panels[1].set_yticklabels([])


def _margin(axes: Axes, rows: pl.DataFrame, by: str) -> None:
    ordered = rows.sort(by).drop_nulls("f1")
    names = [str(value) for value in ordered[by]]
    values = np.array(ordered["f1"].to_list())
    axes.plot(range(len(names)), values, color=PALETTE[0], marker="o")
    if ordered["f1_low"].null_count() == 0:
        low, high = ordered["f1_low"].to_list(), ordered["f1_high"].to_list()
        axes.fill_between(range(len(names)), low, high, color=PALETTE[0], alpha=0.15, linewidth=0)
    axes.set_xticks(range(len(names)), names)
    axes.yaxis.set_major_locator(MaxNLocator(5))


def _nan(value: float | None) -> float:
    return math.nan if value is None else value


def _short(value: float | None) -> str:
    if value is None:
        return style.UNDEFINED
    return "0" if value == 0 else f"{value:.3g}" if value < 1000 else f"{value:,.0f}"
