"""ALCE: [{question, docs: [{title, text}], qa_pairs | answers | claims}], as one JSON array or as
JSON Lines.

Golden answers are the short answers of all `qa_pairs` (ASQA), or else `answers`, a list of texts
or of lists of aliases (QAMPARI), each text once, in the file's order. `claims` (ELI5) give none:
they are sentences that an answer should entail, not answers to be matched. All three, and the
long `answer`, stay in the metadata, where the task's metrics find them. A document without an id is
known by a hash of its contents.
"""

from collections.abc import Iterator
from typing import Any

from pipeline.readers import fields, json_items
from pipeline.readers.fields import Value
from pipeline.readers.lines import OnBad, Row, checked, of_json, refuse

IDS = ("id", "sample_id", "question_id")
_KEPT = ("qa_pairs", "answers", "claims", "answer")


def questions(path: str, on_bad: OnBad = refuse) -> Iterator[Row]:
    """Rows of the questions with `candidates`, which carry their contents."""
    return checked(json_items.rows(path), of_json(_named), "question_id", on_bad)


def _named(value: Value) -> Row:
    """The row of an entry; a ValueError names the entry's id where it has one."""
    try:
        return _question(value)
    except ValueError as error:
        key = next((key for key in IDS if key in value), None)
        known = "" if key is None else f"{key} {value[key]!r}: "
        raise ValueError(f"{known}{error}") from None


def _question(value: Value) -> Row:
    documents = [_document(entry) for entry in fields.objects(value, "docs")]
    claims(value)
    return {
        **fields.known_id(value, *IDS),
        "question": fields.text(value, "question"),
        "golden_answers": _golds(value),
        "metadata": fields.metadata(value) | {key: value[key] for key in _KEPT if key in value},
        "candidates": fields.distinct(documents, "docs"),
    }


def _document(value: dict[str, Any]) -> Row:
    contents = fields.contents_of(value)
    known = value if "id" in value else {**value, "id": fields.content_id(contents)}
    return fields.candidate(known, "id", contents=contents)


def readings(value: Value) -> list[list[str]]:
    """ASQA: the short answers of each of `qa_pairs`; none where that is absent or null."""
    if value.get("qa_pairs") is None:
        return []
    return [fields.texts(pair, "short_answers") for pair in fields.objects(value, "qa_pairs")]


def answer_sets(value: Value) -> list[list[str]]:
    """QAMPARI: the aliases of each of `answers`, of which one text alone is one."""
    groups = value.get("answers") or []
    if not isinstance(groups, list):
        raise ValueError(f"answers must be a list, got {groups!r}")
    aliases = [group if isinstance(group, list) else [group] for group in groups]
    return [fields.texts({"answers": group}, "answers") for group in aliases]


def claims(value: Value) -> list[str]:
    """ELI5: the sentences of `claims`, each with something to say."""
    if value.get("claims") is None:
        return []
    found = fields.texts(value, "claims")
    if not all(claim.strip() for claim in found):
        raise ValueError(f"claims must be texts that are not empty, got {found!r}")
    return found


def _golds(value: Value) -> list[str]:
    groups = readings(value) if value.get("qa_pairs") is not None else answer_sets(value)
    return list(dict.fromkeys(gold for group in groups for gold in group))
