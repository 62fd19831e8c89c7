"""Input files, read line by line into our columns; every error names file, line and reason.

FlashRAG questions {id, question, golden_answers, metadata} and corpora {id, contents | text};
pre-retrieved candidates {id | question_id, candidates | passages: [{id, score?}]}. Local paths
or URIs; names that end in .gz are unpacked.
"""

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from pipeline.paths import locate


class InputError(ValueError):
    """Input that cannot be used; the message is one line for the user."""


@dataclass(frozen=True)
class BadLine:
    """A line that is not what its format asks for."""

    path: str
    line: int
    reason: str

    def __str__(self) -> str:
        return f"{self.path}:{self.line}: {self.reason}"


OnBad = Callable[[BadLine], None]


def refuse(bad: BadLine) -> None:
    """The default answer to a bad line: InputError."""
    raise InputError(str(bad))


def questions(path: str, on_bad: OnBad = refuse) -> Iterator[dict[str, Any]]:
    """Rows {question_id, question, golden_answers, metadata: dict}; ids are unique.

    `golden_answers` may be absent (a question log): the empty list.
    """
    return _checked(path, _question, "question_id", on_bad)


def passages(path: str) -> Iterator[dict[str, Any]]:
    """Rows {passage_id, contents} of a corpus; ids are unique."""
    return _checked(path, _passage, "passage_id", refuse)


def candidates(path: str) -> Iterator[dict[str, Any]]:
    """Rows {question_id, candidates: [{passage_id, score or None}]}, in the file's order."""
    return _checked(path, _candidates, "question_id", refuse)


def _checked(
    path: str,
    parse: Callable[[Mapping[str, Any]], dict[str, Any]],
    key: str,
    on_bad: OnBad,
) -> Iterator[dict[str, Any]]:
    first_line: dict[str, int] = {}
    for number, raw in _lines(path):
        try:
            row = parse(_object(raw))
            if row[key] in first_line:
                raise ValueError(f"id {row[key]!r} stands already in line {first_line[row[key]]}")
        except ValueError as error:
            on_bad(BadLine(path, number, str(error)))
        else:
            first_line[row[key]] = number
            yield row


def _object(raw: bytes) -> dict[str, Any]:
    """The JSON object of a line; ValueError with the reason where it is none."""
    try:
        value = json.loads(raw.decode("utf-8"))
        if b"\\ud" in raw or b"\\uD" in raw:  # half a pair alone could not be stored as UTF-8
            json.dumps(value, ensure_ascii=False).encode("utf-8")
    except UnicodeDecodeError as error:
        raise ValueError(f"not UTF-8 at byte {error.start} of the line") from None
    except UnicodeEncodeError:
        raise ValueError("not Unicode: an escape is half a surrogate pair") from None
    except json.JSONDecodeError as error:
        raise ValueError(f"not JSON: {error.msg} at column {error.colno}") from None
    except RecursionError:
        raise ValueError("not JSON that can be read: nested too deeply") from None
    if not isinstance(value, dict):
        raise ValueError(f"expected an object, got {type(value).__name__}")
    return value


def _lines(path: str) -> Iterator[tuple[int, bytes]]:
    """(line number from 1, bytes) of every line that is not blank."""
    rest, number = b"", 0
    try:
        filesystem, name = locate(path)
        with filesystem.open_input_stream(name) as stream:  # unpacks by the name's ending
            while chunk := stream.read(1 << 20):
                *whole, rest = (rest + chunk).split(b"\n")
                for line in whole:
                    number += 1
                    if line.strip():
                        yield number, line
    except FileNotFoundError:
        raise InputError(f"{path}: no such file") from None
    except (OSError, ValueError) as error:
        raise InputError(f"{path}: cannot be read: {error}") from None
    if rest.strip():
        yield number + 1, rest


def _text(value: Mapping[str, Any], key: str) -> str:
    found = value.get(key)
    if not isinstance(found, str) or not found.strip():
        raise ValueError(f"{key} must be a text that is not empty, got {found!r}")
    return found


def _identifier(value: Mapping[str, Any], *keys: str) -> str:
    """The first of the keys that is there, as a text; numbers are accepted."""
    found = next((value[key] for key in keys if key in value), None)
    if isinstance(found, bool) or not isinstance(found, (str, int)) or not str(found).strip():
        raise ValueError(f"{keys[0]} must be a text or a number, got {found!r}")
    return str(found)


def _question(value: Mapping[str, Any]) -> dict[str, Any]:
    golds = value.get("golden_answers", [])
    if not isinstance(golds, list) or not all(isinstance(gold, str) for gold in golds):
        raise ValueError(f"golden_answers must be a list of texts, got {golds!r}")
    metadata = value.get("metadata") or {}
    if not isinstance(metadata, dict):
        raise ValueError(f"metadata must be an object, got {metadata!r}")
    return {
        "question_id": _identifier(value, "id"),
        "question": _text(value, "question"),
        "golden_answers": golds,
        "metadata": metadata,
    }


def _passage(value: Mapping[str, Any]) -> dict[str, Any]:
    key = "contents" if "contents" in value else "text"
    return {"passage_id": _identifier(value, "id"), "contents": _text(value, key)}


def _candidates(value: Mapping[str, Any]) -> dict[str, Any]:
    key = "candidates" if "candidates" in value else "passages"
    found = value.get(key)
    if not isinstance(found, list) or not all(isinstance(entry, dict) for entry in found):
        raise ValueError(f"{key} must be a list of objects, got {found!r}")
    rows = [{"passage_id": _identifier(c, "id"), "score": c.get("score")} for c in found]
    seen: set[str] = set()
    for entry in rows:
        if entry["passage_id"] in seen:
            raise ValueError(f"passage {entry['passage_id']!r} stands twice in {key}")
        seen.add(entry["passage_id"])
        score = entry["score"]
        if score is not None and (isinstance(score, bool) or not isinstance(score, (int, float))):
            raise ValueError(f"score of {entry['passage_id']!r} must be a number, got {score!r}")
    return {"question_id": _identifier(value, "id", "question_id"), "candidates": rows}
