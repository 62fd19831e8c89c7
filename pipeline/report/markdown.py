"""The report as Markdown: the same sentences, tables and questions, figures by their files."""

import html as entities
from collections.abc import Iterator, Sequence

import polars as pl

from pipeline.report.drilldown import Question
from pipeline.report.html import Changed, Report, Section
from pipeline.report.sheets import UNDEFINED, Sheet
from pipeline.writers import as_markdown

_MARKS = {ord(mark): f"&#{ord(mark)};" for mark in "*_`[]#~$"}
"""What Markdown would obey; a pipe is escaped where the table is written."""


def markdown(report: Report) -> str:
    """The page as Markdown; texts of questions, passages and answers are escaped."""
    lead = report.lead
    parts = [f"# {report.title}\n\n{' · '.join(report.facts)}\n"]
    parts.append(f"\n## {lead.title}\n\n**{lead.dataset}**\n\n{_list(lead.sentences)}")
    if lead.sheet is not None:
        parts.append(f"\n{as_markdown(lead.sheet.texts())}\n{lead.sheet.note}\n")
    parts.append("\n## Summary\n")
    parts.extend(f"\n### {dataset}\n\n{_list(lines)}" for dataset, lines in report.summary)
    parts.append(f"\n### How to read all of this\n\n{_list(report.cautions)}")
    for section in report.sections:
        parts.append(f"\n## {section.title}\n")
        parts.extend(_table(section, sheet) for sheet in section.sheets)
        parts.extend(
            f"\n![{drawn.caption}](figures/{drawn.name}.svg)\n" for drawn in section.figures
        )
    if report.questions:
        parts.append("\n## Questions that changed most\n")
        parts.extend(part for changed in report.questions for part in _changed(changed))
    return "".join(parts)


def _table(section: Section, sheet: Sheet) -> str:
    head = f"\n### {sheet.title}\n" if section.heads(sheet) else ""
    return f"{head}\n{sheet.note}\n\n{as_markdown(sheet.texts())}"


def _changed(changed: Changed) -> Iterator[str]:
    yield f"\n### {changed.dataset}\n\n{changed.note}\n"
    if not changed.questions:
        yield "\nNo answer changed.\n"
    for question in changed.questions:
        yield from _question(question)


def _question(question: Question) -> Iterator[str]:
    policy, baseline = (_number(value) for value in question.f1)
    yield (
        f"\n#### {_text(question.question)}\n\n{_text(question.question_id)} · F1 {policy} against "
        f"{baseline} · golden answers: {_text('; '.join(question.golds)) or 'none'}\n\n"
    )
    yield as_markdown(_passages(question))
    yield f"\n{as_markdown(_answers(question))}"


def _passages(question: Question) -> pl.DataFrame:
    names = list(question.passages[0].signals) if question.passages else []
    rows = [
        [
            str(p.rank),
            _text(f"{p.title}: {p.text}"),
            " ".join(
                [_text(p.label or ""), *([] if p.relevance is None else [f"grade {p.relevance}"])]
            ).strip(),
            *(_number(value) for value in p.signals.values()),
        ]
        for p in question.passages
    ]
    return _frame(["rank", "passage", "label", *names], rows)


def _answers(question: Question) -> pl.DataFrame:
    rows = [
        [
            _text(answer.text),
            _number(answer.f1),
            _text("; ".join(answer.sentences)) or ", ".join(map(str, answer.evidence)) or "none",
            _text("; ".join(answer.arms)),
        ]
        for answer in question.answers
    ]
    return _frame(["answer", "F1", "passages shown", "arms"], rows)


def _frame(names: list[str], rows: list[list[str]]) -> pl.DataFrame:
    return pl.DataFrame(rows, schema=dict.fromkeys(names, pl.String), orient="row")


def _list(sentences: Sequence[str]) -> str:
    return "".join(f"- {sentence}\n" for sentence in sentences)


def _text(text: str) -> str:
    """A text in one line that no reader of Markdown takes for markup."""
    return " ".join(entities.escape(text, quote=False).translate(_MARKS).split())


def _number(value: float | None) -> str:
    return UNDEFINED if value is None else f"{value:.3f}"
