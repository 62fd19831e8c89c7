"""The pipeline's own counters on Ray's metrics endpoint (as ray_igp_* there)."""

from collections.abc import Mapping

from ray.util.metrics import Counter

NAMES = {
    "rows": ("igp_rows", "questions through a stage"),
    "seconds": ("igp_stage_seconds", "seconds that a stage's blocks took, summed over actors"),
    "dead": ("igp_dead_letters", "questions that died in a stage"),
    "unmeasured": ("igp_unmeasured", "questions that a stage which no arm needs refused"),
    "unserved": ("igp_unserved", "questions that a stage was not given, since they had died"),
    "redriven": ("igp_redriven", "questions of stored parts that a stage was given once more"),
    "passages": ("igp_passages", "passages that a stage retrieved or scored"),
    "rollouts": ("igp_rollouts", "distinct rollouts that were made"),
    "taken_up": ("igp_taken_up", "distinct rollouts taken up from other plans, not made"),
    "early_stopped": ("igp_early_stopped", "rollouts ended once they could not be admitted"),
    "calls": ("igp_listwise_calls", "windows of passages, or lists of sentences, asked about"),
    "retries": ("igp_listwise_retries", "replies about them that had to be asked for again"),
    "malformed": ("igp_listwise_malformed", "those whose reply could not be read in the end"),
    "unfaithful": ("igp_unfaithful", "lines of an extractor that are no sentence of a passage"),
    "prompts": ("igp_prompts", "distinct final prompts of a plan"),
    "generated": ("igp_generated", "final prompts generated, not taken up from another plan"),
    "pairs": ("igp_claim_pairs", "claims of distinct answers that a model of entailment judges"),
    "judged": ("igp_claim_pairs_judged", "such pairs judged, not taken up from another plan"),
    "cut": ("igp_claim_pairs_cut", "judged pairs whose answer was cut to the model's window"),
    "unread": ("igp_claim_pairs_unread", "judged pairs to which the reply was neither 1 nor 0"),
    "skipped": ("igp_skipped_parts", "unreadable parts of other plans that were passed over"),
    "tokens": ("igp_tokens", "prompt and generated tokens of a stage's model calls"),
    "refusals": ("igp_refusals", "unconditional rollouts that read as refusals"),
    "admitted": ("igp_admitted", "passages that the policy kept"),
    "empty": ("igp_empty_contexts", "questions for which the policy kept none"),
}
"""Metric name and meaning of every count that a stage reports."""


class Recorder:
    """Adds a stage's counts to the process's counters; KeyError for a count not in NAMES."""

    def __init__(self) -> None:
        self._counters = {
            key: Counter(name, description=meaning, tag_keys=("stage",))
            for key, (name, meaning) in NAMES.items()
        }

    def __call__(self, stage: str, counts: Mapping[str, float]) -> None:
        """Adds the counts of one block."""
        for key, value in counts.items():
            counter = self._counters[key]
            if value:
                counter.inc(value, tags={"stage": stage})
