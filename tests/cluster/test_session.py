"""The watch over a pipeline: what it raises, and when."""

import threading
from collections.abc import Iterator
from typing import Any, cast

import pytest
from ray.data import Dataset

from pipeline.cluster import session
from pipeline.cluster.errors import LeaseLost, NoProgress

pytestmark = pytest.mark.cluster


class Pipeline:
    """What the watch asks of a Ray Data pipeline: batches, here none until `end` is set."""

    def __init__(self, failure: Exception | None = None) -> None:
        self.end, self._failure = threading.Event(), failure

    def iter_batches(self, **_: Any) -> Iterator[None]:
        self.end.wait()
        if self._failure is not None:
            raise self._failure
        yield None


def watch(pipeline: Pipeline, lost: threading.Event, counts: Iterator[int], seconds: int) -> None:
    session.watch(
        cast(Dataset, pipeline),
        lambda: {"encode": next(counts)},
        {"encode": 9},
        lost,
        seconds=seconds,
        place="/index",
        last_words=lambda: "; last words",
    )


@pytest.fixture
def running(monkeypatch: pytest.MonkeyPatch) -> Iterator[Pipeline]:
    """A pipeline that makes no progress until the test is over, looked at ten times a second."""
    import ray

    monkeypatch.setattr(session, "POLL_SECONDS", 0.1)
    ray.init(address="local", num_cpus=1, include_dashboard=False, log_to_driver=False)
    pipeline = Pipeline()
    yield pipeline
    pipeline.end.set()
    ray.shutdown()


def test_without_progress_the_watch_gives_up_and_says_where_things_stand(
    running: Pipeline,
) -> None:
    counts = iter([1, 1, 2, *[2] * 50])
    with pytest.raises(NoProgress, match=r"for 1 s \(done: {'encode': 2}\).*; last words"):
        watch(running, threading.Event(), counts, seconds=1)


def test_a_lost_lease_ends_the_watch() -> None:
    lost, pipeline = threading.Event(), Pipeline()
    lost.set()
    with pytest.raises(LeaseLost, match="/index: a lease was lost"):
        watch(pipeline, lost, iter(range(50)), seconds=60)
    pipeline.end.set()


def test_the_end_and_the_failure_of_a_pipeline_are_those_of_the_watch() -> None:
    done, failed = Pipeline(), Pipeline(ValueError("the third batch"))
    for pipeline in (done, failed):
        pipeline.end.set()
    watch(done, threading.Event(), iter(range(50)), seconds=60)
    with pytest.raises(ValueError, match="the third batch"):
        watch(failed, threading.Event(), iter(range(50)), seconds=60)
