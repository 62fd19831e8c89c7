"""The nights so far: one row a night, and their plot."""

import datetime
from collections.abc import Sequence
from typing import Any

import polars as pl
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, MaxNLocator

from pipeline.nightly import nights
from pipeline.nightly.nights import Night
from pipeline.report.figures import style
from pipeline.report.figures.style import BLACK, PALETTE
from pipeline.runs.storage import Storage

QUALITY = {"f1": "F1", "sub_em": "SubEM"}
_SCHEMA: dict[str, Any] = {
    **{"date": pl.Date, "night": pl.String, "verdict": pl.String, "questions": pl.Int64},
    **{
        f"{name}{suffix}": pl.Float64
        for name in (*QUALITY, *(f"baseline_{name}" for name in QUALITY))
        for suffix in ("", "_low", "_high")
    },
    **{"tk": pl.Float64, "dead_letters": pl.Int64},
}
RED = PALETTE[1]


def frame(storage: Storage, night: Night, current: tuple[dict[str, Any], str]) -> pl.DataFrame:
    """The finished nights of a name up to and with `night`, by date: its metrics and verdict are
    `current`, and the others are read from their files.

    `baseline_` numbers are those of retrieval order in the same night: what moves with the arm is
    not the arm's.
    """
    before = [one for one in nights.finished(storage, name=night.name) if one < night]
    rows = [
        _row(
            one,
            storage.read_json(one.at(nights.METRICS)),
            storage.read_json(one.at(nights.GATE))["verdict"],
        )
        for one in before
    ]
    return pl.DataFrame([*rows, _row(night, *current)], schema=_SCHEMA)


def plot(found: pl.DataFrame, arm: str) -> Figure:
    """F1, SubEM and TK by date, with 95% intervals; nights that did not pass are marked."""
    figure, panels = style.canvas(8.4, 7.2, rows=3)
    at = [date.toordinal() for date in found["date"]]
    failed = [verdict not in ("passed", "no_baseline") for verdict in found["verdict"]]
    for panel, (name, title) in zip(panels, QUALITY.items(), strict=False):
        _line(panel, at, found, f"baseline_{name}", "retrieval order", BLACK, "X")
        _line(panel, at, found, name, arm, PALETTE[0], "o")
        _marks(panel, at, found[name].to_list(), failed)
        panel.set_ylabel(title)
    panels[2].plot(at, found["tk"].to_list(), color=PALETTE[0], marker="o")
    panels[2].set(ylabel="TK", xlabel="scheduled date")
    for panel in panels:
        panel.xaxis.set_major_locator(MaxNLocator(6, integer=True))
        panel.xaxis.set_major_formatter(FuncFormatter(_day))
        panel.set_xlim(min(at) - 0.5, max(at) + 0.5)
    style.legend(figure, panels[0])
    return figure


def _line(
    axes: Axes,
    at: list[int],
    found: pl.DataFrame,
    name: str,
    label: str,
    colour: str,
    marker: str,
) -> None:
    low, high = (found[f"{name}{end}"].fill_null(float("nan")) for end in ("_low", "_high"))
    axes.plot(at, found[name].to_list(), color=colour, marker=marker, label=label)
    axes.fill_between(at, low.to_list(), high.to_list(), color=colour, alpha=0.12, linewidth=0)


def _marks(
    axes: Axes, at: list[int], values: Sequence[float | None], failed: Sequence[bool]
) -> None:
    marked = zip(at, values, failed, strict=True)
    bad = [(x, y) for x, y, is_bad in marked if is_bad and y is not None]
    if bad:
        axes.scatter(
            [x for x, _ in bad],
            [y for _, y in bad],
            s=170,
            facecolors="none",
            edgecolors=RED,
            linewidths=1.8,
            zorder=3,
            label="not passed",
        )


def _day(ordinal: float, _: int) -> str:
    return datetime.date.fromordinal(int(ordinal)).isoformat()


def _row(night: Night, metrics: dict[str, Any], verdict: str) -> dict[str, Any]:
    arms = {arm["arm"]: arm for arm in metrics["arms"]}
    own = arms[metrics["arm"]]
    made: dict[str, Any] = {"date": night.date, "night": night.id, "verdict": verdict}
    made |= {"questions": metrics["questions"], "dead_letters": metrics["dead_letters"]}
    for prefix, arm in (("", own), ("baseline_", arms.get(own["baseline"]))):
        for name in QUALITY:
            mean = arm[name] if arm is not None else dict.fromkeys(("value", "low", "high"))
            made[f"{prefix}{name}"] = mean["value"]
            made |= {f"{prefix}{name}_{end}": mean[end] for end in ("low", "high")}
    return made | {"tk": own["tk"]}
