"""What a selection gains in quality against the tokens that it saves, generator by generator."""

import polars as pl
from matplotlib.figure import Figure

from pipeline.report.figures import style
from pipeline.report.figures.style import Look


def roles(found: pl.DataFrame) -> Figure:
    """One data set's rows of alce.roles with a defined difference: a panel a metric."""
    metrics = found["metric"].unique(maintain_order=True).to_list()
    figure, panels = style.canvas(1 + 4.2 * len(metrics), 3.8, columns=len(metrics))
    look = Look(found["generator"])
    for axes, metric in zip(panels, metrics, strict=True):
        axes.axhline(0, color=style.GREY, linewidth=1)
        axes.axvline(0, color=style.GREY, linewidth=1)
        for row in found.filter(pl.col("metric") == metric).to_dicts():
            value = row["minus_baseline"]
            around = [[value - row["minus_baseline_low"]], [row["minus_baseline_high"] - value]]
            axes.errorbar(
                [row["saved_percent"]],
                [value],
                yerr=around,
                label=row["generator"],
                linestyle="",
                marker=look.marker(row["generator"]),
                color=look.colour(row["generator"]),
                capsize=3,
            )
        axes.set(title=metric, xlabel="context tokens saved, %", ylabel="points gained")
    style.legend(figure, *panels)
    return figure
