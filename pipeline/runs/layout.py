"""Where things are under a root, and which shards of a directory are done.

    <root>/stages/<stage>-<fingerprint>/part-000000.parquet ...
    <root>/stages/<stage>-<family>/<fingerprint>/part-*.parquet, of stages with keyed values, of all
        plans in which equal keys mean equal values
    <root>/runs/<name>-<fingerprint>/manifest.json, contexts/part-*.parquet,
        dead_letters/part-*.parquet, metrics.json, _SUCCESS

A shard is done in a directory exactly when its part is there.
"""

import re
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

from pipeline.runs.storage import Storage

CONTEXTS, DEAD_LETTERS = "contexts", "dead_letters"
"""Folders of a run."""
REDRIVEN = "redriven"
"""Note of a part: how many of its rows were made or merged in after it was first written."""
_PART = re.compile(r"part-(\d{6,})\.parquet")


def stage_dir(stage: str, fingerprint: str) -> str:
    """Folder of a stage's parts."""
    return f"stages/{stage}-{fingerprint}"


def siblings(storage: Storage, folder: str) -> list[str]:
    """The other folders beside a stage's folder: those of the same family."""
    family, _, own = folder.rpartition("/")
    return [f"{family}/{name}" for name in storage.names(family) if name != own]


def run_dir(name: str, fingerprint: str) -> str:
    """Folder of a run; other settings or inputs give another folder, so nothing is mixed."""
    return f"runs/{name}-{fingerprint[:8]}"


def part(folder: str, shard: int) -> str:
    """Path of a shard's file: the same shard always has the same name."""
    return f"{folder}/{part_name(shard)}"


def part_name(shard: int) -> str:
    """Name of a shard's file in any folder of parts."""
    return f"part-{shard:06d}.parquet"


def is_part(name: str) -> bool:
    """Whether a file of that name is a shard's."""
    return _PART.fullmatch(name) is not None


def shards_done(storage: Storage, folder: str) -> set[int]:
    """The shards whose parts are there."""
    matches = (_PART.fullmatch(name) for name in storage.names(folder))
    return {int(match[1]) for match in matches if match}


def damaged_parts(storage: Storage, folders: Sequence[str]) -> list[str]:
    """Paths of parts whose Parquet footer cannot be read: cut short or empty.

    No writer of ours leaves such a file; a full disk, another tool or a broken copy may.
    """
    paths = [part(folder, shard) for folder in folders for shard in shards_done(storage, folder)]
    with ThreadPoolExecutor(max_workers=16) as pool:
        whole = pool.map(storage.is_table, paths)
        return [path for path, ok in zip(paths, whole, strict=True) if not ok]
