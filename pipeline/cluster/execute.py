"""A plan as one streaming Ray Data pipeline: a shard travels as one block from actor to actor.

Every step uses the whole block (`batch_size=None`, no block size limit), so a shard arrives at
the writer as it left the source; a retried task writes the same part under the same name.
"""

import os
import threading
import time
import warnings
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from typing import Any

import pyarrow as pa
import ray
from ray.data import ActorPoolStrategy, DataContext, Dataset, TaskPoolStrategy
from ray.exceptions import RayError

from pipeline.cluster import preflight, session
from pipeline.cluster.errors import WorkerFailed
from pipeline.cluster.metrics import Recorder
from pipeline.cluster.signals import sigterm_raises
from pipeline.config import OfflineIgpConfig, PoolConfig
from pipeline.engines.base import EngineDead
from pipeline.engines.table import Engines
from pipeline.progress import say
from pipeline.runs import layout
from pipeline.runs.storage import Storage
from pipeline.stages import known, redrive
from pipeline.stages import plan as plans
from pipeline.stages.plan import Plan
from pipeline.stages.redrive import Redrive
from pipeline.stages.stage import shard_of
from pipeline.stages.worker import Step, Worker

ENGINE_DEATH = "engine_death.json"
"""In the run's folder: the last engine that was lost, in its own words."""


class GroupActor:
    """Some steps of a plan on one set of engines, in a Ray actor.

    When an engine is lost the whole process ends, so that Ray starts a new actor and gives the
    shard to it; an exception would only fail the shard and leave the dead engine in the pool.
    """

    def __init__(
        self,
        plan: Plan,
        steps: Sequence[Step],
        cfg: OfflineIgpConfig,
        maps: Mapping[str, str],
        redrive: bool,
    ) -> None:
        self._plan = plan
        engines = Engines(cfg)
        self._worker = Worker(plan.root, steps, engines, Recorder(), maps=maps, redrive=redrive)

    async def __call__(self, block: pa.Table) -> AsyncIterator[pa.Table]:
        """The block with the group's columns added."""
        try:
            yield await self._worker(block)
        except EngineDead as error:
            death = {"message": str(error), "shard": shard_of(block), "time": time.time()}
            Storage(self._plan.root).write_json(f"{self._plan.run_folder}/{ENGINE_DEATH}", death)
            os._exit(1)


def execute(
    plan: Plan, cfg: OfflineIgpConfig, lost: threading.Event, again: Redrive | None = None
) -> None:
    """Runs every missing shard, or those of a redrive; the caller holds the leases of what is
    written.

    `lost` is set when a lease is lost. Raises an error of cluster.errors where that is why the
    run stopped. Ray is shut down in the end if it was started here.
    """
    storage = Storage(plan.root)
    known.sweep(storage, plan.families)
    missing = redrive.unsettled(plan, storage) if again is None else again.folders
    todo = sorted(missing[plan.rows_folder])
    if not todo:
        return
    storage.delete(f"{plan.run_folder}/{ENGINE_DEATH}")
    families = {folder: each for folder, each in plan.families.items() if missing[folder]}
    # Ray sets a SIGTERM handler of its own when it starts: ours comes after.
    with known.mapped(storage, families) as maps, session.connected(), sigterm_raises():
        plans.count_damaged(plan, maps, Recorder())
        pools = _pools(plan, cfg, missing)
        preflight.check(pools, session.nodes())
        say(
            "starting",
            shards=f"{len(todo)} of {plan.source.shards}",
            pools=", ".join(preflight.describe(*item) for item in pools.items()),
            note="loading a model takes up to a minute or more before the first shard",
        )
        paths = {folder: one.path for folder, one in maps.items()}
        data = _dataset(plan, cfg, pools, todo, paths, again)
        done, totals = _progress(plan, storage, again)
        try:
            session.watch(
                data,
                done,
                totals,
                lost,
                seconds=cfg.cluster.watchdog_seconds,
                place=storage.root,
                last_words=lambda: _waited_for(plan, storage) + _last_words(plan, storage),
            )
        except RayError as error:
            raise WorkerFailed(f"{error}{_last_words(plan, storage)}") from error


def _progress(
    plan: Plan, storage: Storage, again: Redrive | None
) -> tuple[Callable[[], dict[str, int]], dict[str, int]]:
    """What counts the shards done of every stage, and how many there are.

    In a redrive those that were finished anew since now; a stage may write none of its parts.
    """
    if again is not None:
        before = storage.modified(plan.rows_folder)
        return lambda: {"redrive": redrive.rewritten(plan, storage, before)}, {
            "redrive": len(again.shards)
        }
    folders = {step.stage.name: step.folder for step in plan.steps if step.stage.durable}
    folders["finish"] = plan.rows_folder
    totals = dict.fromkeys(folders, plan.source.shards)
    return lambda: {n: len(layout.shards_done(storage, f)) for n, f in folders.items()}, totals


def _waited_for(plan: Plan, storage: Storage) -> str:
    """The first shards that every stage misses, as a part of a message; empty for none."""
    missing = plan.missing(storage)
    folders = {step.stage.name: step.folder for step in plan.steps if step.stage.durable}
    first = {name: sorted(missing[folder])[:3] for name, folder in folders.items()}
    first = {name: shards for name, shards in first.items() if shards}
    return f"; first shards not done: {first}" if first else ""


def _last_words(plan: Plan, storage: Storage) -> str:
    """What the last lost engine said, as the end of a message; empty when none was lost."""
    path = f"{plan.run_folder}/{ENGINE_DEATH}"
    if not storage.exists(path):
        return ""
    death = storage.read_json(path)
    return f"; the last engine was lost at shard {death['shard']}: {death['message']}"


def _pools(
    plan: Plan, cfg: OfflineIgpConfig, missing: Mapping[str, set[int]]
) -> dict[str, PoolConfig]:
    """The actors of every group, in the groups' order, each under a name of its own.

    As configured where a durable stage of the group misses a shard, or may have to fill one, else
    one small actor, since the group then needs no engine.
    """
    pools: dict[str, PoolConfig] = {}
    for name, steps in plans.groups(plan):
        durable = [step for step in steps if step.stage.pool and step.stage.durable]
        needed = name is not None and any(missing[step.folder] for step in durable)
        label: str = name or "tasks"
        number = 1
        while label in pools:
            number += 1
            label = f"{name} ({number})"
        idle = PoolConfig(num_cpus=preflight.TASK_CPUS)
        pools[label] = getattr(cfg.cluster, str(name)) if needed else idle
    return pools


def _dataset(
    plan: Plan,
    cfg: OfflineIgpConfig,
    pools: dict[str, PoolConfig],
    todo: Sequence[int],
    maps: Mapping[str, str],
    again: Redrive | None,
) -> Dataset:
    context = DataContext.get_current()
    context.target_max_block_size = None  # a shard is never cut
    context.issue_detectors_config.detectors = []  # a shard takes minutes, a model gigabytes
    # max_concurrency and max_restarts have no named arguments yet in the pinned Ray.
    warnings.filterwarnings("ignore", message=".*ray_remote_args", category=DeprecationWarning)
    whole: dict[str, Any] = {"batch_format": "pyarrow", "batch_size": None}
    tickets = [{"shard": shard} for shard in todo]
    # Without a cap, tasks this small would start a process per tenth of a CPU.
    tasks: dict[str, Any] = {
        "num_cpus": preflight.TASK_CPUS,
        "compute": TaskPoolStrategy(size=max([1, *(pool.size for pool in pools.values())])),
    }

    load_one = plans.load if again is None else redrive.load
    finish_one = plans.finish if again is None else redrive.finish

    def load(ticket: pa.Table) -> pa.Table:
        return load_one(plan, Storage(plan.root), shard_of(ticket))

    def finish(block: pa.Table) -> pa.Table:
        return pa.Table.from_pylist([finish_one(plan, Storage(plan.root), block)])

    data = ray.data.from_items(tickets, override_num_blocks=len(tickets))
    data = data.map_batches(load, **tasks, **whole)
    for (_, steps), pool in zip(plans.groups(plan), pools.values(), strict=True):
        # map_batches refuses whole blocks for actors with a GPU; this is what it hands on to, and
        # what Ray's own map_groups calls for that reason.
        data = data.map_batches_internal(
            GroupActor,
            fn_constructor_args=(plan, steps, cfg, maps, again is not None),
            compute=ActorPoolStrategy(
                size=pool.size, max_tasks_in_flight_per_actor=2 * pool.shards_in_flight
            ),
            max_concurrency=pool.shards_in_flight,
            max_restarts=pool.max_restarts,
            num_cpus=pool.num_cpus,
            num_gpus=pool.num_gpus,
            **whole,
        )
    return data.map_batches(finish, **tasks, **whole)
