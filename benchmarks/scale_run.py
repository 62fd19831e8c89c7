"""One run of the main job over a synthetic input, watched from its start to its end."""

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil

from benchmarks.process_peaks import Peaks, Watcher, watched

REPOSITORY = Path(__file__).resolve().parent.parent
READING, RUNNING, REPORTING = "reading", "running", "reporting"
_PART = re.compile(r"part-\d+\.parquet")


@dataclass(frozen=True)
class Ran:
    """What a run took. Seconds by the phase of the driver: it reads the input into shards, runs
    them on Ray, and sums up. `shards` counts the run's finished parts."""

    rows: int
    seconds: float
    phases: dict[str, float]
    peaks: Peaks
    files: int
    bytes_by_stage: dict[str, int]
    shards: int


class RunFailed(RuntimeError):
    """The job ended with another code than 0; the message holds its last lines."""


def config(folder: Path, questions: Path, *, shard: int, actors: int) -> Path:
    """The main job's config: given candidates, the fake model, the default arms."""
    settings = {
        "run": {"root": str(folder / "out"), "name": "scale", "rows_per_shard": shard},
        "input": {"format": "dpr", "questions": str(questions)},
        "generator": {"engine": "fake", "model": "fake", "max_model_len": 1_000_000},
        "probe": {"template": "chat", "top_k": 128, "max_tokens": 32},
        "selection": {"threshold": 0.05, "top_m": 3, "empty_context": "top1"},
        "cluster": {"generator": {"size": actors}},
    }
    path = folder / "scale.yaml"
    path.write_text(json.dumps(settings), encoding="utf-8")  # JSON is YAML
    return path


def run(settings: Path, rows: int) -> Ran:
    """Runs the job to its end. RunFailed where it does not end well."""
    root = settings.parent / "out"
    with started(settings) as (process, watcher, times):
        code = process.wait()
        times[REPORTING] = times.get(REPORTING, time.monotonic())
        ended = time.monotonic()
    if code != 0:
        last = (settings.parent / "log").read_text(encoding="utf-8").splitlines()[-3:]
        raise RunFailed(f"{settings}: ended with {code}: {' | '.join(last)}")
    starts = [times[phase] for phase in (READING, RUNNING, REPORTING)]
    spans = zip((READING, RUNNING, REPORTING), starts, [*starts[1:], ended], strict=True)
    found = sizes(root)
    return Ran(
        rows=rows,
        seconds=ended - starts[0],
        phases={phase: end - start for phase, start, end in spans},
        peaks=watcher.result(),
        files=sum(1 for path in root.rglob("*") if path.is_file()),
        bytes_by_stage=found,
        shards=len(parts(root, "contexts")),
    )


@contextmanager
def started(
    settings: Path,
) -> Iterator[tuple["subprocess.Popen[str]", Watcher, dict[str, float]]]:
    """The job under way, its watcher, and when each phase began; it is ended with the block."""
    environment = {key: value for key, value in os.environ.items() if key != "RAY_ADDRESS"}
    times = {READING: time.monotonic()}
    process = subprocess.Popen(
        [sys.executable, "jobs/offline_igp.py", str(settings)],
        cwd=REPOSITORY,
        env=environment,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    )
    with watched(process.pid, READING) as watcher:
        reader = threading.Thread(
            target=_listen, args=(process, watcher, times, settings.parent / "log"), daemon=True
        )
        reader.start()
        try:
            yield process, watcher, times
        finally:
            end(process, watcher)
            reader.join(timeout=10)


def end(process: "subprocess.Popen[str]", watcher: Watcher) -> None:
    """Ends the job and all that it started; Ray's daemons outlive a killed driver for a while."""
    if process.poll() is None:
        process.send_signal(signal.SIGTERM)
        try:
            process.wait(timeout=60)
        except subprocess.TimeoutExpired:
            process.kill()
    _, alive = psutil.wait_procs(watcher.seen, timeout=10)
    for one in alive:
        if one.is_running() and one.status() != psutil.STATUS_ZOMBIE:
            one.kill()


def _listen(
    process: "subprocess.Popen[str]", watcher: Watcher, times: dict[str, float], log: Path
) -> None:
    """Keeps the job's log, and takes its phase from it."""
    assert process.stderr is not None
    with log.open("w", encoding="utf-8") as kept:
        for line in process.stderr:
            kept.write(line)
            kept.flush()
            phase = _phase(line)
            if phase is not None:
                times.setdefault(phase, time.monotonic())
                watcher.phase = phase


def _phase(line: str) -> str | None:
    if not line.startswith("{"):
        return None
    said: dict[str, Any] = json.loads(line)
    if said["event"] == "starting":
        return RUNNING
    done = said["event"] == "progress" and said["shards_done"] == said["shards"]
    return REPORTING if done else None


def parts(root: Path, folder: str) -> list[Path]:
    """The parts in every folder of that name, or of a stage of that name."""
    found = [*root.glob(f"stages/{folder}-*/**/part-*"), *root.glob(f"runs/*/{folder}/part-*")]
    return [path for path in found if _PART.fullmatch(path.name)]


def sizes(root: Path) -> dict[str, int]:
    """Bytes of the parts by stage, the run's finished rows as `contexts`."""
    stages = sorted({path.name.rpartition("-")[0] for path in (root / "stages").iterdir()})
    return {
        name: sum(path.stat().st_size for path in parts(root, name))
        for name in (*stages, "contexts")
    }


def forget(folder: Path) -> None:
    """Removes a case's folder with all that it holds."""
    shutil.rmtree(folder)


def until_parts(process: "subprocess.Popen[str]", root: Path, number: int) -> float:
    """Seconds until the run has so many finished parts; RunFailed where the job ends before."""
    began = time.monotonic()
    while len(parts(root, "contexts")) < number:
        if process.poll() is not None:
            raise RunFailed(f"{root}: ended with {process.returncode} before part {number}")
        time.sleep(0.1)
    return time.monotonic() - began
