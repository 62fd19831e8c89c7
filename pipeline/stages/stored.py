"""What a stage's stored part lacks of its shard's rows, and how rows made later come into it.

A row of a part has the stage's values, or the stage's refusal in `dead`, or neither: something
that the stage needs was null when the part was made. Such a hole can be filled once a redrive,
of this run or of another one that shares parts, has made what was missing.

Masks are over the rows of a block.
"""

from collections.abc import Mapping
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from pipeline import schema
from pipeline.stages.stage import Stage, check_questions, served

PLACE = pa.field("place", pa.int64())
"""Of a block that holds some rows of its shard alone: where in the shard each stands."""
UNSERVED = "unserved"


def part_of(whole: pa.Table, block: pa.Table, *, of: str) -> pa.Table:
    """A part's rows for those of the block; ContractError, naming `of`, where their ids differ."""
    part = whole.take(block[PLACE.name]) if PLACE.name in block.column_names else whole
    check_questions(part, block, of=of)
    return part


def to_make(stage: Stage, block: pa.Table, part: pa.Table, *, refused: bool) -> pa.ChunkedArray:
    """The mask of the rows to be made now: holes that can be filled, and what was `refused`.

    What an optional stage refused stays as it is: the row lives without.
    """
    wanted = _unserved(stage, part)
    if refused and not stage.optional:
        wanted = pc.or_(wanted, pc.is_valid(part[schema.DEAD.name]))
    return pc.and_(wanted, served(stage, block))


def merged(whole: pa.Table, made: pa.Table, block: pa.Table, mask: pa.ChunkedArray) -> pa.Table:
    """The part with the block's rows under the mask replaced by `made`, and all others as is."""
    rows = np.arange(len(whole))
    place = PLACE.name in block.column_names
    at = block[PLACE.name].to_numpy() if place else np.arange(len(block))
    rows[at[mask.to_numpy()]] = len(whole) + np.arange(len(made))
    both = pa.concat_tables([whole, made.select(whole.column_names).cast(whole.schema)])
    return both.take(pa.array(rows)).combine_chunks()


def describe(stage: Stage, part: pa.Table) -> dict[str, float]:
    """The rows of a part, those refused, and, where there are any, the holes."""
    refused = len(part) - part[schema.DEAD.name].null_count
    counts = {"rows": len(part), "unmeasured" if stage.optional else "dead": refused}
    holes = pc.sum(_unserved(stage, part)).as_py() or 0
    return counts | ({UNSERVED: holes} if holes else {})


def added(
    stage: Stage, before: pa.Table, after: pa.Table, earlier: list[pa.Table]
) -> dict[str, float]:
    """What the stage's counts of a part grew by; `earlier` as they were when it was merged."""
    old = stage.counts(before, *earlier)
    return {name: n - old.get(name, 0) for name, n in stage.counts(after, *earlier).items()}


def notes(
    stage: Stage, part: pa.Table, before: Mapping[str, Any], work: Mapping[str, float]
) -> dict[str, float]:
    """The notes of a merged part: its rows as they are now, all work on it summed."""
    kept = {k: v for k, v in before.items() if k not in ("rows", "dead", "unmeasured", UNSERVED)}
    return {**kept, **{k: kept.get(k, 0) + n for k, n in work.items()}, **describe(stage, part)}


def _unserved(stage: Stage, part: pa.Table) -> pa.ChunkedArray:
    holes = pc.is_null(part[schema.DEAD.name])
    for name in stage.adds.names:
        holes = pc.and_(holes, pc.is_null(part[name]))
    return holes
