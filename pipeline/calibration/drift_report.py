"""The drift between two finished runs, as JSON, as a terminal table and as Markdown."""

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from rich.table import Table

from pipeline.calibration.drift import Drift, Limits, drift, exceeded
from pipeline.calibration.finished import FinishedRun, check_comparable, sample
from pipeline.config import DriftLimits

_HEADINGS = ("signal", "measure", "reference", "current", "drift", "limit", "chance", "verdict")


def compare(
    reference: FinishedRun, current: FinishedRun, cfg: DriftLimits, *, threshold: float
) -> tuple[dict[str, Any], list[Drift]]:
    """Two finished runs: the report as JSON's types, whose `drifted` says whether any entry was
    flagged, and its entries. InputError where they cannot be compared."""
    notes = check_comparable(reference, current)
    before, now = (sample(run, threshold=threshold) for run in (reference, current))
    limits = Limits(cfg.psi_limit, cfg.ks_limit, cfg.pass_rate_limit, cfg.alpha)
    found = drift(before, now, limits)
    report = {
        "drifted": bool(exceeded(found)),
        "reference": {"run": reference.folder, "questions": before.questions},
        "current": {"run": current.folder, "questions": now.questions},
        "threshold": threshold,
        "alpha": cfg.alpha,
        "differences": notes,
        "signals": [asdict(entry) for entry in found],
    }
    return report, found


def table(report: dict[str, Any], found: Sequence[Drift]) -> Table:
    """One line per signal and measure; flagged ones say DRIFT, and others above their limit so."""
    before, now = (report[side]["questions"] for side in ("reference", "current"))
    shown = Table(title=f"drift: {before} questions before, {now} now")
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
