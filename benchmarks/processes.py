"""Benchmark workers: each a process of its own, with the CPU and memory of its whole tree.

A worker is `python -m MODULE SPEC`. On its standard output it says when a measured pass begins
(`begin`) and ends (`end`, with what it found); CPU seconds and wall time are read off by the parent
between the two, so the worker is not charged for being measured. Every process keeps its last
reading after its end: nothing that lived in between is lost.
"""

import json
import os
import platform
import signal
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import Any

import psutil

SAMPLE_SECONDS = 0.5
ENGINE = "VLLM::"
"""What the names of vLLM's engine processes begin with."""
REPOSITORY = Path(__file__).resolve().parent.parent


@dataclass(frozen=True)
class Pass:
    """One measured pass: CPU seconds inside and outside vLLM's processes, peak resident bytes of
    the tree (pages that processes share are counted in each), and what the worker found."""

    wall: float
    engine: float
    outside: float
    peak_bytes: int
    found: dict[str, Any]

    @property
    def cpu(self) -> float:
        """Seconds of the whole tree."""
        return self.engine + self.outside


class WorkerError(RuntimeError):
    """A worker that ended early or late; the message holds its last words."""


def end_with_workers() -> None:
    """Makes SIGTERM an exit by exception, so that no worker outlives this process."""
    signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(128 + number))


def say(event: str, **values: Any) -> None:
    """A line for the parent, from a worker."""
    print(json.dumps({"event": event, **values}), flush=True)


class _Tree:
    """CPU seconds and resident bytes of a process and its descendants, the dead included."""

    def __init__(self, pid: int) -> None:
        self._root = psutil.Process(pid)
        self._seen: set[psutil.Process] = set()
        self._cpu: dict[tuple[int, float], tuple[bool, float]] = {}
        self._lock = threading.Lock()
        self.peak_bytes = 0

    def read(self) -> tuple[float, float, float]:
        """(time, engine CPU seconds, other CPU seconds) until now."""
        with self._lock:
            resident = 0
            for process in self._alive():
                self._seen.add(process)
                try:
                    with process.oneshot():
                        times, size = process.cpu_times(), process.memory_info().rss
                        key = (process.pid, process.create_time())
                        in_engine = process.name().startswith(ENGINE)
                except psutil.NoSuchProcess:
                    continue
                resident += size
                self._cpu[key] = (in_engine, times.user + times.system)
            self.peak_bytes = max(self.peak_bytes, resident)
            engine = sum(cpu for in_engine, cpu in self._cpu.values() if in_engine)
            other = sum(cpu for in_engine, cpu in self._cpu.values() if not in_engine)
            return time.monotonic(), engine, other

    def _alive(self) -> list[psutil.Process]:
        try:
            return [self._root, *self._root.children(recursive=True)]
        except psutil.NoSuchProcess:
            return []

    def end(self) -> None:
        """Ends whatever of it still runs, orphans included."""
        left = {process for process in self._seen | {*self._alive()} if process.is_running()}
        for how in (psutil.Process.terminate, psutil.Process.kill):
            for process in left:
                with suppress(psutil.NoSuchProcess):
                    how(process)
            left = set(psutil.wait_procs(left, timeout=5)[1])


def run(module: str, spec: Mapping[str, Any], *, timeout: float) -> list[Pass]:
    """Every pass of a new worker, which has ended with all that it started when this returns.

    WorkerError where it fails or takes longer than `timeout` seconds.
    """
    passes: list[Pass] = []
    with _started(module, spec, timeout) as (process, tree):
        before = tree.read()
        assert process.stdout is not None
        for line in process.stdout:
            if not line.startswith('{"event"'):
                continue  # libraries print, too
            said = json.loads(line)
            now = tree.read()
            if said["event"] == "begin":
                tree.peak_bytes, before = 0, tree.read()
                continue
            inner = said.pop("engine_cpu", 0.0)  # of an engine in the worker's own process
            wall, engine, outside = (b - a for a, b in zip(before, now, strict=True))
            passes.append(Pass(wall, engine + inner, outside - inner, tree.peak_bytes, said))
    return passes


@contextmanager
def _started(
    module: str, spec: Mapping[str, Any], timeout: float
) -> Iterator[tuple["subprocess.Popen[str]", _Tree]]:
    with tempfile.TemporaryFile("w+") as errors:
        process = subprocess.Popen(
            [sys.executable, "-m", module, json.dumps(spec)],
            stdout=subprocess.PIPE,
            stderr=errors,
            text=True,
            cwd=REPOSITORY,
            env={**os.environ, "PYTHONPATH": str(REPOSITORY)},  # for Ray's workers, too
        )
        tree, ended = _Tree(process.pid), threading.Event()
        sampler = threading.Thread(target=_sample, args=(tree, ended, timeout), daemon=True)
        sampler.start()
        try:
            yield process, tree
            code = process.wait(timeout=60)
        finally:
            ended.set()
            sampler.join()
            tree.end()
        if code != 0:
            errors.seek(0)
            last = " | ".join(errors.read().strip().splitlines()[-4:])
            raise WorkerError(f"{module} {dict(spec)}: ended with {code}: {last}")


def _sample(tree: _Tree, ended: threading.Event, timeout: float) -> None:
    """Reads the tree now and then, and ends it after `timeout` seconds."""
    stop = time.monotonic() + timeout
    while not ended.wait(SAMPLE_SECONDS):
        tree.read()
        if time.monotonic() > stop:
            tree.end()


def spread(values: Sequence[float], digits: int = 3) -> str:
    """Median (min-max) to so many significant digits."""
    low, middle, high = min(values), statistics.median(values), max(values)
    return f"{_number(middle, digits)} ({_number(low, digits)}-{_number(high, digits)})"


def _number(value: float, digits: int) -> str:
    text = f"{value:.{digits}g}"
    return f"{float(text):.0f}" if "e" in text else text


def machine(packages: Sequence[str]) -> str:
    """The machine and the versions, in one line; no name of a host."""
    versions = ", ".join(f"{name} {metadata.version(name)}" for name in packages)
    memory = psutil.virtual_memory().total / 2**30
    return (
        f"{os.cpu_count()} shared cores ({platform.machine()}), {memory:.0f} GiB, "
        f"Python {platform.python_version()}, {versions}; {time.strftime('%Y-%m-%d')}"
    )
