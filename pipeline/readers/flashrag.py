"""FlashRAG: questions {id, question, golden_answers, metadata}, corpora {id, contents}, and the
retrieval cache {question: [{id, contents, score}]}.

`contents` is the title, often in double quotes, on the first line, and the text below it; a
corpus may have `text` instead. `golden_answers` may be absent (a question log).
"""

from collections.abc import Iterator

from pipeline.readers import fields, json_items
from pipeline.readers.fields import Value
from pipeline.readers.lines import OnBad, Row, checked, lines, of_json, refuse


def questions(path: str, on_bad: OnBad = refuse) -> Iterator[Row]:
    """Rows {question_id, question, golden_answers, metadata: dict}; ids are unique."""
    return checked(lines(path), of_json(question), "question_id", on_bad)


def cache(path: str) -> Iterator[Row]:
    """Rows {question, candidates} with the passages' contents; questions are unique."""
    return checked(json_items.members(path), of_json(_cached), "question", refuse)


def question(value: Value) -> Row:
    """The row of one question."""
    return {
        "question_id": fields.identifier(value, "id"),
        "question": fields.text(value, "question"),
        "golden_answers": fields.texts(value, "golden_answers"),
        "metadata": fields.metadata(value),
    }


def passage(value: Value) -> Row:
    """The row {passage_id, contents} of one passage."""
    return {"passage_id": fields.identifier(value, "id"), "contents": fields.contents_of(value)}


def _cached(value: Value) -> Row:
    if len(value) != 1:
        raise ValueError("expected a question and its list of passages")
    (asked,) = value
    passages = fields.objects(value, asked)
    found = [fields.candidate(p, "id", contents=fields.contents_of(p)) for p in passages]
    return {"question": asked, "candidates": fields.distinct(found, "the list")}
