"""Kills at random points of the main job, each against an undisturbed run, row for row.

    python -m benchmarks.fault_matrix [--points 25] [--first 0] [--faults driver,raylet]
        [--seed 1] [--folder FOLDER] [--out FILE]

Every run is the main job as a user types it: a real Ray, real BM25 over examples/, the fake
generator, shards of two questions. It is disturbed once, at a seeded point: a number of parts on
disk and a moment after it. Then the same command is run again, and what lies in the run's folder
is compared with the undisturbed run's. This process adopts whatever loses its parent, so that no
process of a run can hide from the count of those that are left behind.
"""

import argparse
import json
import os
import random
import shutil
import signal
import statistics
import tempfile
import time
from collections import Counter
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path

import psutil
import pyarrow.parquet as pq
from rich.console import Console
from rich.progress import Progress

from benchmarks import fault_world
from benchmarks.fault_world import SHARD, Point, World, descendants, ended, no_cluster
from benchmarks.processes import machine

FAULTS = {
    "driver": "kill -9 of the driver",
    "generator": "kill -9 of a probe actor",
    "retriever": "kill -9 of the retrieval actor",
    "raylet": "kill -9 of the second of two raylets",
    "sigterm": "SIGTERM to the driver",
}
STAGES = {"generator": ("probe", "answer"), "retriever": ("retrieve",)}
"""The stages that an actor works for; the other faults may come at any time of a run."""
QUESTIONS = 50
SHARDS = QUESTIONS // SHARD
TRIES = 5
"""A point at which the victim is not alive, or no longer, is drawn again so many times."""
RESUMES = 3
AGENTS_SECONDS = 120.0
"""Ray's agents notice a lost head within about a minute; later than this they are orphans."""
BAD = ("lost", "doubled", "changed", "dead", "unclean")
"""What should be zero in every Outcome."""


@dataclass(frozen=True)
class Outcome:
    """What one disturbed run came to.

    `unaided`: it reached its end by itself. `resumes`: how often the command was given again, once
    at least, until it ended well; a busy machine may fail to start a Ray.
    """

    lost: int
    doubled: int
    changed: int
    dead: int
    unaided: int
    resumes: int
    unclean: int
    seconds: float


def draw(fault: str, number: int, seed: int) -> Point:
    """The number-th point of a fault; a tenth of those of the whole job fall into its start."""
    chance = random.Random(f"{seed} {fault} {number}")
    stages = STAGES.get(fault, ("retrieve", "probe", "answer", "contexts"))
    if fault not in STAGES and chance.random() < 0.1:
        return Point(stages, 0, chance.uniform(0, 8))
    last = len(stages) * SHARDS - 1
    return Point(stages, chance.randint(1, last), chance.uniform(0, 0.1))


def disturb(
    world: World, fault: str, point: Point, root: Path, expected: dict[str, list[str]]
) -> Outcome | None:
    """Runs the job with the fault, then again to its end; None where there was no victim.

    A stop by SIGTERM is unclean unless the job says that it is incomplete, or is hit before it
    begins, and holds no lease.
    """
    with fault_world.two_raylets() if fault == "raylet" else no_cluster() as (address, raylet):
        started = time.monotonic()
        process = world.start(root, address)
        fault_world.wait_for(point, root, process)
        struck = fault_world.strike(fault, process, raylet)
        code = ended(process)
        stopped = code in (1, -signal.SIGTERM) and not any(root.rglob("lease.json"))
        resumes = 1
        while ended(world.start(root, address)) != 0 and resumes < RESUMES:
            resumes += 1
        seconds = time.monotonic() - started
    if not struck:
        return None
    unclean = fault == "sigterm" and not stopped
    counts = compare(root, expected)
    return Outcome(
        **counts,
        unaided=int(code == 0),
        resumes=resumes,
        unclean=int(unclean),
        seconds=seconds,
    )


def finished(root: Path) -> dict[str, list[str]]:
    """Every finished row by its question's id, as text with its place: file and row."""
    rows: dict[str, list[str]] = {}
    for part in sorted(root.glob("runs/*/contexts/part-*.parquet")):
        for number, row in enumerate(pq.read_table(part).to_pylist()):
            rows.setdefault(row["question_id"], []).append(f"{part.name} {number} {row!r}")
    return rows


def compare(root: Path, expected: dict[str, list[str]]) -> dict[str, int]:
    """Rows lost, doubled, changed and dead against an undisturbed run's."""
    found = finished(root)
    letters = [pq.read_table(part) for part in root.glob("runs/*/dead_letters/part-*.parquet")]
    return {
        "lost": len(expected.keys() - found.keys()),
        "doubled": sum(len(rows) - 1 for rows in found.values()),
        "changed": sum(rows[:1] != expected.get(key) for key, rows in found.items()),
        "dead": sum(len(table) for table in letters),
    }


class Matrix:
    """What is known so far: every draw in a file of JSON lines, which a further call goes on from.

    `left` are the processes that were there after a fault's runs.
    """

    def __init__(self, args: argparse.Namespace, world: World) -> None:
        self._args, self._world = args, world
        self._log = world.folder / "draws.jsonl"
        self.outcomes: dict[str, list[Outcome]] = {fault: [] for fault in args.faults}
        self.draws = Counter(dict.fromkeys(args.faults, args.first))
        self.left: dict[str, set[psutil.Process]] = {fault: set() for fault in args.faults}
        if self._log.exists():
            for line in self._log.read_text().splitlines():
                entry = json.loads(line)
                self._count(entry["fault"], entry["outcome"] and Outcome(**entry["outcome"]))
        self._undisturb()

    def _undisturb(self) -> None:
        root = self._world.folder / "undisturbed"
        started = time.monotonic()
        if ended(self._world.start(root)) != 0:
            raise RuntimeError((root / "said.txt").read_text())
        self._undisturbed_seconds = time.monotonic() - started
        self._expected = finished(root)
        shutil.rmtree(root)
        if len(self._expected) != QUESTIONS:
            raise RuntimeError(f"{len(self._expected)} rows undisturbed, expected {QUESTIONS}")

    def _count(self, fault: str, outcome: Outcome | None) -> None:
        self.draws[fault] += 1
        if outcome is not None:
            self.outcomes[fault].append(outcome)

    def add(self, fault: str) -> str:
        """Another point of a fault, drawn again where it finds no victim; what came of it."""
        for number in range(self.draws[fault], self.draws[fault] + TRIES):
            point, root = (
                draw(fault, number, self._args.seed),
                self._world.folder / f"{fault}-{number}",
            )
            outcome = disturb(self._world, fault, point, root, self._expected)
            self.left[fault] |= descendants()
            with self._log.open("a") as log:
                entry = {"fault": fault, "outcome": outcome and asdict(outcome)}
                log.write(json.dumps(entry) + "\n")
            self._count(fault, outcome)
            if outcome is None or not any(getattr(outcome, name) for name in BAD):
                shutil.rmtree(root)
            if outcome is not None:
                return f"{fault} {number}: {point} -> {outcome}"
        raise RuntimeError(f"{fault}: no victim at {TRIES} points, the last one {point}")

    def orphans(self) -> dict[str, int]:
        """How many processes each fault's runs left behind for good; they are ended here."""
        _, alive = psutil.wait_procs(set().union(*self.left.values()), timeout=AGENTS_SECONDS)
        living = descendants().intersection(alive)
        for process in living:
            process.kill()
        return {fault: len(found & living) for fault, found in self.left.items()}

    def table(self, orphaned: Mapping[str, int]) -> str:
        """The result as Markdown."""
        args, runs = self._args, sum(map(len, self.outcomes.values()))
        lines = [
            "# Fault matrix",
            "",
            f"`python -m benchmarks.fault_matrix --points {args.points} --first {args.first} "
            f"--seed {args.seed}`: "
            f"{runs} disturbed runs of {QUESTIONS} questions in {SHARDS} shards, each followed by "
            "the same command and compared with an undisturbed run row for row, in every column.",
            "",
            f"{machine(('ray', 'pyarrow', 'pyserini'))}. An undisturbed run took "
            f"{self._undisturbed_seconds:.0f} s; seconds are of the disturbed run and the one "
            "after it.",
            "",
            "| fault | kills | ended unaided | resumes, max | rows expected | lost | doubled "
            "| changed | dead letters | unclean stops | processes left | points drawn "
            "| seconds, median (max) |",
            "|---|---|---|---|---|---|---|---|---|---|---|---|---|",
        ]
        for fault, of in self.outcomes.items():
            sums = [sum(getattr(outcome, name) for outcome in of) for name in BAD]
            seconds = [outcome.seconds for outcome in of]
            spread = f"{statistics.median(seconds):.0f} ({max(seconds):.0f})" if seconds else "-"
            unaided = sum(outcome.unaided for outcome in of)
            resumes = max((outcome.resumes for outcome in of), default=0)
            cells = [FAULTS[fault], len(of), unaided, resumes, QUESTIONS * len(of), *sums]
            drawn = self.draws[fault] - args.first
            cells += [orphaned.get(fault, "-"), drawn, spread]
            lines.append("| " + " | ".join(map(str, cells)) + " |")
        return "\n".join(lines) + "\n"


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--points", type=int, default=25, help="kills of each fault")
    parser.add_argument("--first", type=int, default=0, help="number of the first point")
    parser.add_argument("--faults", default=",".join(FAULTS), type=lambda text: text.split(","))
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument(
        "--folder", type=Path, help="where it works; one that is there is gone on with"
    )
    parser.add_argument("--out", type=Path, help="file for the table, written after every round")
    args = parser.parse_args()
    if unknown := sorted(set(args.faults) - set(FAULTS)):
        parser.error(f"unknown faults {unknown}; known: {', '.join(FAULTS)}")
    fault_world.adopt()
    # A short name: Ray's sockets lie below it.
    folder = args.folder or Path(tempfile.mkdtemp(prefix="faults-"))
    folder.mkdir(parents=True, exist_ok=True)
    os.environ["RAY_TMPDIR"] = str(folder)
    os.environ.pop("RAY_ADDRESS", None)
    matrix = Matrix(args, World(folder))
    with Progress(console=Console(stderr=True, width=200)) as progress:
        task = progress.add_task("kills", total=args.points * len(args.faults))
        for point in range(args.points):
            for fault in args.faults:
                if len(matrix.outcomes[fault]) <= point:
                    progress.console.print(matrix.add(fault))
                progress.advance(task)
            if args.out:
                args.out.write_text(matrix.table({}))
    result = matrix.table(matrix.orphans())
    print(result)
    if args.out:
        args.out.write_text(result)


if __name__ == "__main__":
    main()
