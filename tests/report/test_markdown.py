"""Tests of pipeline.report.markdown: the page's words, each heading once, and nothing obeyed."""

import pytest

from pipeline.report.html import Report
from pipeline.report.markdown import markdown
from tests.report.runs import MARKUP, TITLE


@pytest.fixture(scope="module")
def text(report: Report) -> str:
    """It as Markdown."""
    return markdown(report)


def test_no_section_repeats_its_heading_and_the_answer_stands_first(text: str) -> None:
    heads = [line for line in text.splitlines() if line.startswith("#")]
    assert heads[:3] == [
        f"# {TITLE}",
        "## Which way of choosing evidence is best here?",
        "## Summary",
    ]
    titles = [head.lstrip("# ") for head in heads if not head.startswith("####")]
    sections = [title for title in titles if title not in ("plain", "pool")]
    assert len(sections) == len(set(sections))


def test_the_drill_down_has_every_question_with_its_passages_and_answers(
    report: Report, text: str
) -> None:
    asked = [line for line in text.splitlines() if line.startswith("#### ")]
    assert len(asked) == sum(len(changed.questions) for changed in report.questions) > 0
    for changed in report.questions:
        assert changed.note in text
        for question in changed.questions:
            assert f"\n{question.question_id} · F1 " in text
            for passage in question.passages:
                assert f"| {passage.rank} | {passage.title}: " in text


def test_texts_of_the_data_are_no_markup(text: str) -> None:
    assert MARKUP not in text and "<script>" not in text and "<b>" not in text
    assert "#### Who wrote &lt;script&gt;alert('x')&lt;/script&gt; &amp; \"why\"?" in text
