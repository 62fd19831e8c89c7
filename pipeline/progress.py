"""What a run has done so far, seen from its directories: a live display, or JSON log lines.

Counting parts on disk shows the same thing from any process and after any crash.
"""

import json
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Protocol

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

LOG_SECONDS = 10.0


class Display(Protocol):
    """Shows what is done of every stage, in shards or another unit; called every second or so."""

    def update(self, done: Mapping[str, int]) -> None:
        """`done` has the units done of every stage."""


class _Bars:
    def __init__(self, progress: Progress, totals: Mapping[str, int]) -> None:
        self._progress = progress
        self._tasks = {name: progress.add_task(name, total=n) for name, n in totals.items()}

    def update(self, done: Mapping[str, int]) -> None:
        for name, count in done.items():
            self._progress.update(self._tasks[name], completed=count)


class _Lines:
    def __init__(self, totals: Mapping[str, int], unit: str) -> None:
        self._totals, self._unit = totals, unit
        self._last, self._next = dict[str, int](), 0.0

    def update(self, done: Mapping[str, int]) -> None:
        now = time.monotonic()
        if dict(done) == self._last or (now < self._next and done != self._totals):
            return
        self._last, self._next = dict(done), now + LOG_SECONDS
        log("progress", **{f"{self._unit}_done": dict(done), self._unit: dict(self._totals)})


@contextmanager
def display(totals: Mapping[str, int], *, unit: str = "shards") -> Iterator[Display]:
    """Bars on a terminal, JSON lines elsewhere; `totals` has the units of every stage."""
    if not sys.stderr.isatty():
        yield _Lines(totals, unit)
        return
    columns = (
        TextColumn("{task.description:>10}"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn(unit),
        TimeElapsedColumn(),
    )
    with Progress(*columns, console=Console(stderr=True)) as progress:
        yield _Bars(progress, totals)


def say(event: str, **values: object) -> None:
    """One line on the error stream: plain text on a terminal, JSON elsewhere."""
    if not sys.stderr.isatty():
        log(event, **values)
        return
    text = "; ".join(f"{name} {value}" for name, value in values.items())
    print(f"{event}: {text}", file=sys.stderr, flush=True)


def log(event: str, **values: object) -> None:
    """One JSON line on the error stream."""
    stamp = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
    print(json.dumps({"time": stamp, "event": event, **values}), file=sys.stderr, flush=True)
