"""Hugging Face data sets by name, through the optional package `datasets`.

A name is hf://organisation/name/split or hf://organisation/name/configuration/split. What was
read is known by a hash of its rows, since the hub's revision says nothing about a local folder.
"""

import hashlib
import json
from collections.abc import Iterator
from typing import Any

from pipeline.config.run import HUB
from pipeline.readers.lines import InputError


def rows(path: str) -> Iterator[dict[str, Any]]:
    """The rows as objects. InputError without the package, the network or the data set."""
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
    return iter(found)


def digest(path: str) -> tuple[int, str]:
    """(size in bytes, SHA-256) of the rows as JSON Lines."""
    whole, size = hashlib.sha256(), 0
    for row in rows(path):
        line = json.dumps(row, ensure_ascii=False, default=str).encode() + b"\n"
        whole.update(line)
        size += len(line)
    return size, whole.hexdigest()
