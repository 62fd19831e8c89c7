"""Drift as a terminal table, as JSON and as Markdown."""

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from rich.table import Table

from pipeline.calibration.drift import Drift, exceeded

_HEADINGS = ("signal", "measure", "reference", "current", "drift", "limit", "chance", "verdict")


def as_json(
    found: Sequence[Drift],
    *,
    reference: str,
    current: str,
    questions: tuple[int, int],
    threshold: float,
    alpha: float,
    notes: Sequence[str],
) -> dict[str, Any]:
    """The report as JSON's types; `drifted` says whether any entry was flagged."""
    return {
        "drifted": bool(exceeded(found)),
        "reference": {"run": reference, "questions": questions[0]},
        "current": {"run": current, "questions": questions[1]},
        "threshold": threshold,
        "alpha": alpha,
        "differences": list(notes),
        "signals": [asdict(entry) for entry in found],
    }


def table(found: Sequence[Drift], *, title: str) -> Table:
    """One line per signal and measure; flagged ones say DRIFT, and others above their limit so."""
    shown = Table(title=title)
    for i, name in enumerate(_HEADINGS):
        shown.add_column(name, justify="left" if i < 2 else "right", no_wrap=True)
    for entry in found:
        shown.add_row(*_cells(entry))
    shown.caption = "reference, current: means; chance: of such a drift without any"
    return shown


def markdown(report: dict[str, Any], found: Sequence[Drift]) -> str:
    """The report as a Markdown page."""
    before, now = report["reference"], report["current"]
    lines = [
        _title(report["drifted"], found),
        "",
        f"- reference: {before['run']}, {before['questions']} questions",
        f"- current: {now['run']}, {now['questions']} questions",
        f"- pass rate at Tp = {report['threshold']:g}",
        f"- flagged: above its limit, and by chance in less than {report['alpha']:g} of cases",
        *(f"- differs: {note}" for note in report["differences"]),
        "",
        f"| {' | '.join(_HEADINGS)} |",
        f"|{'---|' * len(_HEADINGS)}",
        *(f"| {' | '.join(_cells(entry))} |" for entry in found),
    ]
    return "\n".join(lines) + "\n"


def _cells(entry: Drift) -> tuple[str, ...]:
    numbers = (entry.reference, entry.current, entry.value, entry.limit)
    return (
        entry.signal,
        entry.measure,
        *(f"{number:.3f}" for number in numbers),
        f"{entry.chance:.2g}",
        "DRIFT" if entry.exceeded else "above, may be chance" if _above(entry) else "",
    )


def _title(drifted: bool, found: Sequence[Drift]) -> str:
    """The verdict; values above their limits that chance may explain ask for more questions."""
    above = sum(map(_above, found))
    if drifted or not above:
        return "# Drift" if drifted else "# No drift"
    return (
        f"# No drift shown: {above} above their limits, with too few questions to rule out chance"
    )


def _above(entry: Drift) -> bool:
    return entry.value > entry.limit
