"""A determinism audit judged, and shown as a terminal table, as JSON and as Markdown."""

import math
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from rich.table import Table

from pipeline.calibration.audit_sample import Sample, Subject
from pipeline.calibration.reprobe import Comparison
from pipeline.config import AuditConfig
from pipeline.core.agreement import Spread

_HEADINGS = (
    "dtype",
    "composition",
    "against",
    "rollouts",
    "texts",
    "steps",
    "dNU max",
    "dNU same text",
    "dIG mean",
    "dIG p99",
    "dIG max",
    "flips",
    "admissions",
)
_LEFT = 3
_SPREAD = ("dtype", "composition", "against", "of", "n", "mean", "median", "p90", "p99", "max")
_CUTS = ("dtype", "composition", "against", "Tp", "M", "candidates", "questions")
CAPTION = (
    "dNU, dIG: absolute differences; texts, steps: rollouts that say something else, that take "
    "another number of steps; dNU same text: the largest of the others; flips: pairs of a "
    "question's candidates whose order by IG turned; admissions: candidates admitted otherwise at "
    "the worst Tp"
)


def exceeded(found: Sequence[Comparison], cfg: AuditConfig) -> list[str]:
    """What is over the limits, one line each; with a limit set, a refused rollout is, too."""
    lines = []
    ig, admissions = cfg.limits.ig, cfg.limits.admissions
    for entry in found:
        where = f"{entry.dtype} {entry.composition} against {entry.against}"
        largest, changed = entry.agreement.ig.max, entry.agreement.admissions
        if ig is not None and largest > ig:
            lines.append(f"{where}: |dIG| {largest:.2g} is over limits.ig {ig:g}")
        if admissions is not None and changed > admissions:
            lines.append(f"{where}: {changed} admissions are over limits.admissions {admissions}")
        if entry.refused and (ig is not None or admissions is not None):
            lines.append(f"{where}: {len(entry.refused)} rollouts refused: {entry.refused[0]}")
    return lines


def as_json(
    found: Sequence[Comparison], cfg: AuditConfig, subject: Subject, sample: Sample
) -> dict[str, Any]:
    """The report as strict JSON's types: null for what is undefined, -inf as a text."""
    report = {
        "run": cfg.run,
        "model": subject.generator.model,
        "engine": subject.engine,
        "probe": subject.probe.plain(),
        "runtime": (cfg.runtime or subject.generator.runtime).plain(),
        "audit": cfg.plain(exclude={"run", "output", "runtime"}),
        "questions": len(sample.questions),
        "rollouts": sample.rollouts,
        "free_rule": sample.free_rule,
        "early_stopped": sample.early_stopped,
        "differences": list(subject.notes),
        "exceeded": exceeded(found, cfg),
        "comparisons": [asdict(entry) for entry in found],
    }
    strict: dict[str, Any] = _strict(report)
    return strict


def table(found: Sequence[Comparison], *, title: str) -> Table:
    """One line per comparison."""
    shown = Table(title=title, caption=CAPTION)
    for i, name in enumerate(_HEADINGS):
        shown.add_column(name, justify="left" if i < _LEFT else "right")
    for entry in found:
        shown.add_row(*_cells(entry))
    return shown


def markdown(found: Sequence[Comparison], report: dict[str, Any]) -> str:
    """The report as a Markdown page."""
    probe = report["probe"]
    left_out = report["free_rule"] + report["early_stopped"]
    lines = [
        "# Determinism audit",
        "",
        f"- run: {report['run']}",
        f"- model: {report['model']}, {report['engine']}; template {probe['template']}, "
        f"K = {probe['top_k']}, MT = {probe['max_tokens']}",
        f"- sample: {report['questions']} questions, {report['rollouts']} rollouts a pass; without "
        f"a value in the run: {left_out} ({report['free_rule']} by the free rule, "
        f"{report['early_stopped']} stopped early)",
        *(f"- differs: {note}" for note in report["differences"]),
        *(f"- over a limit: {line}" for line in report["exceeded"]),
        "",
        *_rows(_HEADINGS, [_cells(entry) for entry in found]),
        "",
        f"{CAPTION}.",
        "",
        "## Distributions",
        "",
        *_rows(_SPREAD, [row for entry in found for row in _spreads(entry)]),
        "",
        "## Decisions",
        "",
        *_decisions(found),
    ]
    return "\n".join(lines) + "\n"


def _decisions(found: Sequence[Comparison]) -> list[str]:
    rows = [
        (
            *_where(entry),
            f"{c.cut.threshold:g}",
            *map(str, (c.cut.top_m, c.candidates, c.questions)),
        )
        for entry in found
        for c in entry.agreement.cuts
    ]
    if not rows:
        return ["No arm of the run admits by IG."]
    said = (
        "candidates: admitted by one side alone, before M; questions: whose first M passages are "
        "others, or in another order."
    )
    return [*_rows(_CUTS, rows), "", said]


def _spreads(entry: Comparison) -> list[tuple[str, ...]]:
    return [
        (*_where(entry), name, str(s.count), *map(_small, (s.mean, s.median, s.p90, s.p99, s.max)))
        for name, s in (("dNU", entry.agreement.nu), ("dIG", entry.agreement.ig))
    ]


def _cells(entry: Comparison) -> tuple[str, ...]:
    found = entry.agreement
    ig: Spread = found.ig
    return (
        *_where(entry),
        str(found.rollouts),
        str(found.texts),
        str(found.steps),
        *map(_small, (found.nu.max, found.nu_alike, ig.mean, ig.p99, ig.max)),
        f"{found.flips}/{found.pairs}",
        str(found.admissions) if found.cuts else "-",
    )


def _where(entry: Comparison) -> tuple[str, str, str]:
    return entry.dtype, entry.composition, entry.against


def _small(value: float) -> str:
    return "-" if math.isnan(value) else f"{value:.1e}" if value else "0"


def _rows(headings: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    lines = [" | ".join(row) for row in (headings, *rows)]
    return [f"| {lines[0]} |", f"|{'---|' * len(headings)}", *(f"| {line} |" for line in lines[1:])]


def _strict(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _strict(entry) for key, entry in value.items()}
    if isinstance(value, (list, tuple)):
        return [_strict(entry) for entry in value]
    if isinstance(value, float) and not math.isfinite(value):
        return None if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
    return value
