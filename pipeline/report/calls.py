"""What sharing answers and probes among the arms has spared a run, in one line."""

from pipeline.report.costs import ledger, sharing
from pipeline.report.finished import Finished


def spared(run: Finished) -> str:
    """Model calls of a run beside those of a pipeline that treats every arm by itself.

    Prompts count as generated when this run's parts were made, not taken up from another grid.
    """
    (answers,) = ledger([run]).filter(stage="answer").to_dicts()
    calls = {row["calls"]: row for row in sharing([run]).to_dicts()}
    asked = calls["answers"]["naive"] if "answers" in calls else 0
    said = (
        f"generated {answers['generated']} of {answers['prompts']} distinct prompts; "
        f"one generation per arm and question would be {asked}"
    )
    if "rollouts" not in calls:
        return said
    rollouts = calls["rollouts"]
    return f"{said}; rollouts {rollouts['made']}, one pass per (K, MT) would be {rollouts['naive']}"
