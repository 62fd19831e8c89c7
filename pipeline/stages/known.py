"""Known: where plans of a family stored the values that a shard wants, by key.

Before any worker starts, the driver reads the keys of all parts of a stage's siblings, the newest
sibling first, into one table of hashes and part numbers: 12 bytes a key, at most LIMIT keys. It
lies beside the stage's own parts while the run lasts, under a name that no other driver uses. A
worker looks up what a shard wants and reads only the parts that hold some of it, from whatever
shard they are. Stored values only spare work: a damaged part is logged and passed over, and what it
held is looked for in older ones. A store that refuses to be read fails the run.
"""

import logging
import re
import uuid
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial

import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from pipeline.runs import layout, lease
from pipeline.runs.storage import Damaged, Storage
from pipeline.stages.stage import Family, Stage

LIMIT = 1 << 24
"""About so many keys a map may hold: 200 MB in a worker, 1 GB in the driver that makes it."""
SIBLINGS = "siblings.json"
"""Beside a stage's parts: the siblings that were mapped while they were made."""
_NAME = re.compile(r"known-[0-9a-f]{32}\.parquet")
_HEX_DIGITS = 15  # of a key's hash: 60 bits fit an int64; equal ones are told apart by the key
_BATCH = 64  # parts read before the limit is looked at again
_AT_ONCE = 8  # parts that a worker decodes for a shard: they bound its memory
_LOG = logging.getLogger(__name__)

Hashes = NDArray[np.int64]


@dataclass(frozen=True)
class Map:
    """A map as its driver knows it: where it lies, and the siblings' parts that it lacks since
    they are damaged."""

    path: str
    damaged: tuple[str, ...]


@contextmanager
def mapped(storage: Storage, families: Mapping[str, Family]) -> Iterator[dict[str, Map]]:
    """While the block lasts, each folder of a family's stage holds the map of its siblings; gives
    the maps by folder, none where there is nothing to take up.

    The caller holds the folders' leases; what is deleted in the end is its own all the same, since
    a lease may be lost meanwhile.
    """
    name = f"known-{uuid.uuid4().hex}.parquet"
    paths = {folder: f"{folder}/{name}" for folder in families}
    try:
        found = {folder: _write(storage, path, families[folder]) for folder, path in paths.items()}
        yield {folder: one for folder, one in found.items() if one is not None}
    finally:
        for path in paths.values():
            _remove(storage, path)


def sweep(storage: Storage, folders: Iterable[str]) -> None:
    """Removes maps that killed drivers left in these folders and all their siblings: those where no
    living driver is at work. For a caller that has not yet made its own."""
    for folder in folders:
        for each in (folder, *layout.siblings(storage, folder)):
            with suppress(NotADirectoryError):  # a file that is not ours
                maps = [name for name in storage.names(each) if _NAME.fullmatch(name)]
                if maps and lease.holder(storage, each) is None:
                    for name in maps:
                        _remove(storage, f"{each}/{name}")


def siblings(storage: Storage, folder: str) -> list[str]:
    """The siblings of which a folder's parts may hold values, by all runs that made them."""
    path = f"{folder}/{SIBLINGS}"
    return list(storage.read_json(path)) if storage.exists(path) else []


@dataclass(frozen=True)
class Known:
    """A map as a worker has it: sorted hashes, the part of each (newest first among equal ones),
    and the parts' paths."""

    hashes: Hashes
    part_of: NDArray[np.uint32]
    paths: tuple[str, ...]

    def holding(
        self, keys: Iterable[str], *, grows: bool, tried: Collection[int] = ()
    ) -> list[int]:
        """The parts that hold some of the keys, those `tried` left out: of each key the newest,
        all where it `grows`."""
        wanted = np.unique(hashes_of(pa.array(keys, pa.string())))
        first = np.searchsorted(self.hashes, wanted, "left")
        last = np.searchsorted(self.hashes, wanted, "right")
        spans = [self.part_of[i:j] for i, j in zip(first, last, strict=True) if j > i]
        if tried:
            spans = [span[~np.isin(span, list(tried))] for span in spans]
        spans = spans if grows else [span[:1] for span in spans]
        return np.unique(np.concatenate(spans)).tolist() if spans else []


def read(storage: Storage, path: str) -> Known:
    """A map; FileNotFoundError where it is gone, and another driver has taken the folder over."""
    table, notes = storage.read_table(path), storage.read_notes(path)
    hashes, parts = (table[name].to_numpy() for name in ("hash", "part"))
    return Known(hashes, parts, tuple(notes["parts"]))


def take(storage: Storage, known: Known, stage: Stage, rows: pa.Table) -> list[pa.Table]:
    """What siblings stored of what the stage wants for some rows, as tables of its columns.

    A key that is not in the part that should hold it (gone or damaged since, or the hash is another
    key's) is looked for in the next older one that may.
    """
    family = stage.family
    if family is None:
        raise ValueError(f"stage {stage.name!r} has no family")
    found: list[pa.Table] = []
    tried: list[int] = []
    wanted = pa.array(dict.fromkeys(family.wanted(rows)), pa.string())
    with ThreadPoolExecutor(max_workers=_AT_ONCE) as pool:
        while parts := known.holding(wanted.to_pylist(), grows=family.grows, tried=tried):
            tried += parts
            look = partial(_hits, storage, stage=stage, family=family, wanted=wanted)
            keyed = list(pool.map(look, (known.paths[part] for part in parts)))
            found += [table for table, _ in keyed if len(table)]
            there = pa.concat_arrays([keys for _, keys in keyed])
            wanted = wanted.filter(pc.invert(pc.is_in(wanted, there)))
    return found


def _hits(
    storage: Storage, path: str, *, stage: Stage, family: Family, wanted: pa.Array
) -> tuple[pa.Table, pa.Array]:
    """The rows of a part that hold some of the wanted keys, and those keys; none of a part that is
    gone or damaged."""
    try:
        part = storage.read_table(path, stage.adds.names)
    except FileNotFoundError:  # just removed
        part = stage.adds.empty_table()
    except Damaged as error:
        _pass_over(storage, path, error)
        part = stage.adds.empty_table()
    keys, place = leaves(part, family.stored)
    hit = pc.is_in(keys, wanted)
    rows = np.unique(place[hit.to_numpy(zero_copy_only=False)])
    return part.take(pa.array(rows)), keys.filter(hit)


def leaves(table: pa.Table, path: str) -> tuple[pa.Array, NDArray[np.int64]]:
    """The strings at a Parquet path of a table, without nulls, and the row of each."""
    name, *inner = [name for name in path.split(".") if name not in ("list", "element")]
    column = table[name].combine_chunks()
    place = np.arange(len(column))
    while not pa.types.is_string(column.type):
        if pa.types.is_list(column.type):
            place = place[pc.list_parent_indices(column).to_numpy()]
            column = pc.list_flatten(column)
        else:
            column = pc.struct_field(column, inner.pop(0))
    there = column.is_valid()
    return column.filter(there), place[there.to_numpy(zero_copy_only=False)]


def hashes_of(keys: pa.Array) -> Hashes:
    """The first 60 bits of each key's hash."""
    texts = pl.Series(keys, dtype=pl.String).str.head(_HEX_DIGITS)
    return texts.str.to_integer(base=16, dtype=pl.Int64).to_numpy()


def _write(storage: Storage, path: str, family: Family) -> Map | None:
    """A folder's map, in place of those that killed drivers left; None where there is nothing to
    map."""
    folder = path.rpartition("/")[0]
    for name in filter(_NAME.fullmatch, storage.names(folder)):
        storage.delete(f"{folder}/{name}")
    parts = _newest_first(storage, folder)
    if not parts:
        return None
    hashes, part_of, damaged = _gather(storage, parts, family)
    order = np.argsort(hashes, kind="stable")
    table = pa.table({"hash": hashes[order], "part": part_of[order]})
    others = {part.rpartition("/")[0] for part in parts}
    storage.write_json(f"{folder}/{SIBLINGS}", sorted({*others, *siblings(storage, folder)}))
    storage.write_table(path, table, notes={"parts": parts})
    return Map(path, tuple(damaged))


def _newest_first(storage: Storage, folder: str) -> list[str]:
    """All parts of a folder's siblings; first those of the sibling to which a part was written
    last."""
    parts: dict[str, list[str]] = {}
    times: dict[str, float] = {}
    for sibling in layout.siblings(storage, folder):
        with suppress(NotADirectoryError):  # a file that is not ours
            found = {n: t for n, t in storage.modified(sibling).items() if layout.is_part(n)}
            parts[sibling] = [f"{sibling}/{name}" for name in sorted(found)]
            times[sibling] = max(found.values(), default=0)
    newest = sorted(times, key=lambda sibling: times[sibling], reverse=True)
    return [part for sibling in newest for part in parts[sibling]]


def _gather(
    storage: Storage, parts: Sequence[str], family: Family
) -> tuple[Hashes, NDArray[np.uint32], list[str]]:
    """The hashes of the parts' keys, the number of the part of each, and the damaged parts."""
    hashes: list[Hashes] = [np.empty(0, np.int64)]
    part_of = [np.empty(0, np.uint32)]
    damaged: list[str] = []
    held = 0
    with ThreadPoolExecutor(max_workers=16) as pool:
        for start in range(0, len(parts), _BATCH):
            batch = parts[start : start + _BATCH]
            read = pool.map(lambda path: _keys(storage, path, family.stored), batch)
            for number, found in enumerate(read, start):
                if found is None:
                    damaged.append(parts[number])
                    continue
                hashes.append(found)
                part_of.append(np.full(len(found), number, np.uint32))
                held += len(found)
            left = len(parts) - start - len(batch)
            if held >= LIMIT and left:
                _LOG.warning("%d keys are enough; not looked at: %d older parts", held, left)
                break
    return np.concatenate(hashes), np.concatenate(part_of), damaged


def _keys(storage: Storage, path: str, stored: str) -> Hashes | None:
    """The hashes of a part's keys, each once; None where it is damaged."""
    try:
        return np.unique(hashes_of(leaves(storage.read_table(path, [stored]), stored)[0]))
    except FileNotFoundError:  # just removed
        return np.empty(0, np.int64)
    except Damaged as error:
        _pass_over(storage, path, error)
        return None


def _pass_over(storage: Storage, path: str, error: Damaged) -> None:
    """Without the advice that `error` gives to those who own the part."""
    _LOG.warning("%s: damaged, passed over: %s", storage.uri(path), error.__cause__)


def _remove(storage: Storage, path: str) -> None:
    """Deletes a map; a store that refuses does not hide how the run ended, and the next one
    sweeps."""
    try:
        storage.delete(path)
    except OSError as error:
        _LOG.warning("%s: left behind: %s", storage.uri(path), error)
