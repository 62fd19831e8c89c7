"""Publish: a finished run's contexts as the partition of a date, replacing what stands there.

A part is written whole or not at all, `_SUCCESS` goes first and comes last: who waits for it never
reads a mixture.
"""

import datetime
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import polars as pl

from pipeline.contexts import partitions
from pipeline.contexts.partitions import MANIFEST, SUCCESS
from pipeline.runs import layout, lease
from pipeline.runs.layout import CONTEXTS
from pipeline.runs.lease import LeaseHeld
from pipeline.runs.storage import Storage

_AT_ONCE = 8  # parts held in memory
_ROW = ("question", "context", "frame", "passage_ids")
"""What makes a question's context another one."""
_NOTHING = pl.DataFrame(schema={"question_id": pl.String, "row": pl.UInt64})
_COUNTS = ("new", "changed", "unchanged", "gone")


def is_published(
    out: Storage, date: datetime.date, run: Storage, *, same: Mapping[str, Any]
) -> bool:
    """Whether the date's partition is whole and holds the rows of a run: its manifest has the
    entries of `same`, `fingerprint` and `dead_letters`, of which a redrive leaves fewer."""
    own = partitions.partition(date)
    if not out.exists(f"{own}/{SUCCESS}"):
        return False
    manifest = out.read_json(f"{own}/{MANIFEST}")
    whole = layout.shards_done(out, own) == layout.shards_done(run, CONTEXTS)
    known = all(manifest[name] == value for name, value in same.items())
    return known and whole and not layout.damaged_parts(out, [own])


def publish(
    out: Storage, date: datetime.date, run: Storage, *, about: Mapping[str, Any]
) -> dict[str, Any]:
    """Writes the partition of a date and gives its manifest.

    out: the set's folder. run: that of the finished run. about: JSON-able, of the run; by its
    `fingerprint` and `dead_letters` the partition is known again, its `policy` is compared.
    LeaseHeld where another driver writes it.
    """
    own = partitions.partition(date)
    shards = layout.shards_done(run, CONTEXTS)
    with lease.hold(out, [own]) as lost:
        before, replaced = _standing(out, date)
        out.delete(f"{own}/{SUCCESS}")
        out.sweep(own)

        def write(shard: int) -> pl.DataFrame:
            if lost.is_set():
                raise LeaseHeld(f"{out.uri(own)}: another driver has taken it over")
            names = ["question_id", "question", "context"]
            table = partitions.flat(run.read_table(layout.part(CONTEXTS, shard), names))
            out.write_table(layout.part(own, shard), table)
            return _identities(pl.DataFrame(table))

        with ThreadPoolExecutor(max_workers=_AT_ONCE) as pool:
            made = pl.concat(pool.map(write, sorted(shards)))
        for shard in layout.shards_done(out, own) - shards:  # of a longer input
            out.delete(layout.part(own, shard))
        manifest = {
            "date": date.isoformat(),
            **about,
            "questions": len(made),
            "against": before and before.date.isoformat(),
            **_compared(made, before),
            "replaced": replaced and _compared(made, replaced),
        }
        if lost.is_set():
            raise LeaseHeld(f"{out.uri(own)}: another driver has taken it over")
        out.write_json(f"{own}/{MANIFEST}", manifest)
        out.write_bytes(f"{own}/{SUCCESS}", b"")
    return manifest


def describe(manifest: Mapping[str, Any]) -> list[str]:
    """What the terminal is told: how a date's contexts differ from those of the date before it,
    and from those that they replaced."""
    against, replaced = manifest["against"], manifest["replaced"]
    said = {} if replaced is None else {f"date={manifest['date']} as it stood before": replaced}
    if against is not None or replaced is None:
        said = {against or "no earlier date": manifest, **said}
    return [f"against {what}{_counts(found, manifest['policy'])}" for what, found in said.items()]


def _counts(found: Mapping[str, Any], policy: str) -> str:
    other = ", under another policy" if found["policy_before"] not in (None, policy) else ""
    return f"{other}: " + ", ".join(f"{found[name]} {name}" for name in _COUNTS)


@dataclass(frozen=True)
class _Standing:
    """A finished partition: its policy's fingerprint, and its rows as `_identities` tells them."""

    date: datetime.date
    policy: str
    rows: pl.DataFrame


def _standing(out: Storage, date: datetime.date) -> tuple[_Standing | None, _Standing | None]:
    """What a date is compared with: the latest one before it, and itself as it stands; None where
    there is none, or where it has a part that cannot be read."""
    known = [one for one in partitions.finished(out) if one <= date]
    itself = date if date in known else None
    if itself is not None and layout.damaged_parts(out, [partitions.partition(itself)]):
        itself = None
    earlier = next((one for one in reversed(known) if one < date), None)
    return _read(out, earlier), _read(out, itself)


def _read(out: Storage, date: datetime.date | None) -> _Standing | None:
    if date is None:
        return None
    manifest = out.read_json(f"{partitions.partition(date)}/{MANIFEST}")
    rows = [_stored(out, path) for path in partitions.parts(out, date)]
    return _Standing(date, manifest["policy"], pl.concat([_NOTHING, *rows]))


def _compared(made: pl.DataFrame, before: _Standing | None) -> dict[str, Any]:
    """How the contexts of some questions differ from those before; all are new where there are
    none."""
    known = _NOTHING if before is None else before.rows
    both = made.join(known, on="question_id", how="inner", suffix="_before")
    same = int(both.select((pl.col("row") == pl.col("row_before")).sum()).item())
    counts = (len(made) - len(both), len(both) - same, same, len(known) - len(both))
    policy = None if before is None else before.policy
    return {"policy_before": policy, **dict(zip(_COUNTS, counts, strict=True))}


def _stored(out: Storage, path: str) -> pl.DataFrame:
    return _identities(pl.DataFrame(out.read_table(path, ["question_id", *_ROW])))


def _identities(rows: pl.DataFrame) -> pl.DataFrame:
    """question_id, and a hash of what the reader of a context sees, equal within this process."""
    ids = pl.col("passage_ids").list.join("\x1f")
    text = pl.concat_str(*(name for name in _ROW if name != "passage_ids"), ids, separator="\x1e")
    return rows.select("question_id", row=text.hash())
