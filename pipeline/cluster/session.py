"""A driver's time with Ray: the connection, and the watch over a running pipeline."""

import logging
import os
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import ray
from ray.data import Dataset

from pipeline.cluster.errors import LeaseLost, NoProgress, Stopped, WorkerFailed
from pipeline.progress import display

POLL_SECONDS = 1.0
LONGEST_PAUSE_SECONDS = 60.0
COUNTING = 0.1
"""Of the time, the most that counting finished shards may take: where a listing is slow (an object
store, many thousand shards), it is asked for less often."""


@contextmanager
def connected() -> Iterator[None]:
    """A connection to the cluster that RAY_ADDRESS names, else a local Ray that ends with us.

    WorkerFailed where Ray does not start, Stopped where SIGTERM comes meanwhile.
    """
    if ray.is_initialized():
        yield
        return
    quiet: dict[str, Any] = {"logging_level": logging.ERROR}
    if "RAY_ADDRESS" not in os.environ:
        # Without an address Ray would join whatever cluster was last started on this machine.
        quiet |= {"address": "local", "include_dashboard": False, "log_to_driver": False}
    try:
        ray.init(**quiet)
    except SystemExit as error:  # of the handler that Ray sets before it starts
        raise Stopped("stopped while Ray started; the same command goes on from here") from error
    except Exception as error:  # Ray raises no narrower class
        raise WorkerFailed(f"Ray did not start: {error}") from error
    logging.getLogger("ray.data").setLevel(logging.WARNING)
    logging.getLogger("ray.data._internal.progress").setLevel(logging.ERROR)
    try:
        yield
    finally:
        ray.shutdown()


def nodes() -> list[dict[str, float]]:
    """The resources of every living node."""
    return [node["Resources"] for node in ray.nodes() if node["Alive"]]


def watch(
    data: Dataset,
    done: Callable[[], Mapping[str, int]],
    totals: Mapping[str, int],
    lost: threading.Event,
    *,
    seconds: int,
    place: str,
    last_words: Callable[[], str] = str,
) -> None:
    """Runs a pipeline in a thread, shows its progress, and gives up when there is none.

    `done` counts the shards of every stage. LeaseLost once `lost` is set, NoProgress after
    `seconds` without a further shard; what the pipeline raises is raised here.
    """
    failure: list[BaseException] = []
    thread = threading.Thread(target=_exhaust, args=(data, failure), daemon=True)
    last: Mapping[str, int] = {}
    last_change, pause = time.monotonic(), POLL_SECONDS
    with display(totals) as shown:
        thread.start()
        while True:
            _wait(thread, lost, pause, place)
            asked = time.monotonic()
            counts = done()
            pause = min((time.monotonic() - asked) / COUNTING, LONGEST_PAUSE_SECONDS)
            shown.update(counts)
            if not thread.is_alive():
                break
            if counts != last:
                last, last_change = counts, time.monotonic()
            elif time.monotonic() - last_change > seconds:
                raise NoProgress(
                    f"no shard finished at any stage for {seconds} s "
                    f"(done: {counts}); cluster: {ray.cluster_resources()}, "
                    f"free: {ray.available_resources()}{last_words()}"
                )
    if failure:
        raise failure[0]


def _wait(thread: threading.Thread, lost: threading.Event, seconds: float, place: str) -> None:
    """Until the thread ends, or `seconds` are over and a poll; LeaseLost once `lost` is set."""
    until = time.monotonic() + seconds
    while True:
        thread.join(POLL_SECONDS)
        if not thread.is_alive():
            return
        if lost.is_set():
            raise LeaseLost(f"{place}: a lease was lost, so this driver stops")
        if time.monotonic() >= until:
            return


def _exhaust(data: Dataset, failure: list[BaseException]) -> None:
    """Runs a pipeline to its end; what it raises is kept, for the main thread to raise."""
    try:
        for _ in data.iter_batches(batch_size=None, batch_format="pyarrow"):
            pass
    except BaseException as error:
        failure.append(error)
