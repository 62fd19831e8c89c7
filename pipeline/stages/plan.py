"""A plan: stages in order with their fingerprints, and how a shard walks through them.

A shard's block holds every question of the shard, and takes up whatever is on disk (see
stages.worker). The last step writes the shard's finished rows and dead letters into the run
directory.
"""

import asyncio
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from typing import TypeAlias

import pyarrow as pa
import pyarrow.compute as pc

from pipeline import schema
from pipeline.config import OfflineIgpConfig
from pipeline.engines.table import Engines
from pipeline.runs import layout
from pipeline.runs.fingerprint import digest
from pipeline.runs.storage import Storage
from pipeline.stages import known
from pipeline.stages.source import Source
from pipeline.stages.stage import Family, Pool, Stage, check_plan, shard_of
from pipeline.stages.worker import OnCounts, Step, Worker

CONTEXTS, DEAD_LETTERS = layout.CONTEXTS, layout.DEAD_LETTERS


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
    def letters_folder(self) -> str:
        """Where the run's dead letters are."""
        return f"{self.run_folder}/{DEAD_LETTERS}"

    @property
    def folders(self) -> list[str]:
        """The folders of parts: durable stages first, the run's rows last."""
        return [*(step.folder for step in self.steps if step.stage.durable), self.rows_folder]

    @property
    def families(self) -> dict[str, Family]:
        """The families of the stages that have one, by folder."""
        found = ((step.folder, step.stage.family) for step in self.steps)
        return {folder: family for folder, family in found if family is not None}

    def missing(self, storage: Storage) -> dict[str, set[int]]:
        """The shards not yet done, by folder."""
        every = set(range(self.source.shards))
        return {folder: every - layout.shards_done(storage, folder) for folder in self.folders}


Load: TypeAlias = Callable[[Plan, Storage, int], pa.Table]
Finish: TypeAlias = Callable[[Plan, Storage, pa.Table], Mapping[str, int]]
Ledger: TypeAlias = dict[str, dict[str, float]]


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
            shared = [dict(stage.family.shared), str(stage.adds)]
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


def finish(plan: Plan, storage: Storage, block: pa.Table) -> dict[str, int]:
    """Writes a finished shard into the run directory; its rows, living and dead, as counts."""
    shard = shard_of(block)
    alive = pc.is_null(block[schema.DEAD.name])
    dead = letters(block)
    write_letters(plan, storage, shard, dead)
    rows = block.filter(alive).select(plan.columns)
    storage.write_table(layout.part(plan.rows_folder, shard), rows)
    return {"shard": shard, "rows": len(rows), "dead": len(dead)}


def letters(block: pa.Table) -> pa.Table:
    """The dead rows of a block: question_id, stage and reason."""
    dead = block.filter(pc.is_valid(block[schema.DEAD.name]))
    entries = dead[schema.DEAD.name].combine_chunks()
    fields = {name: entries.field(name) for name in ("stage", "reason")}
    return pa.table({"question_id": dead["question_id"], **fields})


def write_letters(plan: Plan, storage: Storage, shard: int, dead: pa.Table) -> None:
    """The dead letters of a shard in place of those that were there; no file for none."""
    path = layout.part(plan.letters_folder, shard)
    if len(dead):
        storage.write_table(path, dead)
    else:
        storage.delete(path)


def run_local(plan: Plan, cfg: OfflineIgpConfig, on_counts: OnCounts = lambda *_: None) -> None:
    """Every missing shard of the plan in this process, without Ray: for tests and notebooks."""
    shards = plan.missing(Storage(plan.root))[plan.rows_folder]
    walk(plan, cfg, sorted(shards), on_counts)


def walk(
    plan: Plan,
    cfg: OfflineIgpConfig,
    shards: Sequence[int],
    on_counts: OnCounts,
    *,
    load: Load = load,
    finish: Finish = finish,
    redrive: bool = False,
) -> None:
    """Some shards in this process: each loaded, taken through all steps, and finished."""
    storage, engines = Storage(plan.root), Engines(cfg)

    async def every(maps: Mapping[str, str]) -> None:
        worker = Worker(plan.root, plan.steps, engines, on_counts, maps=maps, redrive=redrive)
        for shard in shards:
            finish(plan, storage, await worker(load(plan, storage, shard)))

    known.sweep(storage, plan.families)
    try:
        with known.mapped(storage, plan.families) as maps:
            count_damaged(plan, maps, on_counts)
            asyncio.run(every({folder: one.path for folder, one in maps.items()}))
    finally:
        engines.close()


def count_damaged(plan: Plan, maps: Mapping[str, known.Map], on_counts: OnCounts) -> None:
    """Counts, as `skipped` and once, the parts of other plans that the maps lack."""
    for step in plan.steps:
        if step.folder in maps:
            on_counts(step.stage.name, {"skipped": len(maps[step.folder].damaged)})


def contexts(plan: Plan, storage: Storage, columns: Sequence[str]) -> Iterator[pa.Table]:
    """Some columns of the run's finished rows, shard by shard."""
    for shard in sorted(layout.shards_done(storage, plan.rows_folder)):
        yield storage.read_table(layout.part(plan.rows_folder, shard), columns)


def counted(plan: Plan, storage: Storage) -> Ledger:
    """What the making of every durable stage's parts was counted to, summed over its shards.

    A part that several runs share is counted in each of them.
    """
    totals: Ledger = {}
    for step in plan.steps:
        if not step.stage.durable:
            continue
        total = totals.setdefault(step.stage.name, {})
        for shard in sorted(layout.shards_done(storage, step.folder)):
            for name, value in storage.read_notes(layout.part(step.folder, shard)).items():
                total[name] = total.get(name, 0) + value
    return totals
