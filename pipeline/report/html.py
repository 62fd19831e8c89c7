"""The report as one HTML file that asks for nothing from outside, and as Markdown."""

import base64
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined

from pipeline.report import words
from pipeline.report.drilldown import Question
from pipeline.report.sheets import UNDEFINED, Sheet
from pipeline.writers import as_markdown


@dataclass(frozen=True)
class Drawn:
    """A figure: its file name without ending, what a reader should know, and its SVG."""

    name: str
    caption: str
    svg: str

    @property
    def uri(self) -> str:
        """The SVG as a data URI: within it no identifier can meet that of another figure."""
        return "data:image/svg+xml;base64," + base64.b64encode(self.svg.encode()).decode()


@dataclass(frozen=True)
class Section:
    """A part of the report."""

    anchor: str
    title: str
    sheets: Sequence[Sheet] = ()
    figures: Sequence[Drawn] = ()


@dataclass(frozen=True)
class Changed:
    """A data set's drill-down."""

    dataset: str
    policy: str
    baseline: str
    questions: Sequence[Question]


@dataclass(frozen=True)
class Report:
    """Everything that stands in a report."""

    title: str
    facts: Sequence[str]
    summary: Sequence[tuple[str, list[str]]]
    cautions: Sequence[str]
    sections: Sequence[Section]
    questions: Sequence[Changed]

    @property
    def sheets(self) -> list[Sheet]:
        """All tables."""
        return [sheet for section in self.sections for sheet in section.sheets]

    @property
    def figures(self) -> list[Drawn]:
        """All figures."""
        return [drawn for section in self.sections for drawn in section.figures]


def html(report: Report) -> str:
    """The page; every text in it is escaped."""
    environment = Environment(
        loader=PackageLoader("pipeline.report"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    template = environment.get_template("report.html.j2")
    return template.render(vars(report), f1=_number, undefined=UNDEFINED)


def markdown(report: Report) -> str:
    """Summary, tables and the figures' names, as Markdown."""
    parts = [f"# {report.title}\n\n{' · '.join(report.facts)}\n\n## Summary\n\n"]
    parts.append(words.paragraphs(report.summary))
    parts.append("".join(f"- {sentence}\n" for sentence in report.cautions))
    for section in report.sections:
        parts.append(f"\n## {section.title}\n")
        for sheet in section.sheets:
            parts.append(f"\n### {sheet.title}\n\n{sheet.note}\n\n{as_markdown(sheet.texts())}")
        for drawn in section.figures:
            parts.append(f"\n![{drawn.caption}](figures/{drawn.name}.svg)\n")
    return "".join(parts)


def _number(value: Any) -> str:
    return UNDEFINED if value is None else f"{value:.3f}"
