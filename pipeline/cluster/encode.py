"""A corpus encoded by a pool of embedders: every actor writes the vectors of whole shards."""

import threading
import warnings
from collections.abc import Sequence

import pyarrow as pa
import ray
from ray.data import ActorPoolStrategy
from ray.exceptions import RayError

from pipeline.cluster import preflight, session
from pipeline.cluster.errors import WorkerFailed
from pipeline.cluster.signals import sigterm_raises
from pipeline.config import PoolConfig
from pipeline.engines import dense_index
from pipeline.engines.dense_index import Build, Encode, ShardEncoder
from pipeline.progress import say

STAGE = "encode"


class EncodeActor:
    """An embedder in a Ray actor; see engines.dense_index.ShardEncoder."""

    def __init__(self, build: Build) -> None:
        self._encode = ShardEncoder(build)

    def __call__(self, block: pa.Table) -> pa.Table:
        """The block of shards with the passages encoded of each."""
        counts = [self._encode(shard) for shard in block["shard"].to_pylist()]
        return block.append_column("passages", pa.array(counts, pa.int64()))


def encoder(pool: PoolConfig, *, watchdog_seconds: int) -> Encode:
    """A function for dense_index.build_index that encodes shards on the cluster.

    The index's folder must be on a disk that all nodes share. Raises an error of cluster.errors
    where that is why encoding stopped; Ray is shut down in the end if it was started here.
    """

    def encode(build: Build, shards: Sequence[int], lost: threading.Event) -> None:
        if not shards:
            return
        actors = pool.model_copy(update={"size": min(pool.size, len(shards))})
        done = dense_index.count_done(build)
        total = done + len(shards)
        with session.connected(), sigterm_raises():
            preflight.check({STAGE: actors}, session.nodes())
            say(
                "starting",
                shards=f"{len(shards)} of {total}",
                pools=preflight.describe(STAGE, actors),
                note="loading a model takes up to a minute or more before the first shard",
            )
            try:
                session.watch(
                    _dataset(build, shards, actors),
                    lambda: {STAGE: dense_index.count_done(build)},
                    {STAGE: total},
                    lost,
                    seconds=watchdog_seconds,
                    place=build.folder,
                )
            except RayError as error:
                raise WorkerFailed(str(error)) from error

    return encode


def _dataset(build: Build, shards: Sequence[int], actors: PoolConfig) -> ray.data.Dataset:
    # max_restarts has no named argument yet in the pinned Ray.
    warnings.filterwarnings("ignore", message=".*ray_remote_args", category=DeprecationWarning)
    tickets = [{"shard": shard} for shard in shards]
    return ray.data.from_items(tickets, override_num_blocks=len(tickets)).map_batches(
        EncodeActor,
        fn_constructor_args=(build,),
        compute=ActorPoolStrategy(size=actors.size, max_tasks_in_flight_per_actor=2),
        max_restarts=actors.max_restarts,
        num_cpus=actors.num_cpus,
        num_gpus=actors.num_gpus,
        batch_format="pyarrow",
        batch_size=1,  # a ticket; with a GPU, Ray wants a number
    )
