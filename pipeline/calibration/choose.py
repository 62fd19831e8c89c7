"""Chooses an arm, and says whether the choice is better than luck.

The best of many arms on the questions that it was picked on looks better than it is. So the same
procedure is cross-validated by question: pick on the other folds, measure on the fold left out.
The winner is taken only when that estimate beats the baseline with an interval clear of 0, and
when a best of so many arms is more than luck gives: the folds share their picks, so the interval
alone lets 6 to 7 of 100 tables of equal arms through, and with the second test 2 to 4.

Shapes: A arms, Q questions, C resamples of one chunk.
"""

import math
from collections import Counter
from dataclasses import dataclass
from functools import partial
from typing import Literal

import numpy as np
import polars as pl
from numpy.typing import NDArray

from pipeline.calibration.folds import question_folds
from pipeline.core.stats import Mean, bootstrap_mean, paired_difference, resamples

_LUCK = 0.05  # above it a winner may well be chance


@dataclass(frozen=True)
class Target:
    """What is wanted: the best F1 within `value` prompt tokens a question ("tokens"), the fewest
    tokens at a mean F1 of `value` or more ("quality"), or the best F1 at any cost ("best").
    """

    kind: Literal["tokens", "quality", "best"]
    value: float = 0.0

    @property
    def saves_tokens(self) -> bool:
        """Whether arms compete in tokens; otherwise in F1."""
        return self.kind == "quality"

    def allows(self, f1: float, tokens: float) -> bool:
        """Whether an arm with these means meets the target."""
        if self.kind == "tokens":
            return tokens <= self.value
        return self.kind == "best" or f1 >= self.value


@dataclass(frozen=True)
class Choice:
    """The outcome of `choose`; Means are over the labelled questions, intervals over resamples.

    arm:             what to use: the winner, or the baseline where nothing beats it.
    verdict:         the outcome in one sentence.
    winner:          best arm on all questions, None where none meets the target.
    in_sample_f1:    the winner's F1 on the questions that it won on (optimistic); NaN without one.
    in_sample_tokens: its prompt tokens, likewise.
    f1, tokens:      what choosing-the-best gives on questions that it did not see.
    gain:            cross-validated, paired against the baseline, positive is better: F1 gained,
                     or prompt tokens saved under a quality target.
    f1_difference:   the paired F1 difference, whatever the target.
    luck:            chance that the best of these arms looks so much better than the baseline when
                     none is; NaN where no other arm meets the target.
    picks:           how often each arm won among the folds; None (as "") where none met the
                     target and the baseline stood in.
    baseline_meets_target: on all questions.
    questions, unlabelled: used, and left out because F1 is undefined for some arm.
    """

    arm: str
    verdict: str
    winner: str | None
    in_sample_f1: Mean
    in_sample_tokens: Mean
    f1: Mean
    tokens: Mean
    gain: Mean
    f1_difference: Mean
    luck: float
    picks: dict[str, int]
    baseline_meets_target: bool
    questions: int
    unlabelled: int


@dataclass(frozen=True)
class _Table:
    arms: tuple[str, ...]
    questions: tuple[str, ...]
    f1_AQ: NDArray[np.float64]
    tokens_AQ: NDArray[np.float64]
    unlabelled: int

    @property
    def values(self) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """F1 and prompt tokens."""
        return self.f1_AQ, self.tokens_AQ


def choose(
    measured: pl.DataFrame,
    target: Target,
    *,
    baseline: str,
    seed: int,
    folds: int = 5,
    samples: int = 2000,
) -> Choice:
    """The best arm for the target, or the baseline when nothing beats it.

    measured: one row a question and arm: question_id, arm, f1 (NaN = undefined), prompt_tokens,
              as frames.arms makes it; every arm on every question. Leave out arms that nobody
              could use, such as the oracle.
    baseline: the arm to beat; it also competes.

    Equal arms are told apart by the other number, then by their order in the frame. ValueError on
    a missing column, an unknown baseline, an arm without a question or with one twice, or no
    question with F1 for every arm.
    """
    table = _table(measured, baseline)
    base = table.arms.index(baseline)
    winner = _best(table, target, np.ones(len(table.questions), np.bool_))
    fold_Q = _folds(table, folds, seed)
    picks = [_best(table, target, fold_Q != fold) for fold in range(folds)]
    chosen_Q = np.array([base if pick is None else pick for pick in picks])[fold_Q]
    f1_Q, tokens_Q = (np.take_along_axis(v, chosen_Q[None], 0)[0] for v in table.values)
    mean = partial(bootstrap_mean, seed=seed, samples=samples)
    paired = partial(paired_difference, seed=seed, samples=samples)
    f1_difference = paired(f1_Q, table.f1_AQ[base])
    gain = paired(table.tokens_AQ[base], tokens_Q) if target.saves_tokens else f1_difference
    best = None if winner is None else table.arms[winner]
    meets = target.allows(*(values_AQ[base].mean() for values_AQ in table.values))
    luck = _luck(table, target, base, seed=seed, samples=samples)
    return Choice(
        arm=best if best is not None and _beaten(gain, luck) else baseline,
        verdict=_verdict(target, best, baseline, gain, luck, meets=meets),
        winner=best,
        in_sample_f1=mean([] if winner is None else table.f1_AQ[winner]),
        in_sample_tokens=mean([] if winner is None else table.tokens_AQ[winner]),
        f1=mean(f1_Q),
        tokens=mean(tokens_Q),
        gain=gain,
        f1_difference=f1_difference,
        luck=luck,
        picks=dict(Counter("" if pick is None else table.arms[pick] for pick in picks)),
        baseline_meets_target=meets,
        questions=len(table.questions),
        unlabelled=table.unlabelled,
    )


def _best(table: _Table, target: Target, chosen_Q: NDArray[np.bool_]) -> int | None:
    """The best arm on some of the questions, None where none meets the target."""
    f1_A, tokens_A = (values_AQ[:, chosen_Q].mean(axis=1) for values_AQ in table.values)
    allowed = [a for a in range(len(table.arms)) if target.allows(f1_A[a], tokens_A[a])]
    if target.saves_tokens:
        return min(allowed, key=lambda a: (tokens_A[a], -f1_A[a]), default=None)
    return min(allowed, key=lambda a: (-f1_A[a], tokens_A[a]), default=None)


def _luck(table: _Table, target: Target, base: int, *, seed: int, samples: int) -> float:
    """White's reality check (2000): the largest mean gain over the baseline among the arms that
    meet the target, against its bootstrap distribution with every mean gain moved to 0."""
    means = zip(*(values_AQ.mean(axis=1) for values_AQ in table.values), strict=True)
    rivals = [a for a, (f1, tokens) in enumerate(means) if a != base and target.allows(f1, tokens)]
    if not rivals:
        return math.nan
    values_AQ = -table.tokens_AQ if target.saves_tokens else table.f1_AQ
    gains_AQ = values_AQ[rivals] - values_AQ[base]
    centred_QA = (gains_AQ - gains_AQ.mean(axis=1, keepdims=True)).T
    drawn = resamples(len(table.questions), samples=samples, seed=seed)
    best_R = np.concatenate([(weights_CQ @ centred_QA).max(axis=1) for weights_CQ in drawn])
    return float((best_R >= gains_AQ.sum(axis=1).max()).mean())


def _folds(table: _Table, folds: int, seed: int) -> NDArray[np.int64]:
    made = question_folds(table.questions, folds=folds, seed=seed)
    fold_by_question = dict(made.iter_rows())
    return np.array([fold_by_question[question] for question in table.questions])


def _beaten(gain: Mean, luck: float) -> bool:
    return gain.low > 0 and luck < _LUCK


def _verdict(
    target: Target, best: str | None, baseline: str, gain: Mean, luck: float, *, meets: bool
) -> str:
    wanted = {
        "tokens": f"at most {target.value:g} prompt tokens",
        "quality": f"F1 of at least {target.value:g}",
        "best": "the best F1",
    }[target.kind]
    unit, digits = ("prompt tokens saved", ".1f") if target.saves_tokens else ("F1", "+.3f")
    shown = ", ".join(format(number, digits) for number in (gain.low, gain.high))
    found = f"cross-validated {format(gain.value, digits)} {unit} [{shown}], luck {luck:.2g}"
    itself = "" if meets else f"; {baseline} itself does not meet the target"
    if best is None:
        return f"no arm meets the target ({wanted}): {baseline} stays"
    if best == baseline:
        return f"nothing beats {baseline} ({wanted}): it is the best arm itself"
    if _beaten(gain, luck):
        return f"{best} beats {baseline} ({wanted}): {found}{itself}"
    return f"nothing beats {baseline} ({wanted}): {best} looks best, yet {found}{itself}"


def _table(measured: pl.DataFrame, baseline: str) -> _Table:
    for name in ("question_id", "arm", "f1", "prompt_tokens"):
        if name not in measured.columns:
            present = ", ".join(measured.columns)
            raise ValueError(f"measured: no column {name!r}; present: {present}")
    arms = measured["arm"].unique(maintain_order=True).to_list()
    if baseline not in arms:
        raise ValueError(f"baseline {baseline!r}; allowed: {', '.join(arms)}")
    questions = measured["question_id"].unique(maintain_order=True)
    once = measured.select("question_id", "arm").is_unique().all()
    if not once or len(measured) != len(arms) * len(questions):
        raise ValueError(
            f"measured: {len(measured)} rows of {len(arms)} arms and {len(questions)} questions; "
            "allowed: every arm once on every question"
        )
    by_arm = measured.partition_by("arm", maintain_order=True)
    aligned = [rows.sort("question_id") for rows in by_arm]
    f1_AQ = np.array([rows["f1"].cast(pl.Float64).to_numpy() for rows in aligned])
    tokens_AQ = np.array([rows["prompt_tokens"].cast(pl.Float64).to_numpy() for rows in aligned])
    labelled_Q = ~np.isnan(f1_AQ).any(axis=0)
    if not labelled_Q.any():
        raise ValueError(f"measured: F1 is defined for every arm on none of {len(questions)}")
    names = aligned[0]["question_id"].filter(pl.Series(labelled_Q)).to_list()
    return _Table(
        arms=tuple(arms),
        questions=tuple(names),
        f1_AQ=f1_AQ[:, labelled_Q],
        tokens_AQ=tokens_AQ[:, labelled_Q],
        unlabelled=int((~labelled_Q).sum()),
    )
