"""A run's metrics.json as a Markdown table, for a committed result.

python benchmarks/results_table.py RUN_FOLDER [RUN_FOLDER ...]
"""

import json
import sys
from pathlib import Path
from typing import Any


def interval(mean: dict[str, Any], how: str = ".3f") -> str:
    if mean["value"] is None:
        return "-"
    return f"{mean['value']:{how}} [{mean['low']:{how}}, {mean['high']:{how}}]"


def number(value: float | None, how: str) -> str:
    return "-" if value is None else format(value, how)


def table(folder: Path) -> str:
    metrics = json.loads((folder / "metrics.json").read_text())
    config = json.loads((folder / "manifest.json").read_text())["config"]
    lines = [
        heading(metrics, config),
        "",
        "| arm | F1 | minus retriever (paired) | SubEM | TK | NTE | NTE with selection | empty |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for arm in metrics["arms"]:
        difference = arm["f1_minus_baseline"]
        cells = [
            arm["arm"],
            interval(arm["f1"]),
            "-" if difference is None else interval(difference, "+.3f"),
            interval(arm["sub_em"]),
            number(arm["tk"], ".1f"),
            number(arm["nte"], ".2f"),
            number(arm["nte_with_probes"], ".2f"),
            number(arm["empty_share"], ".3f"),
        ]
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines) + "\n"


def heading(metrics: dict[str, Any], config: dict[str, Any]) -> str:
    """What the run was, in one line."""
    selection, probe, rollouts = config["selection"], config["probe"], metrics["probe"]
    parts = [f"n = {metrics['questions']}"]
    if selection is not None:
        parts.insert(
            0,
            f"M = {selection['top_m']}, Tp = {selection['threshold']}, empty context: "
            f"{selection['empty_context']}",
        )
    if rollouts:
        parts += [
            f"probe: {probe['template']}, K = {probe['top_k']}, MT = {probe['max_tokens']}, "
            f"{config['generator']['dtype']}",
            f"{rollouts['rollouts']} rollouts, {rollouts['tokens_per_question']:.0f} probe tokens "
            "per question",
        ]
    return "; ".join(parts)


if __name__ == "__main__":
    print("\n".join(table(Path(folder)) for folder in sys.argv[1:]))
