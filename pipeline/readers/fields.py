"""The values of an entry, each checked as it is taken; ValueError with the reason."""

import hashlib
import math
from collections.abc import Mapping, Sequence
from typing import Any

Value = Mapping[str, Any]


def text(value: Value, key: str) -> str:
    """A text that is not empty."""
    found = value.get(key)
    if not isinstance(found, str) or not found.strip():
        raise ValueError(f"{key} must be a text that is not empty, got {found!r}")
    return found


def optional_text(value: Value, key: str) -> str | None:
    """A text, or None where it is absent or null."""
    found = value.get(key)
    if found is not None and not isinstance(found, str):
        raise ValueError(f"{key} must be a text, got {found!r}")
    return found


def identifier(value: Value, *keys: str) -> str:
    """The first of the keys that is there, as a text; whole numbers are accepted."""
    found = next((value[key] for key in keys if key in value), None)
    if isinstance(found, bool) or not isinstance(found, (str, int)) or not str(found).strip():
        raise ValueError(f"{keys[0]} must be a text or a number, got {found!r}")
    return str(found)


def known_id(value: Value, *keys: str) -> dict[str, str]:
    """{question_id} by the first of the keys that is there; {} where none is."""
    return {"question_id": identifier(value, *keys)} if any(k in value for k in keys) else {}


def texts(value: Value, key: str) -> list[str]:
    """A list of texts; the empty list where it is absent (a question log)."""
    found = value.get(key, [])
    if not isinstance(found, list) or not all(isinstance(entry, str) for entry in found):
        raise ValueError(f"{key} must be a list of texts, got {found!r}")
    return found


def objects(value: Value, key: str) -> list[dict[str, Any]]:
    """A list of objects."""
    found = value.get(key)
    if not isinstance(found, list) or not all(isinstance(entry, dict) for entry in found):
        raise ValueError(f"{key} must be a list of objects, got {found!r}")
    return found


def metadata(value: Value) -> dict[str, Any]:
    """The object `metadata`, empty where it is absent or null."""
    found = value.get("metadata") or {}
    if not isinstance(found, dict):
        raise ValueError(f"metadata must be an object, got {found!r}")
    return found


def candidate(value: Value, *ids: str, contents: str | None = None) -> dict[str, Any]:
    """{passage_id, score, label, answer, contents} of an entry of a list of passages.

    ids: the keys that may hold its id. `contents` None: the corpus holds it.
    """
    passage_id = identifier(value, *ids)
    return {
        "passage_id": passage_id,
        "score": _score(value.get("score"), passage_id),
        "label": optional_text(value, "type"),
        "answer": optional_text(value, "answer"),
        "contents": contents,
    }


def _score(found: Any, passage_id: str) -> float | None:
    """A finite number or None; DPR writes numbers as texts."""
    if found is None:
        return None
    try:
        number = math.nan if isinstance(found, (bool, list, dict)) else float(found)
    except (ValueError, OverflowError):
        number = math.nan
    if not math.isfinite(number):
        raise ValueError(f"score of {passage_id!r} must be a number, got {found!r}")
    return number


def distinct(passages: Sequence[dict[str, Any]], key: str) -> list[dict[str, Any]]:
    """The passages of a list; ValueError where one stands twice."""
    seen: set[str] = set()
    for entry in passages:
        if entry["passage_id"] in seen:
            raise ValueError(f"passage {entry['passage_id']!r} stands twice in {key}")
        seen.add(entry["passage_id"])
    return list(passages)


def contents_of(value: Value) -> str:
    """FlashRAG's one text from `contents`, or from `text` with an optional `title`.

    A `text` keeps its first line: without a `title` the title is empty.
    """
    if value.get("contents") is not None:
        return _with_text(text(value, "contents"), "contents")
    return joined(optional_text(value, "title") or "", text(value, "text"))


def joined(title: str, body: str) -> str:
    """A title and a text as `contents`, so that taking them apart gives them back.

    The title goes on the first line, which stays empty for an empty one; one that stands in
    double quotes gets a second pair, since one pair is taken off when contents are split.
    """
    line = " ".join(title.split())
    quoted = len(line) >= 2 and line[0] == line[-1] == '"'
    return (f'"{line}"' if quoted else line) + "\n" + body


def content_id(contents: str) -> str:
    """An id for a passage that has none: equal passages share it."""
    return hashlib.sha256(contents.encode()).hexdigest()[:16]


def _with_text(contents: str, key: str) -> str:
    _, newline, rest = contents.partition("\n")
    if newline and not rest.strip():
        raise ValueError(f"{key} must hold a text below the title's line, got {contents!r}")
    return contents
