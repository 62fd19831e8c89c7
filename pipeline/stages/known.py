"""Known: where plans of a family stored the values that a shard wants, by key.

Before any worker starts, the driver reads the keys of all parts of a stage's siblings, the newest
sibling first, into one table of hashes and part numbers: 12 bytes a key, at most LIMIT keys. It
lies beside the stage's own parts while the run lasts. A worker looks up what a shard wants and
reads only the parts that hold some of it, from whatever shard they are. Stored values only spare
work: a part that cannot be read is logged, counted and passed over.
"""

import logging
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass

import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from pipeline.runs import layout
from pipeline.runs.storage import Storage
from pipeline.stages.stage import Family, Stage, shard_of

LIMIT = 1 << 24
"""About so many keys a map may hold: 200 MB in a worker, 1 GB in the driver that makes it."""
NAME = "known.parquet"
_HEX_DIGITS = 15  # of a key's hash: 60 bits fit an int64; equal ones are told apart by the key
_BATCH = 64  # parts read before the limit is looked at again
_LOG = logging.getLogger(__name__)

Hashes = NDArray[np.int64]


@contextmanager
def mapped(storage: Storage, families: Mapping[str, Family]) -> Iterator[None]:
    """While the block lasts, each folder of a family's stage holds the map of its siblings.

    The caller holds the folders' leases.
    """
    try:
        for folder, family in families.items():
            _write(storage, folder, family)
        yield
    finally:
        for folder in families:
            storage.delete(f"{folder}/{NAME}")


@dataclass(frozen=True)
class Known:
    """A map: sorted hashes, the part of each (newest first among equal ones), and the parts'
    paths. `unreadable` are parts that the map lacks."""

    hashes: Hashes
    part_of: NDArray[np.uint32]
    paths: tuple[str, ...]
    unreadable: tuple[str, ...]

    def holding(self, keys: Iterable[str], *, grows: bool) -> list[str]:
        """The parts that hold some of the keys: of each key the newest, all where it `grows`."""
        wanted = np.unique(hashes_of(pa.array(keys, pa.string())))
        first = np.searchsorted(self.hashes, wanted, "left")
        last = np.searchsorted(self.hashes, wanted, "right")
        last = last if grows else np.minimum(first + 1, last)
        spans = [self.part_of[i:j] for i, j in zip(first, last, strict=True) if j > i]
        return [self.paths[i] for i in np.unique(np.concatenate(spans))] if spans else []


def read(storage: Storage, folder: str) -> Known | None:
    """The map in a stage's folder; None where no sibling holds anything."""
    path = f"{folder}/{NAME}"
    if not storage.exists(path):
        return None
    table, notes = storage.read_table(path), storage.read_notes(path)
    hashes, parts = (table[name].to_numpy() for name in ("hash", "part"))
    return Known(hashes, parts, tuple(notes["parts"]), tuple(notes["unreadable"]))


def take(
    storage: Storage, known: Known, stage: Stage, rows: pa.Table
) -> tuple[list[pa.Table], int]:
    """What siblings stored of what the stage wants for some rows of a shard, as tables of its
    columns, and how many unreadable parts it was that were passed over.

    One that the map lacks counts at the shard of its own number.
    """
    if stage.family is None:
        raise ValueError(f"stage {stage.name!r} has no family")
    wanted = pa.array(dict.fromkeys(stage.family.wanted(rows)), pa.string())
    found = []
    name = layout.part_name(shard_of(rows))
    skipped = sum(path.endswith(f"/{name}") for path in known.unreadable)
    for path in known.holding(wanted.to_pylist(), grows=stage.family.grows):
        try:
            part = storage.read_table(path, stage.adds.names)
        except FileNotFoundError:
            continue  # just removed
        except OSError as error:
            skipped += 1
            _pass_over(error)
            continue
        keys, place = leaves(part, stage.family.stored)
        hit = pc.is_in(keys, wanted).to_numpy(zero_copy_only=False)
        if hit.any():
            found.append(part.take(pa.array(np.unique(place[hit]))))
    return found, skipped


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


def _write(storage: Storage, folder: str, family: Family) -> None:
    """A folder's map, in place of one that a killed driver left; none where there is nothing."""
    path = f"{folder}/{NAME}"
    parts = _newest_first(storage, folder)
    if not parts:
        storage.delete(path)
        return
    hashes, part_of, unreadable = _gather(storage, parts, family)
    order = np.argsort(hashes, kind="stable")
    table = pa.table({"hash": hashes[order], "part": part_of[order]})
    storage.write_table(path, table, notes={"parts": parts, "unreadable": unreadable})


def _newest_first(storage: Storage, folder: str) -> list[str]:
    """All parts of a folder's siblings; first those of the sibling that was written to last."""
    times: dict[str, float] = {}
    shards: dict[str, list[int]] = {}
    for sibling in layout.siblings(storage, folder):
        with suppress(NotADirectoryError):  # a file that is not ours
            shards[sibling] = sorted(layout.shards_done(storage, sibling))
            times[sibling] = max(storage.modified(sibling).values(), default=0)
    newest = sorted(times, key=lambda sibling: times[sibling], reverse=True)
    return [layout.part(sibling, shard) for sibling in newest for shard in shards[sibling]]


def _gather(
    storage: Storage, parts: Sequence[str], family: Family
) -> tuple[Hashes, NDArray[np.uint32], list[str]]:
    """The hashes of the parts' keys, the number of the part of each, and the unreadable parts."""
    hashes: list[Hashes] = [np.empty(0, np.int64)]
    part_of = [np.empty(0, np.uint32)]
    unreadable: list[str] = []
    held = 0
    with ThreadPoolExecutor(max_workers=16) as pool:
        for start in range(0, len(parts), _BATCH):
            batch = parts[start : start + _BATCH]
            read = pool.map(lambda path: _keys(storage, path, family.stored), batch)
            for number, found in enumerate(read, start):
                if found is None:
                    unreadable.append(parts[number])
                    continue
                hashes.append(found)
                part_of.append(np.full(len(found), number, np.uint32))
                held += len(found)
            left = len(parts) - start - len(batch)
            if held >= LIMIT and left:
                _LOG.warning("%d keys are enough; not looked at: %d older parts", held, left)
                break
    return np.concatenate(hashes), np.concatenate(part_of), unreadable


def _keys(storage: Storage, path: str, stored: str) -> Hashes | None:
    """The hashes of a part's keys, each once; None where it cannot be read."""
    try:
        return np.unique(hashes_of(leaves(storage.read_table(path, [stored]), stored)[0]))
    except FileNotFoundError:  # just removed
        return np.empty(0, np.int64)
    except OSError as error:
        _pass_over(error)
        return None


def _pass_over(error: OSError) -> None:
    _LOG.warning("passed over, its values are made anew: %s", error)
