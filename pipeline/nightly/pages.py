"""A night for people: summary.md, and two sections at the head of the run's own report."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from typing import Any

import polars as pl

from pipeline.nightly import trend
from pipeline.nightly.gate import Compared, Judged
from pipeline.nightly.nights import Night
from pipeline.report.figures import style
from pipeline.report.html import Drawn, Report, Section
from pipeline.report.sheets import Sheet, count, mean, number, text
from pipeline.writers import as_markdown

SHOWN_CHANGES = 20
SAID = {
    "passed": "passed",
    "no_baseline": "passed: there is no baseline yet",
    "worse": "WORSE than the baseline",
    "drifted": "DRIFTED from the baseline",
    "not_comparable": "NOT COMPARABLE with the baseline",
}
GATE = {
    "metric": ("what is compared", "text"),
    "baseline": ("its mean in the baseline", "the metric's"),
    "night": ("its mean tonight", "the metric's"),
    "difference": ("night minus baseline, paired", "the metric's"),
    "low": ("low end of its interval", "the metric's"),
    "high": ("high end of its interval", "the metric's"),
    "n": ("questions that both nights have and define", "count"),
    "undefined": ("questions left out as undefined", "count"),
    "tolerance": ("how far it may fall behind", "the metric's"),
    "worse": ("whether it fails the gate", "true or false"),
    "said": ("the same in a word", "text"),
}
NIGHTS = {
    "date": ("scheduled date", "date"),
    "night": ("the night's id", "text"),
    "verdict": ("what its gate said", "text"),
    "questions": ("living questions", "count"),
    "dead_letters": ("questions that died", "count"),
    "baseline_f1": ("F1 of retrieval order the same night", "F1, 0 to 1"),
    "baseline_sub_em": ("SubEM of retrieval order the same night", "share, 0 to 1"),
}
"""What the columns of the two tables mean, where the report's legend does not know them."""
TREND = (
    "{arm} against retrieval order by scheduled date, with 95% intervals over questions, and TK of "
    "{arm}; a ring marks a night that did not pass its gate."
)


def report(found: Report, judged: Judged, nights: pl.DataFrame, *, arm: str) -> Report:
    """The run's report with the gate and the nights so far before everything else."""
    drawn = Drawn("trend", TREND.format(arm=arm), style.svg(trend.plot(nights, arm)))
    past = Section("nights", "Nights so far", [nights_sheet(nights)], [drawn])
    gate = Section("gate", "Tonight against the baseline", [gate_sheet(judged.compared)])
    return replace(found, sections=[*([gate] if judged.compared else []), past, *found.sections])


def gate_sheet(compared: Sequence[Compared]) -> Sheet:
    """Every metric of the arm, baseline against night."""
    rows = [
        {
            **asdict(one),
            "difference_low": one.low,
            "difference_high": one.high,
            "said": "WORSE" if one.worse else "",
        }
        for one in compared
    ]
    return Sheet(
        name="gate",
        title="Tonight against the baseline",
        note="Means over the questions that both nights have and define; the difference is paired, "
        "with its bootstrap interval. Worse: beyond the tolerance, and the interval excludes 0.",
        columns=[
            text("metric", "metric"),
            number("baseline", "baseline", ".4f"),
            number("night", "night", ".4f"),
            mean("difference", "difference", "+.4f"),
            number("tolerance", "tolerance", "g"),
            count("n", "n", "undefined"),
            text("", "said"),
        ],
        frame=pl.DataFrame(rows, infer_schema_length=None),
        meanings=GATE,
    )


def nights_sheet(nights: pl.DataFrame) -> Sheet:
    """A row a night, the newest last."""
    return Sheet(
        name="nights",
        title="Nights so far",
        note="F1, SubEM and TK of the judged arm, F1 of retrieval order the same night.",
        columns=[
            text("date", "date"),
            text("gate", "verdict"),
            mean("F1", "f1"),
            mean("retrieval order F1", "baseline_f1"),
            mean("SubEM", "sub_em"),
            number("TK", "tk", ".1f"),
            count("questions", "questions"),
            count("dead", "dead_letters"),
        ],
        frame=nights,
        meanings=NIGHTS,
    )


def summary(
    night: Night,
    judged: Judged,
    *,
    metrics: Mapping[str, Any],
    baseline: str | None,
    changed: Sequence[str],
    drift: Mapping[str, Any],
    nights: pl.DataFrame,
) -> str:
    """summary.md: the verdict first, then why, then the numbers."""
    lines = [f"# {night.id}: {SAID[judged.verdict]}", ""]
    lines += [f"- {reason}" for reason in judged.reasons if judged.verdict != "no_baseline"]
    lines += [
        f"- arm {metrics['arm']}, {metrics['questions']} questions, "
        f"{metrics['dead_letters']} more died",
        f"- baseline: {baseline or 'none'}",
        f"- drift: {_drift(drift)}",
    ]
    if judged.compared:
        lines += [
            "",
            "## Against the baseline",
            "",
            as_markdown(gate_sheet(judged.compared).texts()),
        ]
    if baseline is not None:
        shown = [f"- {line}" for line in changed[:SHOWN_CHANGES]] or ["- nothing"]
        more = len(changed) - SHOWN_CHANGES
        shown += [f"- and {more} more"] if more > 0 else []
        lines += ["", "## What differs from the baseline", "", *shown]
    lines += ["", "## Nights so far", "", as_markdown(nights_sheet(nights).texts())]
    return "\n".join(lines).rstrip("\n") + "\n"


def _drift(drift: Mapping[str, Any]) -> str:
    if not drift["checked"]:
        return f"not checked: {drift['reason']}"
    flagged = [f"{one['signal']} {one['measure']}" for one in drift["signals"] if one["exceeded"]]
    return f"flagged in {', '.join(flagged)}" if flagged else "none beyond its limits"
