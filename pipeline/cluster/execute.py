"""A plan as one streaming Ray Data pipeline: a shard travels as one block from actor to actor.

Every step uses the whole block (`batch_size=None`, no block size limit), so a shard arrives at
the writer as it left the source; a retried task writes the same part under the same name.
"""

import logging
import os
import signal
import threading
import time
import warnings
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import contextmanager
from types import FrameType
from typing import Any

import pyarrow as pa

# Both are read when ray is imported. The second reader of Ray Data starts 32 actors to list
# files, which starves a small cluster; shards are listed here, so nothing needs it.
os.environ.setdefault("RAY_DATA_USE_DATASOURCE_V2", "0")
os.environ.setdefault("RAY_DATA_DISABLE_PROGRESS_BARS", "1")

import ray
from ray.data import ActorPoolStrategy, DataContext, Dataset, TaskPoolStrategy
from ray.exceptions import RayError

from pipeline.cluster import preflight
from pipeline.cluster.errors import LeaseLost, NoProgress, Stopped, WorkerFailed
from pipeline.cluster.metrics import Recorder
from pipeline.config import OfflineIgpConfig, PoolConfig
from pipeline.engines.base import EngineDead
from pipeline.engines.table import Engines
from pipeline.progress import display, say
from pipeline.runs import layout
from pipeline.runs.storage import Storage
from pipeline.stages import plan as plans
from pipeline.stages.plan import Plan, Step, Worker

POLL_SECONDS = 1.0


ENGINE_DEATH = "engine_death.json"
"""In the run's folder: the last engine that was lost, in its own words."""


class GroupActor:
    """Some steps of a plan on one set of engines, in a Ray actor.

    When an engine is lost the whole process ends, so that Ray starts a new actor and gives the
    shard to it; an exception would only fail the shard and leave the dead engine in the pool.
    """

    def __init__(self, plan: Plan, steps: Sequence[Step], cfg: OfflineIgpConfig) -> None:
        self._plan = plan
        self._worker = Worker(plan, steps, Engines(cfg), Recorder())

    async def __call__(self, block: pa.Table) -> AsyncIterator[pa.Table]:
        """The block with the group's columns added."""
        try:
            yield await self._worker(block)
        except EngineDead as error:
            death = {"message": str(error), "shard": plans.shard_of(block), "time": time.time()}
            Storage(self._plan.root).write_json(f"{self._plan.run_folder}/{ENGINE_DEATH}", death)
            os._exit(1)


def execute(plan: Plan, cfg: OfflineIgpConfig, lost: threading.Event) -> None:
    """Runs every missing shard; the caller holds the leases of what is written.

    `lost` is set when a lease is lost. Raises an error of cluster.errors where that is why the
    run stopped. Ray is shut down in the end if it was started here.
    """
    storage = Storage(plan.root)
    missing = plan.missing(storage)
    todo = sorted(missing[plan.rows_folder])
    if not todo:
        return
    storage.delete(f"{plan.run_folder}/{ENGINE_DEATH}")
    # Ray sets a SIGTERM handler of its own when it starts: ours comes after.
    with _ray(), _sigterm_raises():
        pools = _pools(plan, cfg, missing)
        nodes = [node["Resources"] for node in ray.nodes() if node["Alive"]]
        preflight.check(pools, nodes)
        say(
            "starting",
            shards=f"{len(todo)} of {plan.source.shards}",
            pools=", ".join(preflight.describe(*item) for item in pools.items()),
            note="loading a model takes up to a minute or more before the first shard",
        )
        data = _dataset(plan, cfg, pools, todo)
        try:
            _watch(plan, storage, data, lost, cfg.cluster.watchdog_seconds)
        except RayError as error:
            raise WorkerFailed(f"{error}{_last_words(plan, storage)}") from error


def _last_words(plan: Plan, storage: Storage) -> str:
    """What the last lost engine said, as the end of a message; empty when none was lost."""
    path = f"{plan.run_folder}/{ENGINE_DEATH}"
    if not storage.exists(path):
        return ""
    death = storage.read_json(path)
    return f"; the last engine was lost at shard {death['shard']}: {death['message']}"


def _pools(
    plan: Plan, cfg: OfflineIgpConfig, missing: dict[str, set[int]]
) -> dict[str, PoolConfig]:
    """The actors of every group: as configured where a durable stage misses a shard, else one
    small actor, since the group then needs no engine."""
    needed = {
        step.stage.pool
        for step in plan.steps
        if step.stage.pool is not None and step.stage.durable and missing[step.folder]
    }
    known = {"retriever": cfg.cluster.retriever, "generator": cfg.cluster.generator}
    idle = PoolConfig(num_cpus=preflight.TASK_CPUS)
    return {name: known[name] if name in needed else idle for name, _ in plans.groups(plan) if name}


def _dataset(
    plan: Plan, cfg: OfflineIgpConfig, pools: dict[str, PoolConfig], todo: Sequence[int]
) -> Dataset:
    context = DataContext.get_current()
    context.target_max_block_size = None  # a shard is never cut
    # max_concurrency and max_restarts have no named arguments yet in the pinned Ray.
    warnings.filterwarnings("ignore", message=".*ray_remote_args", category=DeprecationWarning)
    whole: dict[str, Any] = {"batch_format": "pyarrow", "batch_size": None}
    tickets = [{"shard": shard} for shard in todo]
    # Without a cap, tasks this small would start a process per tenth of a CPU.
    tasks: dict[str, Any] = {
        "num_cpus": preflight.TASK_CPUS,
        "compute": TaskPoolStrategy(size=max([1, *(pool.size for pool in pools.values())])),
    }

    def load(ticket: pa.Table) -> pa.Table:
        return plans.load(plan, Storage(plan.root), plans.shard_of(ticket))

    def finish(block: pa.Table) -> pa.Table:
        return pa.Table.from_pylist([plans.finish(plan, Storage(plan.root), block)])

    data = ray.data.from_items(tickets, override_num_blocks=len(tickets))
    data = data.map_batches(load, **tasks, **whole)
    for name, steps in plans.groups(plan):
        pool = pools[name or "generator"]
        data = data.map_batches(
            GroupActor,
            fn_constructor_args=(plan, steps, cfg),
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


def _watch(
    plan: Plan, storage: Storage, data: Dataset, lost: threading.Event, watchdog_seconds: int
) -> None:
    """Runs the pipeline in a thread, shows its progress, and gives up when there is none."""
    failure: list[BaseException] = []

    def run() -> None:
        try:
            for _ in data.iter_batches(batch_size=None, batch_format="pyarrow"):
                pass
        except BaseException as error:  # raised again in the main thread
            failure.append(error)

    folders = {step.stage.name: step.folder for step in plan.steps if step.stage.durable}
    folders["finish"] = plan.rows_folder
    thread = threading.Thread(target=run, daemon=True)
    last: dict[str, int] = {}
    last_change = time.monotonic()
    with display(dict.fromkeys(folders, plan.source.shards)) as shown:
        thread.start()
        while True:
            thread.join(POLL_SECONDS)
            done = {n: len(layout.shards_done(storage, f)) for n, f in folders.items()}
            shown.update(done)
            if not thread.is_alive():
                break
            if lost.is_set():
                raise LeaseLost(f"{storage.root}: a lease was lost, so this driver stops")
            if done != last:
                last, last_change = done, time.monotonic()
            elif time.monotonic() - last_change > watchdog_seconds:
                raise NoProgress(
                    f"no shard finished at any stage for {watchdog_seconds} s "
                    f"(done: {done}); cluster: {ray.cluster_resources()}, "
                    f"free: {ray.available_resources()}{_last_words(plan, storage)}"
                )
    if failure:
        raise failure[0]


@contextmanager
def _ray() -> Iterator[None]:
    """A connection to the cluster that RAY_ADDRESS names, else a local Ray that ends with us."""
    if ray.is_initialized():
        yield
        return
    quiet: dict[str, Any] = {"logging_level": logging.ERROR}
    if "RAY_ADDRESS" not in os.environ:
        # Without an address Ray would join whatever cluster was last started on this machine.
        quiet |= {"address": "local", "include_dashboard": False, "log_to_driver": False}
    ray.init(**quiet)
    logging.getLogger("ray.data").setLevel(logging.WARNING)
    logging.getLogger("ray.data._internal.progress").setLevel(logging.ERROR)
    try:
        yield
    finally:
        ray.shutdown()


@contextmanager
def _sigterm_raises() -> Iterator[None]:
    """SIGTERM as an exception, so that leases and Ray are given back on the way out."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def stop(number: int, frame: FrameType | None) -> None:
        raise Stopped(f"stopped by signal {number}")

    before = signal.signal(signal.SIGTERM, stop)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)
