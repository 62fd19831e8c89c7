"""Chooses an arm, and says whether the choice is better than luck.

The best of many arms on the questions that it was picked on looks better than it is. So the same
procedure is cross-validated by question: pick on the other folds, measure on the fold left out.
The winner is taken only when that estimate beats the baseline with an interval clear of 0, when a
best of so many arms is more than luck gives (the folds share their picks, so the interval alone
lets 6 to 7 of 100 tables of equal arms through, and with the second test 2 to 4), and when the
estimate's mean meets the target too. Its interval's low end would ask for more than the target.

Shapes: A arms, Q questions, C resamples of one chunk.
"""

import math
from collections import Counter
from collections.abc import Collection
from dataclasses import dataclass, replace
from functools import partial
from typing import Literal

import numpy as np
import polars as pl
from numpy.typing import NDArray

from pipeline.calibration.arm_table import ArmTable, arm_table
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

    arm:             what to use: the winner, or `against` where nothing beats it.
    verdict:         the outcome in one sentence.
    winner:          best arm on all questions, None where none meets the target.
    against:         the arm to beat: the baseline, or retrieval order within the budget of tokens
                     that the baseline breaks.
    in_sample_f1:    the winner's F1 on the questions that it won on (optimistic); NaN without one.
    in_sample_tokens: its prompt tokens, likewise.
    f1, tokens:      what choosing-the-best gives on questions that it did not see.
    gain:            cross-validated, paired against that arm, positive is better: F1 gained,
                     or prompt tokens saved under a quality target.
    f1_difference:   the paired F1 difference, whatever the target.
    luck:            chance that the best of these arms looks so much better than that arm when
                     none is; NaN where no other arm meets the target.
    picks:           how often each arm won among the folds; None (as "") where none met the
                     target and `against` stood in.
    baseline_meets_target: on all questions.
    questions, unlabelled: used, and left out because F1 is undefined for some arm.
    """

    arm: str
    verdict: str
    winner: str | None
    against: str
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
class _Estimate:
    """What choosing-the-best gives on questions that it did not see; see Choice."""

    f1: Mean
    tokens: Mean
    gain: Mean
    f1_difference: Mean
    picks: dict[str, int]


def choose(
    measured: pl.DataFrame,
    target: Target,
    *,
    baseline: str,
    seed: int,
    retrieval_order: Collection[str] = (),
    folds: int = 5,
    samples: int = 2000,
) -> Choice:
    """The best arm for the target, or the baseline when nothing beats it.

    measured: as frames.arms makes it, every arm on every question. Leave out arms that nobody
              could use, such as the oracle.
    baseline: the arm to beat; it also competes. Where it breaks a budget of tokens, the best of
              `retrieval_order` (arms that only cut the retriever's list) within it stands in.

    Equal arms are told apart by the other number, then by their order in the frame. ValueError of
    arm_table, and on a budget that neither the baseline nor retrieval order meets.
    """
    table = arm_table(measured, (baseline, *retrieval_order))
    base = _standard(table, target, table.arms.index(baseline), retrieval_order)
    winner = _best(table, target)
    found = _cross_validated(table, target, base, folds=folds, seed=seed, samples=samples)
    luck = _luck(table, target, base, seed=seed, samples=samples)
    mean = partial(bootstrap_mean, seed=seed, samples=samples)
    made = Choice(
        arm=table.arms[base],
        verdict="",
        winner=None if winner is None else table.arms[winner],
        against=table.arms[base],
        in_sample_f1=mean([] if winner is None else table.f1_AQ[winner]),
        in_sample_tokens=mean([] if winner is None else table.tokens_AQ[winner]),
        **vars(found),
        luck=luck,
        baseline_meets_target=_meets(table, target, table.arms.index(baseline)),
        questions=len(table.questions),
        unlabelled=table.unlabelled,
    )
    return replace(made, arm=_taken(made, target), verdict=_verdict(made, target, baseline))


def _standard(table: ArmTable, target: Target, asked: int, retrieval_order: Collection[str]) -> int:
    """The arm to beat: the one asked for, unless it breaks a budget of tokens."""
    if target.kind != "tokens" or _meets(table, target, asked):
        return asked
    found = _best(table, target, among=[table.arms.index(name) for name in retrieval_order])
    if found is not None:
        return found
    tokens_A = table.tokens_AQ.mean(axis=1)
    within = [a for a in range(len(table.arms)) if _meets(table, target, a)]
    shown = ", ".join(f"{table.arms[a]} ({tokens_A[a]:.1f})" for a in within) or "none"
    raise ValueError(
        f"baseline {table.arms[asked]!r} takes {tokens_A[asked]:.1f} prompt tokens a question and "
        f"no arm of retrieval order takes at most {target.value:g}; arms that do: {shown}"
    )


def _cross_validated(
    table: ArmTable, target: Target, base: int, *, folds: int, seed: int, samples: int
) -> _Estimate:
    """Picks on the other folds, measured on the fold left out; paired against `base`."""
    fold_Q = _folds(table, folds, seed)
    picks = [_best(table, target, fold_Q != fold) for fold in range(folds)]
    chosen_Q = np.array([base if pick is None else pick for pick in picks])[fold_Q]
    f1_Q, tokens_Q = (np.take_along_axis(v, chosen_Q[None], 0)[0] for v in table.values)
    mean = partial(bootstrap_mean, seed=seed, samples=samples)
    paired = partial(paired_difference, seed=seed, samples=samples)
    f1_difference = paired(f1_Q, table.f1_AQ[base])
    return _Estimate(
        f1=mean(f1_Q),
        tokens=mean(tokens_Q),
        gain=paired(table.tokens_AQ[base], tokens_Q) if target.saves_tokens else f1_difference,
        f1_difference=f1_difference,
        picks=dict(Counter("" if pick is None else table.arms[pick] for pick in picks)),
    )


def _meets(table: ArmTable, target: Target, arm: int) -> bool:
    """Whether an arm meets the target on all questions."""
    return target.allows(*(float(values_AQ[arm].mean()) for values_AQ in table.values))


def _best(
    table: ArmTable,
    target: Target,
    chosen_Q: NDArray[np.bool_] | None = None,
    *,
    among: Collection[int] | None = None,
) -> int | None:
    """The best arm on some of the questions, None where none meets the target."""
    kept_Q = slice(None) if chosen_Q is None else chosen_Q
    f1_A, tokens_A = (values_AQ[:, kept_Q].mean(axis=1) for values_AQ in table.values)
    arms = range(len(table.arms)) if among is None else among
    allowed = [a for a in arms if target.allows(f1_A[a], tokens_A[a])]
    if target.saves_tokens:
        return min(allowed, key=lambda a: (tokens_A[a], -f1_A[a]), default=None)
    return min(allowed, key=lambda a: (-f1_A[a], tokens_A[a]), default=None)


def _luck(table: ArmTable, target: Target, base: int, *, seed: int, samples: int) -> float:
    """White's reality check (2000): the largest mean gain over the baseline among the arms that
    meet the target, against its bootstrap distribution with every mean gain moved to 0."""
    rivals = [a for a in range(len(table.arms)) if a != base and _meets(table, target, a)]
    if not rivals:
        return math.nan
    values_AQ = -table.tokens_AQ if target.saves_tokens else table.f1_AQ
    gains_AQ = values_AQ[rivals] - values_AQ[base]
    centred_QA = (gains_AQ - gains_AQ.mean(axis=1, keepdims=True)).T
    drawn = resamples(len(table.questions), samples=samples, seed=seed)
    best_R = np.concatenate([(weights_CQ @ centred_QA).max(axis=1) for weights_CQ in drawn])
    return float((best_R >= gains_AQ.sum(axis=1).max()).mean())


def _folds(table: ArmTable, folds: int, seed: int) -> NDArray[np.int64]:
    made = question_folds(table.questions, folds=folds, seed=seed)
    fold_by_question = dict(made.iter_rows())
    return np.array([fold_by_question[question] for question in table.questions])


def _taken(made: Choice, target: Target) -> str:
    """The winner where it is more than luck and the target holds on unseen questions too."""
    better = made.gain.low > 0 and made.luck < _LUCK
    kept = target.allows(made.f1.value, made.tokens.value)
    return made.winner if made.winner is not None and better and kept else made.against


def _verdict(made: Choice, target: Target, baseline: str) -> str:
    wanted = {
        "tokens": f"at most {target.value:g} prompt tokens",
        "quality": f"F1 of at least {target.value:g}",
        "best": "the best F1",
    }[target.kind]
    best, against = made.winner, made.against
    meets = made.baseline_meets_target
    itself = "" if meets else f"; {baseline} itself does not meet the target"
    if best is None:
        return f"no arm meets the target ({wanted}): {against} stays"
    if best == against:
        return f"nothing beats {against} ({wanted}): it is the best arm itself{itself}"
    if _taken(made, target) == best:
        return f"{best} beats {against} ({wanted}): {_found(made, target)}{itself}"
    found = _found(made, target)
    return f"nothing beats {against} ({wanted}): {best} looks best, yet {found}{itself}"


def _found(made: Choice, target: Target) -> str:
    """The cross-validated numbers: the gain, and what the target is about beside its in-sample
    value, since only both say whether it holds."""
    unit, digits = ("prompt tokens saved", ".1f") if target.saves_tokens else ("F1", "+.3f")
    gain = _interval(made.gain, digits)
    parts = [f"cross-validated {gain[0]} {unit} [{gain[1]}]", f"luck {made.luck:.2g}"]
    if target.kind == "quality":
        f1 = _interval(made.f1, ".3f")
        parts.append(f"F1 {made.in_sample_f1.value:.3f} as chosen, {f1[0]} [{f1[1]}] on unseen")
    if target.kind == "tokens":
        seen, unseen = made.in_sample_tokens.value, made.tokens.value
        parts.append(f"{seen:.1f} prompt tokens as chosen, {unseen:.1f} on unseen")
    return ", ".join(parts)


def _interval(mean: Mean, digits: str) -> tuple[str, str]:
    return format(mean.value, digits), f"{mean.low:{digits}}, {mean.high:{digits}}"
