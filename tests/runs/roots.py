"""Roots written by hand: runs with their manifests, parts, letters and leases."""

import json
import os
from pathlib import Path
from typing import Any

import pyarrow as pa

from pipeline.runs import layout, lease
from pipeline.runs.storage import Storage

PROBE = "stages/probe-00000000000000aa"
SOURCE = "stages/source-00000000000000bb"
ANSWERS = "stages/answer-00000000000000cc"
"""The directory of a family."""


def answers(number: int) -> str:
    """A directory of the family."""
    return f"{ANSWERS}/{number:016x}"


def write_run(
    storage: Storage, name: str, *, number: int = 1, rows: int = 4, shards: int = 2, success: bool
) -> str:
    """A run's manifest over PROBE and its answers; its folder."""
    folder = f"runs/{name}-{number:08x}"
    source = {"folder": SOURCE, "rows": rows, "shards": shards, "dead": 0}
    stages = [
        {"stage": "probe", "folder": PROBE},
        {"stage": "select", "folder": None},
        {"stage": "answer", "folder": answers(number)},
    ]
    storage.write_json(f"{folder}/manifest.json", {"source": source, "stages": stages})
    if success:
        storage.write_bytes(f"{folder}/_SUCCESS", b"")
    return folder


def write_part(storage: Storage, folder: str, shard: int, rows: int = 2, **notes: float) -> None:
    """A part of so many rows."""
    table = pa.table({"question_id": [f"q{shard}-{i}" for i in range(rows)]})
    storage.write_table(layout.part(folder, shard), table, notes=notes)


def write_letters(storage: Storage, run: str, shard: int, **reasons: str) -> None:
    """Dead letters by question, all of the probe."""
    table = pa.table(
        {
            "question_id": list(reasons),
            "stage": ["probe"] * len(reasons),
            "reason": list(reasons.values()),
        }
    )
    storage.write_table(layout.part(f"{run}/dead_letters", shard), table)


def hold(storage: Storage, folder: str, *, pid: int | None = None) -> None:
    """A lease of this process, or of one that is no more."""
    storage.delete(f"{folder}/{lease.NAME}")
    with lease.hold(storage, [folder]):
        entry: dict[str, Any] = storage.read_json(f"{folder}/{lease.NAME}")
    if pid is not None:
        entry |= {"pid": pid, "process_start": "1"}
    storage.write_json(f"{folder}/{lease.NAME}", entry)


def set_time(storage: Storage, path: str, seconds: float) -> None:
    """A file's time of writing."""
    os.utime(Path(storage.root) / path, (seconds, seconds))


def texts(root: Path) -> dict[str, bytes]:
    """Every file below a folder."""
    return {str(p.relative_to(root)): p.read_bytes() for p in root.rglob("*") if p.is_file()}


def damage(storage: Storage, path: str, **changes: Any) -> None:
    """A manifest with keys replaced; a value None takes the key away."""
    read = {**storage.read_json(path), **changes}
    kept = {key: value for key, value in read.items() if value is not None}
    storage.write_bytes(path, json.dumps(kept).encode())
