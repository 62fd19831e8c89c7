"""Our own candidates.jsonl: {id | question_id, candidates | passages: [{id, score?, type?,
answer?}]}, the passages of each question by id.

`type` says what a passage is to its question ("correct", "misinfo", "noise") and `answer` what
answer it supports; they become judgements.
"""

from collections.abc import Iterator

from pipeline.readers import fields
from pipeline.readers.fields import Value
from pipeline.readers.lines import Row, checked, lines, of_json, refuse


def candidates(path: str) -> Iterator[Row]:
    """Rows {question_id, candidates}, in the file's order; ids are unique in both."""
    return checked(lines(path), of_json(_list), "question_id", refuse)


def _list(value: Value) -> Row:
    key = "candidates" if "candidates" in value else "passages"
    found = [fields.candidate(entry, "id") for entry in fields.objects(value, key)]
    return {
        "question_id": fields.identifier(value, "id", "question_id"),
        "candidates": fields.distinct(found, key),
    }
