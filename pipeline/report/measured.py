"""A run's measurements as arrays: one number per arm and question, one cost per stage and question.

Shapes: A arms, Q questions. Eleven float64 per arm and question: 30 arms over 100,000 questions
take 264 MB, and only one shard's rows are held beside them.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

Floats = NDArray[np.float64]

FIELDS = (
    "f1",
    "em",
    "sub_em",
    "prompt_tokens",
    "answer_tokens",
    "evidence_size",
    "admitted",
    "refusal",
    "wrong",
    "ndcg",
    "ndcg_candidates",
)
"""Of schema.METRIC, all but the arm's name."""

ALWAYS = ("question_id", "metrics", "refused", "empty_golds")
PROBE_FIELDS = ("probes.nu0", "probes.steps", "probes.prompt_tokens", "probes.free_rule")
SET_FIELD = "sets.tokens"
SCORER_TOKENS = "score_tokens_"


@dataclass(frozen=True)
class Probed:
    """What the rollouts of a run's questions were, (Q,) each."""

    rollouts_Q: Floats
    first_tokens_Q: Floats  # read and written by the rollout without evidence
    nu0_Q: Floats
    free_rule_Q: Floats


@dataclass(frozen=True)
class Measured:
    """Measurements of a run. NaN is undefined or not there, as for the oracle without candidates.

    `values` holds (A, Q) by name of FIELDS; `tokens` holds (Q,) by stage, what its model read and
    wrote to select evidence; `refused_Q` is NaN without probes.
    """

    arms: tuple[str, ...]
    values: Mapping[str, Floats]
    tokens: Mapping[str, Floats]
    probed: Probed | None
    refused_Q: Floats
    empty_golds: int

    @property
    def questions(self) -> int:
        """Living questions."""
        return int(self.refused_Q.size)

    def of(self, arm: str, field: str) -> Floats:
        """An arm's (Q,) values of a field."""
        return np.asarray(self.values[field][self.arms.index(arm)])

    def selection_tokens(self, stages: Iterable[str], *, nu0_limit: float | None = None) -> Floats:
        """Tokens that models spent on each question in the stages that an arm must pay, (Q,).

        nu0_limit: an arm's gate: where NU(q) is below it, the arm needs the first rollout alone.
        ValueError when a stage left no record of its tokens.
        """
        total_Q = np.zeros(self.questions)
        for stage in stages:
            if stage not in self.tokens:
                raise ValueError(
                    f"stage {stage!r} left no tokens in the rows; there are: "
                    f"{', '.join(sorted(self.tokens)) or 'none'}"
                )
            tokens_Q = self.tokens[stage]
            if stage == "probe" and nu0_limit is not None and self.probed is not None:
                spared_Q = self.probed.nu0_Q < nu0_limit
                tokens_Q = np.where(spared_Q, self.probed.first_tokens_Q, tokens_Q)
            total_Q = total_Q + tokens_Q
        return total_Q


def columns(available: Iterable[str]) -> list[str]:
    """Of a finished run's columns, those that `read` takes, nested ones by their parts."""
    names = set(available)
    nested = [*(PROBE_FIELDS if "probes" in names else ()), *([SET_FIELD] * ("sets" in names))]
    scorers = sorted(name for name in names if name.startswith(SCORER_TOKENS))
    return [*ALWAYS, *nested, *scorers]


def read(parts: Iterable[pa.Table], arms: Sequence[str]) -> Measured | None:
    """The measurements in parts that hold `columns`; None where no question lives.

    ValueError on an arm that is not among `arms`.
    """
    read_parts = [_part(part, arms) for part in parts if part.num_rows]
    if not read_parts:
        return None
    first = read_parts[0]
    joined: dict[str, Floats] = {
        name: np.concatenate([part[name] for part in read_parts], axis=-1) for name in first
    }
    probed = None
    if "nu0" in joined:
        names = ("rollouts", "first_tokens", "nu0", "free_rule")
        probed = Probed(*(joined[name] for name in names))
    stages = [name.removeprefix("tokens of ") for name in first if name.startswith("tokens of ")]
    return Measured(
        arms=tuple(arms),
        values={field: joined[field] for field in FIELDS},
        tokens={stage: joined[f"tokens of {stage}"] for stage in stages},
        probed=probed,
        refused_Q=joined["refused"],
        empty_golds=int(joined["empty_golds"].sum()),
    )


def _part(part: pa.Table, arms: Sequence[str]) -> dict[str, Floats]:
    made = _metrics(part["metrics"].combine_chunks(), arms)
    made["refused"] = _floats(part["refused"])
    made["empty_golds"] = _floats(part["empty_golds"])
    if "probes" in part.column_names:
        made |= _probes(part["probes"].combine_chunks())
    if "sets" in part.column_names:
        tokens = pc.struct_field(part["sets"].combine_chunks(), "tokens")
        made["tokens of probe_sets"] = _floats(tokens)
    for name in part.column_names:
        if name.startswith(SCORER_TOKENS):
            stage = f"score_{name.removeprefix(SCORER_TOKENS)}"
            made[f"tokens of {stage}"] = _floats(part[name])
    return made


def _metrics(lists: pa.ListArray, arms: Sequence[str]) -> dict[str, Floats]:
    """(A, Q) of every field, each value put where its arm and its question are."""
    flat = lists.flatten()
    names = pc.struct_field(flat, "arm")
    place = pc.index_in(names, value_set=pa.array(list(arms), pa.string()))
    if place.null_count:
        unknown = pc.filter(names, pc.is_null(place))[0]
        raise ValueError(f"arm {str(unknown)!r}; the run's arms: {', '.join(arms)}")
    at_arm = place.to_numpy(zero_copy_only=False)
    at_question = pc.list_parent_indices(lists).to_numpy(zero_copy_only=False)
    made: dict[str, Floats] = {}
    for field in FIELDS:
        table_AQ = np.full((len(arms), len(lists)), np.nan)
        table_AQ[at_arm, at_question] = _floats(pc.struct_field(flat, field))
        made[field] = table_AQ
    return made


def _probes(probes: pa.StructArray) -> dict[str, Floats]:
    steps = pc.struct_field(probes, "steps")
    prompts = pc.struct_field(probes, "prompt_tokens")
    return {
        "nu0": _floats(pc.struct_field(probes, "nu0")),
        "free_rule": _floats(pc.struct_field(probes, "free_rule")),
        "rollouts": _floats(pc.list_value_length(steps)),
        "first_tokens": _floats(pc.add(pc.list_element(steps, 0), pc.list_element(prompts, 0))),
        "tokens of probe": _list_sums(steps) + _list_sums(prompts),
    }


def _list_sums(lists: pa.ListArray) -> Floats:
    """The sum of each list, 0 for an empty one."""
    owners = pc.list_parent_indices(lists).to_numpy(zero_copy_only=False)
    sums = np.bincount(owners, weights=_floats(lists.flatten()), minlength=len(lists))
    return sums.astype(np.float64)


def _floats(values: Any) -> Floats:
    """Numbers or flags as float64, null as NaN."""
    return np.asarray(pc.cast(values, pa.float64()).to_numpy(zero_copy_only=False), np.float64)
