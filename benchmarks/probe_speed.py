"""The probe's speed beside what else a user would write today, in interleaved rounds.

    python -m benchmarks.probe_speed [--models MODEL tiny] [--variants ...] [--out FILE]
    python -m benchmarks.probe_speed --admissions 300 --questions FILE --corpus FILE [--split dev]

Every variant runs the same rollouts (questions, and BM25's best five passages of each) in a process
of its own, started anew in each round (a second pass would find the prompts in the engine's cache)
and warmed up; `benchmarks.probe_variants` and
`benchmarks.probe_ray` say what each is. NU of every rollout is compared with that of the reference,
so that none is fast by being wrong. `tiny` is a random model of two layers with the real one's
tokenizer. With --admissions: the decode steps that early stop saves, and the admissions it changes.
"""

import argparse
import itertools
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import asdict, replace
from pathlib import Path

from benchmarks import probe_tables, processes
from benchmarks.probe_rollouts import Spec, prepare, tiny_model
from benchmarks.processes import Pass
from jobs import demo_model

EXAMPLES = processes.REPOSITORY / "examples"
TIMEOUT_SECONDS = 900
IN_RAY = ("pipeline", "ray_data_llm")
VARIANTS = (
    "ray_data_llm",
    "dict_logprobs",
    "transformers",
    "flat_logprobs",
    "in_engine",
    "early_stop",
    "plain",
    "pipeline",
)
TINY = "tiny"


def speed(args: argparse.Namespace, folder: Path) -> str:
    """The tables of every model."""
    found = prepare(
        folder, args.questions, args.corpus, split=args.split, count=max(args.count), n=args.n
    )
    print(f"{found} questions", file=sys.stderr)
    parts = [probe_tables.heading(args)]
    for model, count in zip(args.models, itertools.cycle(args.count)):
        spec = _spec(args, folder, model, min(count, found))
        passes, failures = _rounds(args, spec, model)
        parts.append(probe_tables.speed(model, spec, passes, failures))
    return "\n".join(parts)


def _spec(args: argparse.Namespace, folder: Path, model: str, questions: int) -> Spec:
    real = str(demo_model.FOLDER.expanduser())
    tiny = model == TINY
    return Spec(
        variant="",
        folder=str(folder),
        model=str(tiny_model(folder / TINY, real)) if tiny else model,
        questions=questions,
        threads=args.threads,
        kv_cache_gib=0.25 if tiny else 1.0,
        threshold=args.threshold,
        rows_per_shard=args.rows_per_shard,
    )


def _rounds(
    args: argparse.Namespace, spec: Spec, model: str
) -> tuple[dict[str, list[Pass]], dict[str, str]]:
    """Every variant's passes, A B C A B C; a variant that fails is left out with its reason."""
    passes: dict[str, list[Pass]] = {variant: [] for variant in args.variants}
    failures: dict[str, str] = {}
    for number in range(args.rounds):
        for variant in args.variants:
            if variant in failures:
                continue
            print(f"{Path(model).name} round {number + 1}: {variant}", file=sys.stderr, flush=True)
            module = "probe_ray" if variant in IN_RAY else "probe_variants"
            task = asdict(replace(spec, variant=variant))
            try:
                made = processes.run(f"benchmarks.{module}", task, timeout=TIMEOUT_SECONDS)
            except processes.WorkerError as error:
                failures[variant] = str(error)
                print(error, file=sys.stderr)
                continue
            passes[variant] += made
            for one in made:
                print(f"  {one.wall:.1f} s, {one.cpu:.1f} CPU s", file=sys.stderr, flush=True)
    return {variant: made for variant, made in passes.items() if made}, failures


def admissions(args: argparse.Namespace, folder: Path) -> str:
    """Early stop against whole rollouts over `args.admissions` questions."""
    found = prepare(
        folder, args.questions, args.corpus, split=args.split, count=args.admissions, n=args.n
    )
    model = args.models[0]
    spec = replace(_spec(args, folder, model, found), rows_per_shard=32)
    whole, stopped = processes.run("benchmarks.probe_admissions", asdict(spec), timeout=3600)
    return probe_tables.heading(args) + probe_tables.admissions(model, spec, whole, stopped)


def arguments(argv: Sequence[str]) -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--models", nargs="+", default=[str(demo_model.FOLDER.expanduser()), TINY])
    parser.add_argument("--variants", nargs="+", default=list(VARIANTS), choices=VARIANTS)
    parser.add_argument("--questions", default=str(EXAMPLES / "questions.jsonl"))
    parser.add_argument("--corpus", default=str(EXAMPLES / "corpus.jsonl"))
    parser.add_argument("--split", help="keep questions whose metadata.split is this")
    parser.add_argument(
        "--count", type=int, nargs="+", default=[8, 40], help="questions, a model each"
    )
    parser.add_argument("--n", type=int, default=5, help="passages a question")
    parser.add_argument("--rounds", type=int, default=3, help="starts of every variant")
    parser.add_argument("--threads", type=int, default=2, help="CPU threads of the model")
    parser.add_argument("--threshold", type=float, default=0.05, help="Tp")
    parser.add_argument("--rows-per-shard", type=int, default=8, help="variant pipeline")
    parser.add_argument("--admissions", type=int, help="questions; measures this alone")
    parser.add_argument("--out", type=Path, help="Markdown file to write")
    return parser.parse_args(argv)


def main() -> None:
    """Measures, prints and writes."""
    args = arguments(sys.argv[1:])
    processes.end_with_workers()
    with tempfile.TemporaryDirectory() as scratch:
        text = (admissions if args.admissions else speed)(args, Path(scratch))
    print(text)
    if args.out:
        args.out.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
