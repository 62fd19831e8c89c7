"""The report, and its form as one HTML file that asks for nothing from outside."""

import base64
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined

from pipeline.report.drilldown import Question
from pipeline.report.sheets import UNDEFINED, Sheet


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

    def heads(self, sheet: Sheet) -> bool:
        """Whether a sheet needs a heading of its own below the section's."""
        return len(self.sheets) > 1 or sheet.title != self.title


@dataclass(frozen=True)
class Lead:
    """What a reader wants to know first, of the data set or average that it names; no sheet where
    nothing can be ranked."""

    title: str
    dataset: str
    sentences: Sequence[str]
    sheet: Sheet | None


@dataclass(frozen=True)
class Changed:
    """A data set's drill-down."""

    dataset: str
    policy: str
    baseline: str
    questions: Sequence[Question]

    @property
    def note(self) -> str:
        """Which questions these are."""
        return (
            f"The questions whose F1 differs most between {self.policy} and {self.baseline}, then "
            "those with another answer."
        )


@dataclass(frozen=True)
class Report:
    """Everything that stands in a report."""

    title: str
    facts: Sequence[str]
    lead: Lead
    summary: Sequence[tuple[str, list[str]]]
    cautions: Sequence[str]
    sections: Sequence[Section]
    questions: Sequence[Changed]

    @property
    def sheets(self) -> list[Sheet]:
        """All tables."""
        first = [] if self.lead.sheet is None else [self.lead.sheet]
        return [*first, *(sheet for section in self.sections for sheet in section.sheets)]

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


def _number(value: Any) -> str:
    return UNDEFINED if value is None else f"{value:.3f}"
