"""What sharing answers and probes among the arms has spared a run, in one line."""

from collections.abc import Mapping
from typing import Any

from pipeline.report.costs import over_sentences, sharing
from pipeline.report.finished import Finished


def spared(run: Finished) -> str:
    """Model calls of a run beside those of a pipeline that treats every arm by itself.

    Distinct prompts and rollouts count as made when this run's parts were made, and not where they
    were taken up from another plan.
    """
    calls = {row["calls"]: row for row in sharing([run]).to_dicts()}
    said = []
    if answers := calls.get("answers"):
        said = [
            f"generated {_made(answers)} distinct prompts",
            f"one generation per arm and question would be {answers['naive']}",
        ]
    if rollouts := calls.get("rollouts"):
        said.append(
            f"made {_made(rollouts)} distinct rollouts, one pass per (K, MT) would be "
            f"{rollouts['naive']}"
        )
    said += [f"made {made:.0f} {name}" for name, made in over_sentences(run.metrics).items()]
    return "; ".join(said)


def _made(calls: Mapping[str, Any]) -> str:
    return f"{calls['made']} of {calls['made'] + calls['taken_up']}"
