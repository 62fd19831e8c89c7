"""What an update of corpus or log costs in rollouts: jobs/precompute_contexts.py, date by date.

    python -m benchmarks.corpus_update [--passages 2000] [--questions 500] [--seed 7] [--out FILE]

Every date is the job as a user types it: a real Ray, a BM25 index that is built anew, the fake
generator, N = 5. The prompts that a date adds are counted from the candidates, apart from the job,
and must be the rollouts that it made. Words are syllables strung together; a question is made of
words of one passage.
"""

import argparse
import datetime
import json
import random
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import polars as pl

from benchmarks.processes import REPOSITORY, machine

FIRST = datetime.date(2026, 11, 29)
NAME, WORDS, TOPICS = "update", 60, 40
Prompt = tuple[str, str | None]
"""A question and a passage's contents, or None without evidence."""


@dataclass
class World:
    """A corpus and a log, in files that are written anew for every date."""

    passages: int
    questions: int
    chance: random.Random
    corpus: dict[str, str] = field(default_factory=dict)
    log: dict[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        words = ["".join(self._syllables()) for _ in range(4000)]
        self._topics = [self.chance.choices(words, k=200) for _ in range(TOPICS)]
        self.add_passages(self.passages)
        self.add_questions(self.questions)

    def add_passages(self, count: int) -> None:
        for number in range(len(self.corpus), len(self.corpus) + count):
            title, *text = self.chance.choices(self.chance.choice(self._topics), k=WORDS)
            self.corpus[f"p{number}"] = f"{title}\n{' '.join(text)}."

    def reword(self, count: int) -> None:
        """Passages of which one word becomes another."""
        for name in self.chance.sample(sorted(self.corpus), count):
            words = self.corpus[name].split(" ")
            words[self.chance.randrange(1, len(words))] = "".join(self._syllables())
            self.corpus[name] = " ".join(words)

    def add_questions(self, count: int) -> None:
        for number in range(len(self.log), len(self.log) + count):
            of = self.chance.choice(list(self.corpus.values())).rstrip(".").split()
            self.log[f"q{number}"] = f"who {' '.join(self.chance.sample(of, 6))}?"

    def write(self, folder: Path) -> None:
        corpus = [{"id": one, "contents": text} for one, text in self.corpus.items()]
        log = [{"id": one, "question": text} for one, text in self.log.items()]
        for name, rows in (("corpus", corpus), ("questions", log)):
            lines = "".join(f"{json.dumps(row)}\n" for row in rows)
            (folder / f"{name}.jsonl").write_text(lines, encoding="utf-8")

    def _syllables(self) -> Iterator[str]:
        for _ in range(self.chance.randint(2, 4)):
            yield self.chance.choice("bcdfghklmnprstvz") + self.chance.choice("aeiou")


def job(name: str, config: str, *overrides: str) -> str:
    """A job as a user types it; what it said."""
    arguments = [sys.executable, f"jobs/{name}.py", f"conf/{name}/{config}.yaml", *overrides]
    done = subprocess.run(arguments, cwd=REPOSITORY, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"jobs/{name}.py ended with {done.returncode}: {done.stderr[-2000:]}")
    return done.stdout


def date(world: World, folder: Path, day: datetime.date) -> tuple[dict[str, Any], set[Prompt]]:
    """The manifest of a date's contexts, and the prompts of its candidates."""
    world.write(folder)
    index = f"{folder}/index-{day}"
    job("build_index", "demo", f"corpus={folder}/corpus.jsonl", f"index={index}")
    given = (f"input.questions={folder}/questions.jsonl", f"retriever.index={index}")
    run = (f"run.root={folder}/out", f"run.name={NAME}", "run.rows_per_shard=100")
    fake = ("generator.engine=fake", "generator.model=fake")
    job("precompute_contexts", "demo", f"date={day}", *given, *run, *fake)
    path = folder / "out/contexts" / NAME / f"date={day}" / "manifest.json"
    made: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    prompts: set[Prompt] = set()
    rows = pl.read_parquet(f"{folder}/out/{made['run']}/contexts/*.parquet")
    for question, candidates in rows.select("question", "candidates").iter_rows():
        prompts |= {(question, None)}
        prompts |= {(question, f"{one['title']}\n{one['text']}") for one in candidates}
    return made, prompts


def measure(world: World, folder: Path) -> Iterator[list[object]]:
    """A row of the table for every date."""
    share = world.passages // 100
    changes: dict[str, Callable[[], None]] = {
        "the first time": lambda: None,
        "nothing has changed": lambda: None,
        f"{share} passages reworded (1%)": lambda: world.reword(share),
        f"{share} passages more (1%)": lambda: world.add_passages(share),
        f"{world.questions // 100} questions more (1%)": (
            lambda: world.add_questions(world.questions // 100)
        ),
    }
    seen: set[Prompt] = set()
    known: set[str] = set()
    for number, (said, change) in enumerate(changes.items()):
        change()
        made, prompts = date(world, folder, FIRST + datetime.timedelta(days=number))
        fresh, new = made["work"]["probe"]["rollouts"], prompts - seen
        if fresh != len(new):
            raise RuntimeError(f"{said}: {fresh} rollouts for {len(new)} new prompts")
        asked = {question for question, _ in seen}
        of_new = sum(question not in asked for question, _ in new)
        of_changed = sum(q in asked and text not in known for q, text in new)
        contexts = [made[name] for name in ("new", "changed", "unchanged")]
        moved = len(new) - of_new - of_changed
        yield [said, len(prompts), len(new), of_new, of_changed, moved, *contexts]
        seen, known = seen | prompts, known | set(world.corpus.values())


HEAD = (
    "date|prompts|rollouts made|of new questions|of new or changed passages"
    "|of passages that rose into the candidates|contexts new|changed|unchanged"
)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--passages", type=int, default=2000)
    parser.add_argument("--questions", type=int, default=500)
    parser.add_argument("--seed", type=int, default=7)
    parser.add_argument("--out", type=Path, help="Markdown file; default: the terminal alone")
    args = parser.parse_args()
    world = World(args.passages, args.questions, random.Random(args.seed))
    with tempfile.TemporaryDirectory() as folder:
        rows = list(measure(world, Path(folder)))
    head = HEAD.split("|")
    command = (
        f"python -m benchmarks.corpus_update --passages {args.passages} "
        f"--questions {args.questions} --seed {args.seed}"
    )
    lines = (head, ["---"] * len(head), *(map(str, row) for row in rows))
    table = "".join(f"| {' | '.join(line)} |\n" for line in lines)
    packages = ("ray", "pyarrow", "pyserini")
    text = f"# Corpus update\n\n`{command}`\n\n{machine(packages)}.\n\n{table}"
    print(text)
    if args.out is not None:
        args.out.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
