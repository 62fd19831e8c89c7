"""Hugging Face data sets by name, through the optional package `datasets`.

A name is hf://organisation/name/split or hf://organisation/name/configuration/split. What was
read is known by a hash of its rows, since the hub's revision says nothing about a local folder.
Only COLUMNS are read: others, such as images, need neither be decoded nor have a text.
"""

import hashlib
import json
from collections.abc import Iterator
from typing import Any

from pipeline.config.run import HUB
from pipeline.readers.lines import InputError

COLUMNS = ("question", "question_id", "id", "golden_answers", "metadata", "judgements")


def rows(path: str) -> Iterator[dict[str, Any]]:
    """The rows as objects of those of COLUMNS that are there.

    InputError without the package, the network, the data set or a column `question`.
    """
    *name, split = path.removeprefix(HUB).split("/")
    if len(name) not in (2, 3):
        raise InputError(f"{path}: expected {HUB}organisation/name[/configuration]/split")
    try:
        from datasets import load_dataset
    except ImportError:
        raise InputError(
            f"{path}: needs the package datasets: pip install 'winnow-rag[huggingface]'"
        ) from None
    try:
        found = load_dataset("/".join(name[:2]), *name[2:], split=split)
    except (OSError, ValueError) as error:
        reason = str(error).partition("\n")[0]
        raise InputError(f"{path}: cannot be loaded: {reason}") from None
    names = found.column_names
    if "question" not in names:
        raise InputError(f"{path}: has no column 'question', only {', '.join(names)}")
    return iter(found.select_columns([name for name in COLUMNS if name in names]))


def digest(path: str) -> tuple[int, str]:
    """(size in bytes, SHA-256) of `rows` as JSON Lines; InputError on what JSON cannot hold."""
    whole, size = hashlib.sha256(), 0
    for number, row in enumerate(rows(path)):
        try:
            line = json.dumps(row, ensure_ascii=False).encode() + b"\n"
        except TypeError as error:
            raise InputError(f"{path}:{number + 1}: entry {number + 1}: {error}") from None
        whole.update(line)
        size += len(line)
    return size, whole.hexdigest()
