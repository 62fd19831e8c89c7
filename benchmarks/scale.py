"""Cost per question as the input grows: the main job's full plan over n questions x 5 candidates.

    python -m benchmarks.scale [--rows 10000,100000] [--resume-rows 10000] [--split-rows 50000]
        [--small-rows 10000] [--long] [--actors 2] [--work FOLDER] [--out FILE]

Every case is a run of jobs/offline_igp.py on a local Ray with the fake model and the default arms,
over synthetic text (scale_input): source, probe, select, answer, evaluate, finish. Start-up is that
of a run of two shards an actor, and is taken off before anything is divided by rows. `--split-rows
n` runs n questions as five runs of n / 5; `--small-rows n` has shards of five questions, so that
files cost the most; `--resume-rows n` kills a run half-way with SIGKILL and measures how soon the
next one, stopped then, has made a shard that was missing; `--long` has passages of 10 kB, and then
100 candidates a question. The result is a table in Markdown.
"""

import argparse
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from benchmarks import scale_input, scale_run
from benchmarks.processes import end_with_workers, machine
from benchmarks.scale_input import Shape
from benchmarks.scale_run import Ran
from benchmarks.scale_tables import Resumed, costs, long_rows, memory, resumes, small_shards, stages

SHARD = 256
PACKAGES = ("ray", "pyarrow", "numpy")
SPLIT = 5
SMALL = 5  # questions of a small shard
LONG_WORDS = 1_900  # words of a passage of about 10 kB


@dataclass(frozen=True)
class Settings:
    """Where the cases write, and on how many actors they run."""

    work: Path
    actors: int


@contextmanager
def case(settings: Settings, name: str, shape: Shape, *, shard: int = SHARD) -> Iterator[Path]:
    """The config of a case with its input written; its folder is removed at the end."""
    folder = settings.work / name
    folder.mkdir()
    say(f"{name}: writing {shape.rows} questions")
    questions = folder / "questions.jsonl"
    scale_input.write(questions, shape)
    try:
        yield scale_run.config(folder, questions, shard=shard, actors=settings.actors)
    finally:
        scale_run.forget(folder)


def startup_rows(actors: int) -> int:
    """Questions of two shards an actor."""
    return 2 * actors * SHARD


def measure(settings: Settings, name: str, shape: Shape, *, shard: int = SHARD) -> Ran:
    """One whole run of a case."""
    with case(settings, name, shape, shard=shard) as path:
        ran = scale_run.run(path, shape.rows)
    say(f"{name}: {ran.seconds:.1f} s, {ran.peaks.cpu_seconds:.1f} CPU s")
    return ran


def split(settings: Settings, rows: int) -> list[Ran]:
    """As many questions in several runs under one root, each over its own part of them."""
    size = rows // SPLIT
    shapes = [Shape(size, first=size * part) for part in range(SPLIT)]
    with case(settings, f"split-{rows}", shapes[0]) as path:
        made = []
        for number, shape in enumerate(shapes):
            scale_input.write(path.parent / "questions.jsonl", shape)
            made.append(scale_run.run(path, size))
            say(f"split-{rows}: run {number + 1} of {SPLIT}, {made[-1].seconds:.1f} s")
    return made


def resume(settings: Settings, rows: int) -> Resumed:
    """A run killed when half of its shards are finished, and the next one up to its first shard."""
    with case(settings, f"resume-{rows}", Shape(rows)) as path:
        root, shards = path.parent / "out", -(-rows // SHARD)
        with scale_run.started(path) as (process, _, _):
            scale_run.until_parts(process, root, shards // 2)
            process.send_signal(signal.SIGKILL)
            process.wait()
        finished, kept = scale_run.parts(root, "contexts"), scale_run.parts(root, "probe")
        stamps = {part: part.stat().st_mtime_ns for part in (*finished, *kept)}
        with scale_run.started(path) as (process, _, times):
            began = time.monotonic()
            first = scale_run.until_parts(process, root, len(finished) + 1)
            connected = times[scale_run.RUNNING] - began
        touched = sum(part.stat().st_mtime_ns != stamp for part, stamp in stamps.items())
    say(f"resume-{rows}: first new shard after {first:.1f} s, {touched} stored parts touched")
    return Resumed(rows, shards, len(finished), connected, first, touched)


def say(text: str) -> None:
    """A line of progress."""
    print(f"{time.strftime('%H:%M:%S')} {text}", file=sys.stderr, flush=True)


def report(
    whole: Sequence[Ran],
    startup: Ran,
    parted: Sequence[Ran],
    resumed: Sequence[Resumed],
    long: Sequence[tuple[str, Ran]],
    small: Sequence[Ran],
) -> str:
    """All tables, in Markdown."""
    sections: list[tuple[str, Callable[[], str]]] = [
        ("Cost per question", lambda: costs(whole, startup, parted)),
        ("Peak memory", lambda: memory([startup, *whole])),
        ("Bytes and files", lambda: stages(whole)),
    ]
    if resumed:
        sections.append(("Resume of a run killed half-way", lambda: resumes(resumed)))
    if small:
        title = f"Shards of {SMALL} questions"
        sections.append((title, lambda: small_shards([*whole, *small], startup)))
    if long:
        sections.append(("Long passages, many candidates", lambda: long_rows(long)))
    lines = [
        "# Cost per question as the input grows",
        "",
        f"`python -m benchmarks.scale {' '.join(sys.argv[1:])}`",
        "",
        machine(PACKAGES),
    ]
    for title, made in sections:
        lines += ["", f"## {title}", "", made()]
    return "\n".join(lines) + "\n"


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", default="10000,100000", help="sizes, with commas between")
    parser.add_argument("--resume-rows", type=int)
    parser.add_argument("--split-rows", type=int)
    parser.add_argument("--small-rows", type=int)
    parser.add_argument("--long", action="store_true")
    parser.add_argument("--actors", type=int, default=2)
    parser.add_argument("--work", type=Path, help="folder for inputs and runs; default: temporary")
    parser.add_argument("--out", type=Path)
    args = parser.parse_args()
    least = startup_rows(args.actors)
    sizes = [*map(int, args.rows.split(",")), *filter(None, (args.small_rows, args.resume_rows))]
    if args.split_rows is not None:
        sizes.append(args.split_rows // SPLIT)
    if few := [size for size in sizes if size <= least]:
        parser.error(f"a run of {few[0]} questions; allowed: more than the {least} of the start")
    end_with_workers()
    with tempfile.TemporaryDirectory(prefix="scale-", dir=args.work) as work:
        for made in reports(Settings(Path(work), args.actors), args):
            if args.out:  # after every case: the largest may be stopped
                args.out.write_text(made, encoding="utf-8")
    print(made)


def reports(settings: Settings, args: argparse.Namespace) -> Iterator[str]:
    """The report after every case that it gained, the sizes first."""
    startup = measure(settings, "startup", Shape(startup_rows(settings.actors)))
    whole, parted = list[Ran](), list[Ran]()
    resumed, long, small = list[Resumed](), list[tuple[str, Ran]](), list[Ran]()

    def made() -> str:
        return report(whole, startup, parted, resumed, long, small)

    for rows in map(int, args.rows.split(",")):
        whole.append(measure(settings, f"rows-{rows}", Shape(rows)))
        yield made()
    if args.long:
        tall, wide = Shape(200, words=LONG_WORDS), Shape(50, candidates=100, words=LONG_WORDS)
        long.append(("5 x 10 kB", measure(settings, "long", tall)))
        long.append(("100 x 10 kB", measure(settings, "wide", wide)))
        yield made()
    if args.small_rows:
        rows = args.small_rows
        small.append(measure(settings, f"small-{rows}", Shape(rows), shard=SMALL))
        yield made()
    if args.resume_rows:
        resumed.append(resume(settings, args.resume_rows))
        yield made()
    if args.split_rows:
        parted.extend(split(settings, args.split_rows))
        yield made()


if __name__ == "__main__":
    main()
