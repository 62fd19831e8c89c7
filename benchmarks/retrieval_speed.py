"""Questions per second of the BM25 stage beside bare pyserini batch search, in interleaved rounds.

    python -m benchmarks.retrieval_speed [--corpus FILE --questions FILE] [--out FILE]

bare      LuceneSearcher.batch_search: hits as Java objects, no text read
texts     the same, and title and text of every hit read from it, as a script needs them
stage     ours: the retrieve stage as the jobs run it, candidates with texts as an Arrow column

Each in a process of its own with one JVM, started anew in each round, over the same index, threads
and k; in blocks of `--block` questions, as the shards of a run. All must find the same passages.
"""

import argparse
import itertools
import json
import sys
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from benchmarks import processes
from benchmarks.processes import Pass, machine, say, spread
from pipeline.config import BuildIndexConfig, InputConfig, RetrieverConfig
from pipeline.stages import inputs

EXAMPLES = processes.REPOSITORY / "examples"
PACKAGES = ("pyserini", "pyarrow")
Block = list[str]


@dataclass(frozen=True)
class Spec:
    """A worker's task; made from and turned into JSON."""

    variant: str
    index: str
    corpus: str
    questions: str
    split: str | None
    k: int
    threads: int
    block: int
    passes: int


def build(spec: Spec) -> None:
    """The index, once for all."""
    from pipeline.engines import bm25

    bm25.build_index(BuildIndexConfig(corpus=spec.corpus, index=spec.index), lambda count: None)


def measure(spec: Spec) -> None:
    """Two passes to warm the JVM up, then the measured ones; says what was found, as a digest."""
    cfg = InputConfig(questions=spec.questions, split=spec.split)
    questions = [row["question"] for row in inputs.rows(cfg, 0)]
    blocks = [questions[i : i + spec.block] for i in range(0, len(questions), spec.block)]
    search = {"bare": _bare, "texts": _texts, "stage": _stage}[spec.variant](spec)
    for number in range(2 + spec.passes):
        if number >= 2:
            say("begin")
        ids = [found for block in blocks for found in search(block)]
        if number >= 2:
            say("end", questions=len(questions), ids=ids)


def _searcher(spec: Spec) -> Any:
    from pipeline.engines.java import start_jvm

    start_jvm()
    from pyserini.search.lucene import LuceneSearcher

    searcher = LuceneSearcher(str(Path(spec.index) / "lucene"))
    searcher.set_bm25(0.9, 0.4)
    return searcher


def _pyserini(spec: Spec, read: Callable[[Any], str]) -> Callable[[Block], list[list[str]]]:
    searcher = _searcher(spec)

    def search(block: Block) -> list[list[str]]:
        keys = [str(i) for i in range(len(block))]
        found = searcher.batch_search(block, keys, k=spec.k, threads=spec.threads)
        return [[read(hit) for hit in found.get(key, ())] for key in keys]

    return search


def _bare(spec: Spec) -> Callable[[Block], list[list[str]]]:
    return _pyserini(spec, lambda hit: str(hit.docid))


def _texts(spec: Spec) -> Callable[[Block], list[list[str]]]:
    return _pyserini(spec, lambda hit: str(_read(hit)["id"]))


def _read(hit: Any) -> dict[str, Any]:
    entry = json.loads(hit.lucene_document.get("raw"))
    title, _, text = entry["contents"].partition("\n")
    return {"id": entry["id"], "title": title, "text": text, "score": hit.score}


def _stage(spec: Spec) -> Callable[[Block], list[list[str]]]:
    import pyarrow as pa

    from pipeline import schema
    from pipeline.engines.bm25 import Bm25Retriever
    from pipeline.stages import retrieve

    cfg = RetrieverConfig(index=spec.index, n=spec.k, threads=spec.threads)

    class Engines:
        retriever = Bm25Retriever(cfg)

    transform: Any = retrieve.stage(cfg).build(Engines())  # type: ignore[arg-type]
    field = schema.CANDIDATES.name

    def search(block: Block) -> list[list[str]]:
        table = transform(pa.table({"question_id": block, "question": block}))
        ids = table[field].combine_chunks()
        flat = ids.flatten().field("passage_id").to_pylist()
        bounds = ids.offsets.to_pylist()
        return [flat[a:b] for a, b in itertools.pairwise(bounds)]

    return search


def compare(args: argparse.Namespace, folder: Path) -> str:
    """Interleaved rounds; the table. SystemExit where the variants find different passages."""
    spec = Spec(
        variant="build",
        index=str(folder / "index"),
        corpus=args.corpus,
        questions=args.questions,
        split=args.split,
        k=args.k,
        threads=args.threads,
        block=args.block,
        passes=args.passes,
    )
    processes.run("benchmarks.retrieval_speed", asdict(spec), timeout=1800)
    passes: dict[str, list[Pass]] = {"bare": [], "texts": [], "stage": []}
    for number in range(args.rounds):
        for variant, made in passes.items():
            print(f"round {number + 1}: {variant}", file=sys.stderr, flush=True)
            task = asdict(replace(spec, variant=variant))
            made += processes.run("benchmarks.retrieval_speed", task, timeout=900)
    return _table(args, passes)


def _table(args: argparse.Namespace, passes: dict[str, list[Pass]]) -> str:
    bare = passes["bare"]
    questions = bare[0].found["questions"]
    for variant, made in passes.items():
        if any(one.found["ids"] != bare[0].found["ids"] for one in made):
            raise SystemExit(f"{variant} finds other passages than bare")
    lines = [
        f"## {args.label}: {questions} questions, k = {args.k}",
        f"\n{args.threads} thread(s), blocks of {args.block}, {args.rounds} rounds x {args.passes} "
        f"passes, medians (min-max); {machine(PACKAGES)}.\n",
        "| variant | questions/s | CPU ms a question | questions/s, bare = 1 | CPU, bare = 1 |",
        "|---|---|---|---|---|",
    ]
    for variant, made in passes.items():
        cells = [
            variant,
            spread([questions / one.wall for one in made]),
            spread([1000 * one.cpu / questions for one in made]),
            spread([b.wall / one.wall for b, one in zip(bare, made, strict=True)]),
            spread([one.cpu / b.cpu for b, one in zip(bare, made, strict=True)]),
        ]
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines) + "\n"


def arguments(argv: Sequence[str]) -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--corpus", default=str(EXAMPLES / "corpus.jsonl"))
    parser.add_argument("--questions", default=str(EXAMPLES / "questions.jsonl"))
    parser.add_argument("--split", help="keep questions whose metadata.split is this")
    parser.add_argument("--label", default="examples", help="the corpus's name in the table")
    parser.add_argument("--k", type=int, default=5)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--block", type=int, default=256, help="questions searched together")
    parser.add_argument("--rounds", type=int, default=3, help="starts of every variant")
    parser.add_argument("--passes", type=int, default=5, help="measured passes a start")
    parser.add_argument("--out", type=Path, help="Markdown file to append to")
    return parser.parse_args(argv)


def main() -> None:
    """Measures, prints and appends; with a worker's task in JSON, does that."""
    if sys.argv[1:] and sys.argv[1].startswith("{"):
        task = Spec(**json.loads(sys.argv[1]))
        (build if task.variant == "build" else measure)(task)
        return
    args = arguments(sys.argv[1:])
    processes.end_with_workers()
    with tempfile.TemporaryDirectory() as scratch:
        text = compare(args, Path(scratch))
    print(text)
    if args.out:
        with args.out.open("a", encoding="utf-8") as file:
            file.write(text)


if __name__ == "__main__":
    main()
