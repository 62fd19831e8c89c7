"""Fingerprints: a short hash of everything an output depends on, and of nothing else."""

import hashlib
import json
from typing import Any

from pipeline.paths import locate


def digest(value: Any) -> str:
    """16 hex digits of the SHA-256 of a JSON-able value; key order does not matter."""
    text = json.dumps(value, sort_keys=True, ensure_ascii=False, allow_nan=True)
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def file_digest(path: str) -> tuple[int, str]:
    """(size in bytes, SHA-256) of a local file or URI; FileNotFoundError when it is absent."""
    filesystem, name = locate(path)
    whole, size = hashlib.sha256(), 0
    with filesystem.open_input_stream(name, compression=None) as stream:
        while chunk := stream.read(1 << 20):
            whole.update(chunk)
            size += len(chunk)
    return size, whole.hexdigest()
