"""The processes below a job while it runs: peak memory by role, CPU seconds, the driver by phase.

A process's own memory is what it does not share: resident pages without those of files and of
Ray's object store, which every reader maps. The store's high-water mark is what the raylet has
touched of it. A process that ends between two looks loses at most that much of its CPU time.
"""

import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import psutil

LOOK_SECONDS = 0.5
DRIVER = "driver"
_ROLES = (
    ("actor", r"GroupActor"),
    ("task worker", r"^ray::(IDLE|.*MapBatches)"),
    ("raylet", r"raylet/raylet"),
    ("gcs", r"gcs_server"),
)
OTHER = "others of Ray"
_SPILLED = re.compile(r"Spilled (\d+) MiB, (\d+) objects")


@dataclass
class Peaks:
    """What was seen: bytes by role, of the largest process of each; seconds of all together."""

    own_bytes: dict[str, int] = field(default_factory=dict)
    processes: dict[str, int] = field(default_factory=dict)
    driver_bytes: dict[str, int] = field(default_factory=dict)
    total_bytes: int = 0
    store_bytes: int = 0
    spilled_mib: int = 0
    cpu_seconds: float = 0.0
    cpu_by_role: dict[str, float] = field(default_factory=dict)


class Watcher:
    """Looks at a process and its descendants; `phase` names what the driver is at."""

    def __init__(self, pid: int, phase: str) -> None:
        self.phase, self.peaks = phase, Peaks()
        self._root = psutil.Process(pid)
        self.seen: dict[psutil.Process, str] = {}
        self._cpu: dict[psutil.Process, float] = {}
        self._sessions: set[str] = set()

    def look(self) -> None:
        """One look at every living process."""
        total, number = 0, dict[str, int]()
        for process in self._alive():
            try:
                with process.oneshot():
                    role, memory = self._role(process), process.memory_info()
                    times = process.cpu_times()
            except psutil.NoSuchProcess:
                continue
            own = memory.rss - memory.shared
            total, number[role] = total + own, number.get(role, 0) + 1
            self._cpu[process] = times.user + times.system
            self.peaks.own_bytes[role] = max(self.peaks.own_bytes.get(role, 0), own)
            if role == DRIVER:
                now = self.peaks.driver_bytes
                now[self.phase] = max(now.get(self.phase, 0), own)
            if role == "raylet":
                self.peaks.store_bytes = max(self.peaks.store_bytes, memory.shared)
        self.peaks.total_bytes = max(self.peaks.total_bytes, total)
        for role, count in number.items():
            self.peaks.processes[role] = max(self.peaks.processes.get(role, 0), count)

    def result(self) -> Peaks:
        """The peaks, with CPU seconds summed and what the raylets said of spilling."""
        self.peaks.cpu_seconds = sum(self._cpu.values())
        for process, seconds in self._cpu.items():
            role = self.seen[process]
            self.peaks.cpu_by_role[role] = self.peaks.cpu_by_role.get(role, 0.0) + seconds
        logs = [Path(session) / "logs" / "raylet.out" for session in self._sessions]
        said = [_SPILLED.findall(log.read_text(errors="replace")) for log in logs if log.exists()]
        self.peaks.spilled_mib = sum(int(found[-1][0]) for found in said if found)
        return self.peaks

    def _alive(self) -> list[psutil.Process]:
        try:
            return [self._root, *self._root.children(recursive=True)]
        except psutil.NoSuchProcess:
            return []

    def _role(self, process: psutil.Process) -> str:
        """By command line; a worker's changes when it is given its task."""
        if process == self._root:
            return self.seen.setdefault(process, DRIVER)
        line = process.cmdline()
        if not line:  # it has ended
            return self.seen.get(process, OTHER)
        command = " ".join(line)
        role = next((role for role, known in _ROLES if re.search(known, command)), OTHER)
        if role == "raylet":
            given = (word.partition("=") for word in line)
            self._sessions |= {value for name, _, value in given if name == "--session_dir"}
        self.seen[process] = role
        return role


@contextmanager
def watched(pid: int, phase: str) -> Iterator[Watcher]:
    """A watcher that looks twice a second until the block ends."""
    watcher, ended = Watcher(pid, phase), threading.Event()

    def watch() -> None:
        while not ended.wait(LOOK_SECONDS):
            watcher.look()

    thread = threading.Thread(target=watch, daemon=True)
    thread.start()
    try:
        yield watcher
    finally:
        ended.set()
        thread.join()
