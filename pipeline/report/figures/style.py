"""How every figure looks: Okabe and Ito's palette, shapes and dashes that survive grey print."""

import io
from collections.abc import Iterable
from typing import Any

import matplotlib
from matplotlib.axes import Axes
from matplotlib.backends.backend_svg import FigureCanvasSVG
from matplotlib.colors import to_rgb
from matplotlib.figure import Figure

BLACK, GREY = "#000000", "#8a8a8a"
UNDEFINED, MINUS, RHO = "\N{EN DASH}", "\N{MINUS SIGN}", "\N{GREEK SMALL LETTER RHO}"
PALETTE = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9")
"""Okabe and Ito (2008) without yellow, which white paper swallows; black is retrieval order's."""
MARKERS = ("o", "s", "^", "D", "v", "P")
DASHES = ("-", "--", ":", "-.")
_SETTINGS: Any = {
    "font.size": 10,
    "axes.titlesize": 11,
    "axes.labelsize": 10,
    "legend.fontsize": 9,
    "xtick.labelsize": 9,
    "ytick.labelsize": 9,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "axes.axisbelow": True,
    "grid.color": "#e3e3e3",
    "grid.linewidth": 0.6,
    "lines.linewidth": 1.6,
    "lines.markersize": 6,
    "legend.frameon": False,
    "svg.fonttype": "path",
    "svg.hashsalt": "winnow",
}


def lighter(colour: str, share: float) -> tuple[float, float, float]:
    """A colour moved towards white by a share of the way."""
    red, green, blue = to_rgb(colour)
    return (red + (1 - red) * share, green + (1 - green) * share, blue + (1 - blue) * share)


def shade(place: int) -> float:
    """How light the n-th line of one colour is: every round of DASHES is lighter than the last."""
    return min(0.6, 0.35 * (place // len(DASHES)))


class Look:
    """Colour and shape by name; the first name, retrieval order, is black."""

    def __init__(self, names: Iterable[str]) -> None:
        found = [name for name in dict.fromkeys(names) if name != "retriever"]
        self._place = {name: place for place, name in enumerate(found)}

    def colour(self, name: str) -> str:
        """The name's colour; after the palette's end they come again, with other shapes."""
        return PALETTE[self._place[name] % len(PALETTE)] if name in self._place else BLACK

    def marker(self, name: str) -> str:
        """The name's shape."""
        if name not in self._place:
            return "X"
        place = self._place[name]
        return MARKERS[(place + place // len(PALETTE)) % len(MARKERS)]


def canvas(
    width: float, height: float, *, rows: int = 1, columns: int = 1
) -> tuple[Figure, list[Axes]]:
    """A figure of some inches and its axes, row by row."""
    with matplotlib.rc_context(_SETTINGS):
        figure = Figure(figsize=(width, height), layout="constrained")
        FigureCanvasSVG(figure)
        axes = figure.subplots(rows, columns, squeeze=False)
    return figure, list(axes.flat)


def legend(figure: Figure, *panels: Axes, columns: int = 3) -> None:
    """One legend under the whole figure, where it covers nothing: each name of its panels once."""
    found: dict[str, Any] = {}
    for axes in panels:
        for handle, label in zip(*axes.get_legend_handles_labels(), strict=True):
            found.setdefault(label, handle)
    if found:
        figure.legend(
            list(found.values()),
            list(found),
            loc="outside lower center",
            ncols=min(columns, len(found)),
            fontsize=9,
            frameon=False,
        )


def svg(figure: Figure) -> str:
    """The figure as one SVG text, the same for the same figure."""
    held = io.StringIO()
    with matplotlib.rc_context(_SETTINGS):
        figure.savefig(held, format="svg", metadata={"Date": None})
    return held.getvalue()
