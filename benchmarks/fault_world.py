"""The main job in a world of its own: started, waited for, struck, and nothing of it left behind.

A world is a folder with an index and Ray's sessions. Whatever loses its parent becomes a child of
this process, so that every process of a run is found below it, and no other one is ever touched.
"""

import ctypes
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import psutil

REPOSITORY = Path(__file__).resolve().parent.parent
SHARD = 2
NODE = {"num_cpus": 2, "include_dashboard": False}
LIMIT_SECONDS = 600.0


@dataclass(frozen=True)
class Point:
    """When a fault comes: `delay_seconds` after so many parts of the stages lie on disk."""

    stages: tuple[str, ...]
    parts: int
    delay_seconds: float


class World:
    """One folder with an index, and the job over it in a process with a Ray of its own."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.environment = {k: v for k, v in os.environ.items() if k != "RAY_ADDRESS"}
        self.environment["RAY_TMPDIR"] = str(folder)
        command = [sys.executable, "jobs/build_index.py", "conf/build_index/demo.yaml"]
        command.append(f"index={self.folder}/index")
        subprocess.run(command, cwd=REPOSITORY, check=True, stdout=subprocess.DEVNULL)  # the index

    def start(self, root: Path, address: str | None = None) -> "subprocess.Popen[str]":
        """The job; what it says goes to a file beside its results."""
        settings = {
            "run.root": root,
            "run.rows_per_shard": SHARD,
            "retriever.index": self.folder / "index",
            "generator.engine": "fake",
            "generator.model": "delay=0.03",
            "cluster.generator.size": 2,
            "cluster.generator.num_cpus": 0.3,
            "cluster.watchdog_seconds": 180,
        }
        command = [sys.executable, "jobs/offline_igp.py", "conf/offline_igp/demo.yaml"]
        command += [f"{key}={value}" for key, value in settings.items()]
        environment = dict(self.environment)
        if address is not None:
            environment["RAY_ADDRESS"] = address
        root.mkdir(exist_ok=True)
        with (root / "said.txt").open("a") as said:
            return subprocess.Popen(
                command, cwd=REPOSITORY, env=environment, stdout=said, stderr=said, text=True
            )


def parts(root: Path, stages: tuple[str, ...]) -> int:
    """How many parts of some stages, or of the finished rows, lie on disk."""
    places = {stage: f"stages/{stage}-*/**/part-*.parquet" for stage in stages}
    if "contexts" in places:
        places["contexts"] = "runs/*/contexts/part-*.parquet"
    return sum(len(list(root.glob(place))) for place in places.values())


def wait_for(point: Point, root: Path, process: "subprocess.Popen[str]") -> None:
    """Returns at the point, or when the job has ended before it."""
    while process.poll() is None and parts(root, point.stages) < point.parts:
        time.sleep(0.02)
    time.sleep(point.delay_seconds)


def ended(process: "subprocess.Popen[str]") -> int:
    """The exit code of a job; one that does not end in time is killed."""
    try:
        return process.wait(LIMIT_SECONDS)
    except subprocess.TimeoutExpired:
        process.kill()
        return process.wait()


def actor(process: "subprocess.Popen[str]", *, retrieves: bool) -> psutil.Process | None:
    """A living actor below a job; the one that retrieves has loaded a Java machine."""
    for child in psutil.Process(process.pid).children(recursive=True):
        try:
            if child.cmdline()[:1] and "GroupActor" in child.cmdline()[0]:
                loaded = Path(f"/proc/{child.pid}/maps").read_text()
                if ("libjvm" in loaded) == retrieves:
                    return child
        except (psutil.Error, OSError):  # ended while we looked
            continue
    return None


@contextmanager
def two_raylets() -> Iterator[tuple[str, int]]:
    """The address of a cluster of two nodes, and the process of the raylet without its head."""
    from ray.cluster_utils import Cluster

    cluster = Cluster(initialize_head=True, head_node_args=NODE)
    try:
        node = cluster.add_node(**NODE)
        (raylet,) = node.all_processes["raylet"]
        yield cluster.address, raylet.process.pid
    finally:
        cluster.shutdown()


def strike(fault: str, process: "subprocess.Popen[str]", raylet: int | None) -> bool:
    """Does what the fault is; whether there was a victim."""
    if process.poll() is not None:
        return False
    if fault in ("driver", "sigterm"):
        process.send_signal(signal.SIGKILL if fault == "driver" else signal.SIGTERM)
        return True
    if fault == "raylet":
        assert raylet is not None
        os.kill(raylet, signal.SIGKILL)
        return True
    victim = actor(process, retrieves=fault == "retriever")
    if victim is not None:
        victim.kill()
    return victim is not None


@contextmanager
def no_cluster() -> Iterator[tuple[None, None]]:
    yield None, None


def adopt() -> None:
    """Makes this process the parent of every process below it that loses its own."""
    set_child_subreaper = 36
    if ctypes.CDLL(None, use_errno=True).prctl(set_child_subreaper, 1, 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), "prctl")


def descendants() -> set[psutil.Process]:
    """Every living process below this one; those that have ended are reaped."""
    living = set()
    for process in psutil.Process().children(recursive=True):
        with suppress(psutil.NoSuchProcess, ChildProcessError):
            if process.status() != psutil.STATUS_ZOMBIE:
                living.add(process)
            else:
                os.waitpid(process.pid, os.WNOHANG)
    return living
