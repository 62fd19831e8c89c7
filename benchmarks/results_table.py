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
    selection, probe = config["selection"], config["probe"]
    lines = [
        f"M = {selection['top_m']}, Tp = {selection['threshold']}, empty context: "
        f"{selection['empty_context']}; probe: {probe['template']}, K = {probe['top_k']}, "
        f"MT = {probe['max_tokens']}, {config['generator']['dtype']}; n = {metrics['questions']}; "
        f"{metrics['probe']['rollouts']} rollouts, "
        f"{metrics['probe']['tokens_per_question']:.0f} probe tokens per question",
        "",
        "| arm | F1 | F1 minus retriever (paired) | SubEM | TK | NTE | NTE with probes | empty |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for arm in metrics["arms"]:
        cells = [
            arm["arm"],
            interval(arm["f1"]),
            interval(arm["f1_minus_retriever"], "+.3f"),
            interval(arm["sub_em"]),
            number(arm["tk"], ".1f"),
            number(arm["nte"], ".2f"),
            number(arm["nte_with_probes"], ".2f"),
            number(arm["empty_share"], ".3f"),
        ]
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    print("\n".join(table(Path(folder)) for folder in sys.argv[1:]))
