"""A text as a file, by its path or URI."""

import json
from collections.abc import Iterable, Mapping
from typing import Any

from pipeline.paths import absolute
from pipeline.runs.storage import Storage


def write_text(path: str, text: str) -> None:
    """Writes UTF-8, replacing an older file."""
    storage, name = _place(path)
    storage.write_bytes(name, text.encode())


def write_lines(path: str, rows: Iterable[Mapping[str, Any]]) -> None:
    """Writes rows of JSON-able values as JSON Lines; ValueError for a number that is none."""
    lines = (json.dumps(row, ensure_ascii=False, allow_nan=False) for row in rows)
    write_text(path, "".join(f"{line}\n" for line in lines))


def remove(path: str) -> None:
    """Removes a file if it is there."""
    storage, name = _place(path)
    storage.delete(name)


def _place(path: str) -> tuple[Storage, str]:
    folder, _, name = absolute(path).rpartition("/")
    if not name:
        raise ValueError(f"{path!r} names no file")
    return Storage(folder or "/"), name
