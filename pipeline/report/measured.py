"""A run's measurements as arrays: one number per arm and question, one cost per stage and question.

Shapes: A arms, Q questions, R rounds. Twelve numbers per arm and question, each field in the
smallest type that holds its values exactly, which is 30 to 36 bytes: 7 arms over 1,000,000
questions take about 230 MB, and only one shard's rows are held beside them.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from pipeline import schema
from pipeline.report import rankings
from pipeline.report.finished import Arm, Finished
from pipeline.stages.arms import threshold

Floats = NDArray[np.float64]
Stored = NDArray[np.floating[Any]]

FIELDS = (
    "f1",
    "em",
    "sub_em",
    "prompt_tokens",
    "answer_tokens",
    "evidence_size",
    "admitted",
    "certain",
    "refusal",
    "wrong",
    "ndcg",
    "ndcg_candidates",
)
"""Of schema.METRIC, all but the arm's name."""

ALWAYS = ("question_id", "metrics", "refused", "empty_golds")
PROBE_FIELDS = (
    *("probes.nu0", "probes.nu", "probes.steps", "probes.prompt_tokens", "probes.free_rule"),
)
SET_FIELDS = ("sets.gains", "sets.tokens")
EARLY_STOPPED = schema.EARLY_STOPPED.name
SCORER_TOKENS = "score_tokens_"


@dataclass(frozen=True)
class Probed:
    """What the rollouts of a run's questions were, (Q,) each."""

    rollouts_Q: Floats
    first_tokens_Q: Floats  # read and written by the rollout without evidence
    nu0_Q: Floats
    free_rule_Q: Floats
    passages_Q: Floats  # candidates, each of which one rollout more would read
    early_stopped_Q: Floats | None  # rollouts ended early; None where the run ends none


@dataclass(frozen=True)
class Rounds:
    """Set-aware rounds, (R, Q) each, NaN where a question had fewer."""

    gains_RQ: Floats
    tokens_RQ: Floats

    def tokens(self, *, top_m: int, threshold: float) -> Floats:
        """Tokens of the rounds that a policy makes, (Q,): at most M, up to the first one whose gain
        is below Tp, that one included."""
        admitted_RQ = np.cumprod(self.gains_RQ >= threshold, axis=0)
        made_RQ = np.ones_like(self.gains_RQ)
        made_RQ[1:] = admitted_RQ[:-1]
        return np.asarray(np.nansum((made_RQ * self.tokens_RQ)[:top_m], axis=0))


@dataclass(frozen=True)
class Measured:
    """Measurements of a run. NaN is undefined or not there, as for the oracle without candidates.

    `values` holds (A, Q) by name of FIELDS, in types for storage and not for sums; `tokens` holds
    (Q,) by stage, what its model read and wrote to select evidence, but probe_sets's are in
    `rounds`; `refused_Q` is NaN without probes; `replies` are those of the models that
    choose evidence, as rankings.summarise says.
    """

    arms: tuple[str, ...]
    values: Mapping[str, Stored]
    tokens: Mapping[str, Floats]
    probed: Probed | None
    rounds: Rounds | None
    refused_Q: Floats
    empty_golds: int
    replies: Mapping[str, Mapping[str, Any]]

    @property
    def questions(self) -> int:
        """Living questions."""
        return int(self.refused_Q.size)

    def of(self, arm: str, field: str) -> Floats:
        """An arm's (Q,) values of a field."""
        return np.asarray(self.values[field][self.arms.index(arm)], np.float64)

    def selection_tokens(self, arm: Arm) -> Floats:
        """Tokens that models spend on each question to form a plain arm by itself, (Q,).

        Not what this run spent: rollouts that only other arms read are left out. Where the arm's
        gate on NU(q) hands over it needs the first rollout alone, and of the set-aware rounds it
        needs its own M and Tp's. ValueError when a stage left no record of its tokens.
        """
        total_Q = np.zeros(self.questions)
        for stage in arm["stages"]:
            total_Q = total_Q + self._stage_tokens(stage, arm)
        return total_Q

    def _stage_tokens(self, stage: str, arm: Arm) -> Floats:
        certain_Q = self.of(str(arm["arm"]), "certain") == 1
        if stage == "probe_sets" and self.rounds is not None:
            policy = arm["policy"]
            made_Q = self.rounds.tokens(top_m=policy["top_m"], threshold=threshold(policy))
            return np.where(certain_Q, 0.0, made_Q)
        if stage not in self.tokens:
            known = [*self.tokens, *["probe_sets"] * (self.rounds is not None)]
            raise ValueError(
                f"stage {stage!r} left no tokens in the rows; there are: "
                f"{', '.join(sorted(known)) or 'none'}"
            )
        if stage == "probe" and self.probed is not None:
            one_Q = certain_Q if arm["reads_rollouts"] else np.ones(self.questions, np.bool_)
            return np.where(one_Q, self.probed.first_tokens_Q, self.tokens[stage])
        return self.tokens[stage]

    def probes_saved(self, arm: Arm) -> float:
        """The share of all rollouts with a passage that a plain arm's gate on NU(q) spares by
        itself; NaN without such a gate, or where the arm reads none of them anyway."""
        policy = arm["policy"]
        if self.probed is None or policy is None or policy["nu0_limit"] is None:
            return math.nan
        passages_Q = self.probed.passages_Q
        if not arm["reads_rollouts"] or not passages_Q.sum():
            return math.nan
        return float(passages_Q[self.of(str(arm["arm"]), "certain") == 1].sum() / passages_Q.sum())


def columns(available: Iterable[str]) -> list[str]:
    """Of a finished run's columns, those that `read` takes, nested ones by their parts."""
    names = set(available)
    nested = [
        *(PROBE_FIELDS if "probes" in names else ()),
        *([EARLY_STOPPED] if EARLY_STOPPED in names else ()),
        *(SET_FIELDS if "sets" in names else ()),
    ]
    scorers = sorted(name for name in names if name.startswith(SCORER_TOKENS))
    return [*ALWAYS, *nested, *scorers, *rankings.columns(names)]


def of_run(run: Finished) -> Measured:
    """The measurements of a finished run; ValueError where no question lives."""
    found = read(run.parts(columns(run.columns)), [str(arm["arm"]) for arm in run.arms])
    if found is None:
        raise ValueError(f"{run.storage.root}: no question lived to be measured")
    return found


def read(parts: Iterable[pa.Table], arms: Sequence[str]) -> Measured | None:
    """The measurements in parts that hold `columns`; None where no question lives.

    ValueError on an arm that is not among `arms`.
    """
    read_parts = [_part(part, arms) for part in parts if part.num_rows]
    if not read_parts:
        return None
    names = list(read_parts[0])
    # A field is taken out of the parts as it is joined, or all would be held twice.
    joined: dict[str, Any] = {
        name: _join([part.pop(name) for part in read_parts]) for name in names
    }
    probed = None
    if "nu0" in joined:
        probed = Probed(
            rollouts_Q=joined["rollouts"],
            first_tokens_Q=joined["first_tokens"],
            nu0_Q=joined["nu0"],
            free_rule_Q=joined["free_rule"],
            passages_Q=joined["passages"],
            early_stopped_Q=joined.get(EARLY_STOPPED),
        )
    rounds = None
    if "round gains" in joined:
        rounds = Rounds(joined["round gains"], joined["round tokens"])
    stages = [name.removeprefix("tokens of ") for name in names if name.startswith("tokens of ")]
    return Measured(
        arms=tuple(arms),
        values={field: joined[field] for field in FIELDS},
        tokens={stage: joined[f"tokens of {stage}"] for stage in stages},
        probed=probed,
        rounds=rounds,
        refused_Q=joined["refused"],
        empty_golds=int(joined["empty_golds"].sum()),
        replies=rankings.summarise(joined),
    )


def _part(part: pa.Table, arms: Sequence[str]) -> dict[str, Stored]:
    made = by_arm(part["metrics"].combine_chunks(), arms, FIELDS)
    made["refused"] = _floats(part["refused"])
    made["empty_golds"] = _floats(part["empty_golds"])
    if "probes" in part.column_names:
        made |= _probes(part["probes"].combine_chunks())
    if EARLY_STOPPED in part.column_names:
        made[EARLY_STOPPED] = _list_sums(part[EARLY_STOPPED].combine_chunks())
    if "sets" in part.column_names:
        sets = part["sets"].combine_chunks()
        for name in ("gains", "tokens"):
            made[f"round {name}"] = _padded(pc.struct_field(sets, name))
    for name in part.column_names:
        if name.startswith(SCORER_TOKENS):
            stage = f"score_{name.removeprefix(SCORER_TOKENS)}"
            made[f"tokens of {stage}"] = _floats(part[name])
    made |= rankings.read(part)
    return made


def by_arm(lists: pa.ListArray, arms: Sequence[str], fields: Sequence[str]) -> dict[str, Stored]:
    """(A, Q) of every field, each value put where its arm and its question are; ValueError on an
    arm that is not among `arms`."""
    flat = lists.flatten()
    names = pc.struct_field(flat, "arm")
    place = pc.index_in(names, value_set=pa.array(list(arms), pa.string()))
    if place.null_count:
        unknown = pc.filter(names, pc.is_null(place))[0]
        raise ValueError(f"arm {str(unknown)!r}; the run's arms: {', '.join(arms)}")
    at_arm = place.to_numpy(zero_copy_only=False)
    at_question = pc.list_parent_indices(lists).to_numpy(zero_copy_only=False)
    made: dict[str, Stored] = {}
    for field in fields:
        table_AQ = np.full((len(arms), len(lists)), np.nan)
        table_AQ[at_arm, at_question] = _floats(pc.struct_field(flat, field))
        made[field] = _compact(table_AQ)
    return made


def _compact(values: Floats) -> Stored:
    """The values in the smallest type that holds each of them exactly."""
    for kind in (np.float16, np.float32):
        with np.errstate(over="ignore"):
            small: Stored = values.astype(kind)
        if np.array_equal(small, values, equal_nan=True):
            return small
    return values


def _probes(probes: pa.StructArray) -> dict[str, Floats]:
    steps = pc.struct_field(probes, "steps")
    prompts = pc.struct_field(probes, "prompt_tokens")
    return {
        "nu0": _floats(pc.struct_field(probes, "nu0")),
        "free_rule": _floats(pc.struct_field(probes, "free_rule")),
        "passages": _floats(pc.fill_null(pc.list_value_length(pc.struct_field(probes, "nu")), 0)),
        "rollouts": _floats(pc.list_value_length(steps)),
        "first_tokens": _floats(pc.add(pc.list_element(steps, 0), pc.list_element(prompts, 0))),
        "tokens of probe": _list_sums(steps) + _list_sums(prompts),
    }


def _join(arrays: Sequence[Stored]) -> Stored:
    """Arrays (Q,) or (X, Q) side by side, those of fewer rows filled up with NaN; in the largest of
    their types."""
    rows = max(len(array) for array in arrays)
    if arrays[0].ndim == 1 or all(len(array) == rows for array in arrays):
        return np.concatenate(arrays, axis=-1)
    fill = [np.full((rows - len(a), a.shape[1]), np.nan) for a in arrays]
    return np.hstack([np.vstack(pair) for pair in zip(arrays, fill, strict=True)])


def _padded(lists: pa.ListArray) -> Floats:
    """(R, Q): the lists as columns, NaN below the end of each."""
    lengths = pc.fill_null(pc.list_value_length(lists), 0).to_numpy(zero_copy_only=False)
    table_QR = np.full((len(lists), int(lengths.max(initial=0))), np.nan)
    table_QR[np.arange(table_QR.shape[1]) < lengths[:, None]] = _floats(lists.flatten())
    return table_QR.T


def _list_sums(lists: pa.ListArray) -> Floats:
    """The sum of each list, 0 for an empty one."""
    owners = pc.list_parent_indices(lists).to_numpy(zero_copy_only=False)
    sums = np.bincount(owners, weights=_floats(lists.flatten()), minlength=len(lists))
    return sums.astype(np.float64)


def _floats(values: Any) -> Floats:
    """Numbers or flags as float64, null as NaN."""
    return np.asarray(pc.cast(values, pa.float64()).to_numpy(zero_copy_only=False), np.float64)
