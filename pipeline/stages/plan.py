"""A plan: stages in order with their fingerprints, and how a shard walks through them.

A shard's block holds every question of the shard. At a durable stage the block either takes up
the stage's stored part or computes and stores it, so whatever is on disk is never recomputed.
The last step writes the shard's finished rows and dead letters into the run directory.
"""

import asyncio
import logging
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import groupby

import pyarrow as pa
import pyarrow.compute as pc

from pipeline import schema
from pipeline.config import OfflineIgpConfig
from pipeline.engines.table import Engines
from pipeline.runs import layout
from pipeline.runs.fingerprint import digest
from pipeline.runs.storage import Storage
from pipeline.stages.source import Source
from pipeline.stages.stage import (
    ContractError,
    Pool,
    Stage,
    Transform,
    check_plan,
    join,
    run_stage,
)

OnCounts = Callable[[str, Mapping[str, float]], None]
CONTEXTS, DEAD_LETTERS = "contexts", "dead_letters"
_LOG = logging.getLogger(__name__)


@dataclass(frozen=True)
class Step:
    """A stage in its place.

    `fingerprint` covers the stage and those that wrote what it needs, no others: a further
    scorer in the plan leaves the probes where they are. `folder` holds a durable stage's parts.
    """

    stage: Stage
    fingerprint: str
    folder: str


@dataclass(frozen=True)
class Plan:
    """All that workers need: where to read and write, and the steps."""

    root: str
    source: Source
    source_columns: tuple[str, ...]
    steps: tuple[Step, ...]
    run_folder: str

    @property
    def fingerprint(self) -> str:
        """Of the whole run's output."""
        return digest([self.source.fingerprint, *(step.fingerprint for step in self.steps)])

    @property
    def columns(self) -> list[str]:
        """The columns of a finished row, the source's included but for a pool, which its ranking
        replaces."""
        given = [name for name in self.source_columns if name != schema.POOL.name]
        return [*given, *(n for step in self.steps for n in step.stage.adds.names)]

    @property
    def rows_folder(self) -> str:
        """Where the run's finished rows are."""
        return f"{self.run_folder}/{CONTEXTS}"

    @property
    def folders(self) -> list[str]:
        """The folders of parts: durable stages first, the run's rows last."""
        return [*(step.folder for step in self.steps if step.stage.durable), self.rows_folder]

    def missing(self, storage: Storage) -> dict[str, set[int]]:
        """The shards not yet done, by folder."""
        every = set(range(self.source.shards))
        return {folder: every - layout.shards_done(storage, folder) for folder in self.folders}


def make_plan(
    root: str, name: str, source: Source, columns: pa.Schema, stages: Sequence[Stage]
) -> Plan:
    """The plan of a run called `name`; PlanError where the stages do not fit together.

    Only what needs or reads the judgements depends on them: the other stages' parts serve the
    same questions with and without.
    """
    check_plan(stages, columns)
    author = dict.fromkeys(columns.names, source.unjudged)
    author[schema.JUDGEMENTS.name] = source.fingerprint
    steps = []
    for stage in stages:
        upstream = [source.unjudged, *(author[name] for name in stage.inputs)]
        depends_on = dict(stage.depends_on)
        fingerprint = digest([stage.name, stage.revision, upstream, depends_on, str(stage.adds)])
        folder = layout.stage_dir(stage.name, fingerprint)
        if stage.family is not None:
            shared = [source.unjudged, dict(stage.family), str(stage.adds)]
            family = digest([stage.name, stage.revision, *shared])
            folder = f"{layout.stage_dir(stage.name, family)}/{fingerprint}"
        steps.append(Step(stage, fingerprint, folder))
        author |= dict.fromkeys(stage.adds.names, fingerprint)
    plan = Plan(root, source, tuple(columns.names), tuple(steps), "")
    return replace(plan, run_folder=layout.run_dir(name, plan.fingerprint))


def groups(plan: Plan) -> list[tuple[Pool | None, tuple[Step, ...]]]:
    """Consecutive steps that share a pool, and so run in one actor with one set of engines.

    A step without a pool joins the steps before it, or those after it where it is the first.
    """
    pools: list[Pool | None] = [
        next((step.stage.pool for step in plan.steps if step.stage.pool), None)
    ]
    for step in plan.steps:
        pools.append(step.stage.pool or pools[-1])
    placed = groupby(zip(pools[1:], plan.steps, strict=True), key=lambda pair: pair[0])
    return [(pool, tuple(step for _, step in pairs)) for pool, pairs in placed]


def load(plan: Plan, storage: Storage, shard: int) -> pa.Table:
    """A shard's block as the source left it."""
    return storage.read_table(layout.part(plan.source.folder, shard))


class Worker:
    """Walks blocks through some steps of a plan, in one process, with one set of engines."""

    def __init__(
        self, plan: Plan, steps: Sequence[Step], engines: Engines, on_counts: OnCounts
    ) -> None:
        self._storage, self._steps, self._engines = Storage(plan.root), steps, engines
        self._on_counts = on_counts
        self._transforms: dict[str, Transform] = {}

    async def __call__(self, block: pa.Table) -> pa.Table:
        """The block with the columns of every step added."""
        for step in self._steps:
            path = layout.part(step.folder, shard_of(block))
            if step.stage.durable and self._storage.exists(path):
                part = self._storage.read_table(path)
            else:
                part, counts = await self._compute(step, block)
                if step.stage.durable:
                    self._storage.write_table(path, part, notes=counts)
            block = join(block, part, of=step.folder, optional=step.stage.optional)
        return block

    async def _compute(self, step: Step, block: pa.Table) -> tuple[pa.Table, dict[str, float]]:
        """The stage's part of the block's shard, and what was counted while making it."""
        stage, started = step.stage, time.monotonic()
        given: list[pa.Table | None] = []
        skipped = 0
        if stage.family is not None:
            earlier, skipped = self._earlier(step, shard_of(block))
            given.append(earlier)
        if stage.name not in self._transforms:
            self._transforms[stage.name] = stage.build(self._engines)
        part = await run_stage(stage, self._transforms[stage.name], block, *given)
        counts: dict[str, float] = {"rows": len(part), "seconds": time.monotonic() - started}
        refused = "unmeasured" if stage.optional else "dead"
        counts |= {refused: _count_dead(part), **stage.counts(part, *given)}
        if skipped:
            counts["skipped"] = skipped
        self._on_counts(stage.name, counts)
        return part, counts

    def _earlier(self, step: Step, shard: int) -> tuple[pa.Table | None, int]:
        """The stage's columns that other plans of its family stored for a shard, and how many of
        their parts could not be read. Those only spare work, so they are logged and passed over.
        """
        paths = [layout.part(f, shard) for f in layout.siblings(self._storage, step.folder)]
        found, skipped = [], 0
        for path in paths:
            try:
                found.append(self._storage.read_table(path, step.stage.adds.names))
            except (FileNotFoundError, NotADirectoryError):
                continue  # not made, or just removed
            except OSError as error:
                skipped += 1
                _LOG.warning("passed over, its values are made anew: %s", error)
        return pa.concat_tables(found) if found else None, skipped


def finish(plan: Plan, storage: Storage, block: pa.Table) -> dict[str, int]:
    """Writes a finished shard into the run directory; its rows, living and dead, as counts."""
    shard = shard_of(block)
    alive = pc.is_null(block[schema.DEAD.name])
    dead = block.filter(pc.invert(alive))
    if len(dead):
        entries = dead[schema.DEAD.name].combine_chunks()
        letters = pa.table(
            {
                "question_id": dead["question_id"],
                "stage": entries.field("stage"),
                "reason": entries.field("reason"),
            }
        )
        storage.write_table(layout.part(f"{plan.run_folder}/{DEAD_LETTERS}", shard), letters)
    rows = block.filter(alive).select(plan.columns)
    storage.write_table(layout.part(plan.rows_folder, shard), rows)
    return {"shard": shard, "rows": len(rows), "dead": len(dead)}


def run_local(plan: Plan, cfg: OfflineIgpConfig, on_counts: OnCounts = lambda *_: None) -> None:
    """Every missing shard of the plan in this process, without Ray: for tests and notebooks."""
    storage = Storage(plan.root)
    engines = Engines(cfg)
    worker = Worker(plan, plan.steps, engines, on_counts)

    async def walk() -> None:
        for shard in sorted(plan.missing(storage)[plan.rows_folder]):
            finish(plan, storage, await worker(load(plan, storage, shard)))

    try:
        asyncio.run(walk())
    finally:
        engines.close()


def contexts(plan: Plan, storage: Storage, columns: Sequence[str]) -> Iterator[pa.Table]:
    """Some columns of the run's finished rows, shard by shard."""
    for shard in sorted(layout.shards_done(storage, plan.rows_folder)):
        yield storage.read_table(layout.part(plan.rows_folder, shard), columns)


def counted(plan: Plan, storage: Storage) -> dict[str, dict[str, float]]:
    """What the making of every durable stage's parts was counted to, summed over its shards.

    A part that several runs share is counted in each of them.
    """
    totals: dict[str, dict[str, float]] = {}
    for step in plan.steps:
        if not step.stage.durable:
            continue
        total = totals.setdefault(step.stage.name, {})
        for shard in sorted(layout.shards_done(storage, step.folder)):
            for name, value in storage.read_notes(layout.part(step.folder, shard)).items():
                total[name] = total.get(name, 0) + value
    return totals


def shard_of(block: pa.Table) -> int:
    """The one shard that a block holds; ContractError when it was cut or merged on its way."""
    shards = pc.unique(block[schema.SHARD.name]).to_pylist()
    if len(shards) != 1:
        raise ContractError(f"a block must hold one shard, got {shards}")
    return int(shards[0])


def _count_dead(block: pa.Table) -> int:
    return len(block) - int(block[schema.DEAD.name].null_count)
