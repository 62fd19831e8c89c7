"""Publish: a finished run's contexts as the partition of a date, replacing what stands there.

A part is written whole or not at all, `_SUCCESS` goes first and comes last: who waits for it never
reads a mixture.
"""

import datetime
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
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


def is_published(out: Storage, date: datetime.date, run: Storage, *, fingerprint: str) -> bool:
    """Whether the date's partition is whole and holds the rows of the run of that fingerprint."""
    own = partitions.partition(date)
    if not out.exists(f"{own}/{SUCCESS}"):
        return False
    same = out.read_json(f"{own}/{MANIFEST}")["fingerprint"] == fingerprint
    whole = layout.shards_done(out, own) == layout.shards_done(run, CONTEXTS)
    return bool(same) and whole and not layout.damaged_parts(out, [own])


def publish(
    out: Storage, date: datetime.date, run: Storage, *, about: Mapping[str, Any]
) -> dict[str, Any]:
    """Writes the partition of a date and gives its manifest.

    out: the set's folder. run: that of the finished run. about: JSON-able, of the run; its
    `fingerprint` tells the partition's origin. LeaseHeld where another driver writes it.
    """
    own = partitions.partition(date)
    shards = layout.shards_done(run, CONTEXTS)
    with lease.hold(out, [own]) as lost:
        out.delete(f"{own}/{SUCCESS}")
        out.sweep(own)

        def write(shard: int) -> pl.DataFrame:
            names = ["question_id", "question", "context"]
            table = partitions.flat(run.read_table(layout.part(CONTEXTS, shard), names))
            out.write_table(layout.part(own, shard), table)
            return _identities(pl.DataFrame(table))

        with ThreadPoolExecutor(max_workers=_AT_ONCE) as pool:
            made = pl.concat(pool.map(write, sorted(shards)))
        for shard in layout.shards_done(out, own) - shards:  # of a longer input
            out.delete(layout.part(own, shard))
        manifest = {"date": date.isoformat(), **about, **_against(out, date, made)}
        if lost.is_set():
            raise LeaseHeld(f"{out.uri(own)}: another driver has taken it over")
        out.write_json(f"{own}/{MANIFEST}", manifest)
        out.write_bytes(f"{own}/{SUCCESS}", b"")
    return manifest


def _against(out: Storage, date: datetime.date, made: pl.DataFrame) -> dict[str, Any]:
    """The questions of a date, and how their contexts differ from those of the latest date before
    it; all are new where there is none."""
    earlier = [one for one in partitions.finished(out) if one < date]
    before = [_stored(out, path) for path in partitions.parts(out, earlier[-1])] if earlier else []
    known = pl.concat(before) if before else made.clear()
    both = made.join(known, on="question_id", how="inner", suffix="_before")
    same = int(both.select((pl.col("row") == pl.col("row_before")).sum()).item())
    return {
        "questions": len(made),
        "against": earlier[-1].isoformat() if earlier else None,
        "new": len(made) - len(both),
        "changed": len(both) - same,
        "unchanged": same,
        "gone": len(known) - len(both),
    }


def _stored(out: Storage, path: str) -> pl.DataFrame:
    return _identities(pl.DataFrame(out.read_table(path, ["question_id", *_ROW])))


def _identities(rows: pl.DataFrame) -> pl.DataFrame:
    """question_id, and a hash of what the reader of a context sees, equal within this process."""
    ids = pl.col("passage_ids").list.join("\x1f")
    text = pl.concat_str(*(name for name in _ROW if name != "passage_ids"), ids, separator="\x1e")
    return rows.select("question_id", row=text.hash())
