"""A worker: blocks on their way through steps of a plan, in one process.

At a durable stage the block takes up the stage's stored part, or computes and stores it, so
whatever is on disk is never recomputed. Of a stored part only its holes are made, and in a redrive
what the stage refused (see stages.stored). A stage of a family is given what its siblings stored
(see stages.known).
"""

import asyncio
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from pipeline.engines.table import Engines
from pipeline.runs import layout
from pipeline.runs.storage import Storage
from pipeline.stages import known, stored
from pipeline.stages.known import Known
from pipeline.stages.stage import Stage, Transform, join, run_stage, served, shard_of

OnCounts = Callable[[str, Mapping[str, float]], None]


@dataclass(frozen=True)
class Step:
    """A stage in its place.

    `fingerprint` covers the stage and those that wrote what it needs, no others: a further
    scorer in the plan leaves the probes where they are. `folder` holds a durable stage's parts.
    """

    stage: Stage
    fingerprint: str
    folder: str


class Worker:
    """Walks blocks through some steps of a plan under a root, with one set of engines.

    maps: by folder, the path of the map of its siblings where there is one.
    redrive: blocks hold the rows of their shards that died, and every durable stage has its part.
    """

    def __init__(
        self,
        root: str,
        steps: Sequence[Step],
        engines: Engines,
        on_counts: OnCounts,
        *,
        maps: Mapping[str, str],
        redrive: bool = False,
    ) -> None:
        self._storage, self._steps, self._engines = Storage(root), steps, engines
        self._on_counts, self._maps, self._redrive = on_counts, maps, redrive
        self._transforms: dict[str, Transform] = {}
        self._known: dict[str, Known] = {}

    async def __call__(self, block: pa.Table) -> pa.Table:
        """The block with the columns of every step added."""
        for step in self._steps:
            path = layout.part(step.folder, shard_of(block))
            if step.stage.durable and (self._redrive or self._storage.exists(path)):
                part = await self._take_up(step, block, path)
            else:
                part, counts = await self._compute(step, block)
                if step.stage.durable:
                    self._storage.write_table(path, part, notes=counts)
            block = join(block, part, of=step.folder, optional=step.stage.optional)
        return block

    async def _compute(self, step: Step, block: pa.Table) -> tuple[pa.Table, dict[str, float]]:
        """The stage's part of the block's shard, and what was counted while making it."""
        stage, started = step.stage, time.monotonic()
        given = await self._earlier(step, block.filter(served(stage, block)))
        part = await run_stage(stage, self._transform(stage), block, *given)
        seconds = time.monotonic() - started
        counts = {"seconds": seconds, **stored.describe(stage, part), **stage.counts(part, *given)}
        self._on_counts(stage.name, counts)
        return part, counts

    async def _take_up(self, step: Step, block: pa.Table, path: str) -> pa.Table:
        """The stored part of the block's rows; those that are to be made are first made and merged
        into it, by one atomic write."""
        stage, started = step.stage, time.monotonic()
        whole = self._storage.read_table(path)
        part = stored.part_of(whole, block, of=step.folder)
        mask = stored.to_make(stage, block, part, refused=self._redrive)
        if not pc.any(mask).as_py():
            return part
        rows = block.filter(mask)
        given = await self._earlier(step, rows, own=whole)
        made = await run_stage(stage, self._transform(stage), rows, *given)
        after = stored.merged(whole, made, block, mask)
        work = {"seconds": time.monotonic() - started, layout.REDRIVEN: len(made)}
        work |= stored.added(stage, whole, after, given)
        notes = stored.notes(stage, after, self._storage.read_notes(path), work)
        self._storage.write_table(path, after, notes=notes)
        self._on_counts(stage.name, {**stored.describe(stage, made), **work})
        return stored.part_of(after, block, of=step.folder)

    def _transform(self, stage: Stage) -> Transform:
        if stage.name not in self._transforms:
            self._transforms[stage.name] = stage.build(self._engines)
        return self._transforms[stage.name]

    async def _earlier(
        self, step: Step, rows: pa.Table, *, own: pa.Table | None = None
    ) -> list[pa.Table | None]:
        """What the transform is given beside the rows: for a stage with a family, what other
        plans, and the plan's `own` part, hold of what it wants for them."""
        stage, storage = step.stage, self._storage
        if stage.family is None:
            return []
        found = [] if own is None else [own.select(stage.adds.names)]
        if len(rows) and (path := self._maps.get(step.folder)) is not None:
            if path not in self._known:
                self._known[path] = await asyncio.to_thread(known.read, storage, path)
            found += await asyncio.to_thread(known.take, storage, self._known[path], stage, rows)
        return [pa.concat_tables(found) if found else None]
