"""DPR's retriever output [{question, answers, ctxs: [{id, title, text, score}]}], as one JSON
array or as JSON Lines, and its corpus psgs_w100.tsv (id, text, title).

An entry may have an id (`id`, `question_id`, `q_id`); without one its number from 0 is its id.
`has_answer` is left out: it says that a string occurs in a text, not that anybody judged it.
"""

import csv
from collections.abc import Iterator

from pipeline.readers import fields, flashrag, json_items
from pipeline.readers.fields import Value
from pipeline.readers.lines import (
    InputError,
    OnBad,
    Place,
    Row,
    checked,
    decoded,
    lines,
    of_json,
    refuse,
)

IDS = ("id", "question_id", "q_id")
_HEADER = ["id", "text", "title"]


def questions(path: str, on_bad: OnBad = refuse) -> Iterator[Row]:
    """Rows of the questions with `candidates`, which carry their contents."""
    return checked(json_items.rows(path), of_json(_question), "question_id", on_bad)


def passages(path: str) -> Iterator[Row]:
    """Rows {passage_id, contents} of a tab-separated corpus; InputError without its header."""
    found = lines(path)
    place, header = next(found, (Place(path, 1), b""))
    try:
        names = _cells(header)
    except ValueError as error:
        raise InputError(f"{path}:{place.line}: {error}") from None
    if names != _HEADER:
        raise InputError(f"{path}:{place.line}: expected the header id, text, title (tabs between)")
    return checked(found, _passage, "passage_id", refuse)


def _question(value: Value) -> Row:
    found = [
        fields.candidate(ctx, "id", contents=fields.contents_of(ctx))
        for ctx in fields.objects(value, "ctxs")
    ]
    return {
        **fields.known_id(value, *IDS),
        "question": fields.text(value, "question"),
        "golden_answers": fields.texts(value, "answers"),
        "metadata": fields.metadata(value),
        "candidates": fields.distinct(found, "ctxs"),
    }


def _passage(raw: bytes) -> Row:
    cells = _cells(raw)
    if len(cells) != len(_HEADER):
        raise ValueError(f"expected id, text, title with tabs between, got {len(cells)} columns")
    return flashrag.passage(dict(zip(_HEADER, cells, strict=True)))


def _cells(raw: bytes) -> list[str]:
    line = decoded(raw).rstrip("\r\n")
    try:
        return next(csv.reader([line], delimiter="\t", strict=True), [])
    except csv.Error as error:
        raise ValueError(f"not tab-separated: {error}") from None
