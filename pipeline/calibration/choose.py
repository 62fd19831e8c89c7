"""Chooses an arm, and says whether the choice is better than luck.

The best of many arms on the questions that it was picked on looks better than it is. So the same
procedure is cross-validated by question: pick on the other folds, measure on the fold left out.
The winner is taken only when that estimate beats the baseline with an interval clear of 0, when a
best of so many arms is more than luck gives (the folds share their picks, so the interval alone
lets 6 to 7 of 100 tables of equal arms through, and with the second test 2 to 4), and when the
estimate's mean meets the target too. Its interval's low end would ask for more than the target.
Of a baseline in retrieval order the best length is the arm to beat. Where the winner is not taken,
of retrieval order the cheapest arm that is not told apart from the best is.

Shapes: A arms, Q questions, C resamples of one chunk.
"""

import math
from collections import Counter
from collections.abc import Collection
from dataclasses import dataclass, replace
from functools import partial

import numpy as np
import polars as pl
from numpy.typing import NDArray

from pipeline.calibration.arm_table import ArmTable, arm_table
from pipeline.calibration.choice import Choice, Fallback, Target, beats, verdict
from pipeline.calibration.folds import question_folds
from pipeline.core.stats import (
    Mean,
    bootstrap_mean,
    paired_difference,
    paired_differences,
    resamples,
)


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
    """The best arm for the target, or where nothing beats the baseline, the fallback.

    measured: as frames.arms makes it, every arm on every question. Leave out arms that nobody
              could use, such as the oracle.
    baseline: the arm to beat; it also competes. Where it is of `retrieval_order` (arms that only
              cut the retriever's list), or breaks a budget of tokens, the best of those for the
              target stands in: picked on all questions, so it is rather too hard to beat.
    retrieval_order: also what the fallback is chosen from; see Fallback.

    Equal arms are told apart by the other number, then by their order in the frame. ValueError of
    arm_table, and on a budget that neither the baseline nor retrieval order meets.
    """
    table = arm_table(measured, (baseline, *retrieval_order))
    order = [table.arms.index(name) for name in retrieval_order]
    asked = table.arms.index(baseline)
    base, winner = _standard(table, target, asked, order), _best(table, target)
    found = _cross_validated(table, target, base, folds=folds, seed=seed, samples=samples)
    luck = _luck(table, target, base, seed=seed, samples=samples)
    mean = partial(bootstrap_mean, seed=seed, samples=samples)
    made = Choice(
        arm=table.arms[base],
        verdict="",
        winner=None if winner is None else table.arms[winner],
        against=table.arms[base],
        fallback=_fallback(table, target, base, order, seed=seed, samples=samples),
        in_sample_f1=mean([] if winner is None else table.f1_AQ[winner]),
        in_sample_tokens=mean([] if winner is None else table.tokens_AQ[winner]),
        **vars(found),
        luck=luck,
        baseline_meets_target=_meets(table, target, asked),
        questions=len(table.questions),
        unlabelled=table.unlabelled,
    )
    arm = made.winner if beats(made, target) else None
    return replace(made, arm=arm or made.fallback.arm, verdict=verdict(made, target, baseline))


def _standard(table: ArmTable, target: Target, asked: int, order: Collection[int]) -> int:
    """The arm to beat: of retrieval order, if the one asked for is of it or breaks a budget of
    tokens, the best for the target, so that no selector is taken for beating a weak M."""
    broken = target.kind == "tokens" and not _meets(table, target, asked)
    if asked not in order and not broken:
        return asked
    found = _best(table, target, among=order)
    if found is not None or not broken:
        return asked if found is None else found
    tokens_A = table.tokens_AQ.mean(axis=1)
    within = [a for a in range(len(table.arms)) if _meets(table, target, a)]
    shown = ", ".join(f"{table.arms[a]} ({tokens_A[a]:.1f})" for a in within) or "none"
    raise ValueError(
        f"baseline {table.arms[asked]!r} takes {tokens_A[asked]:.1f} prompt tokens a question and "
        f"no arm of retrieval order takes at most {target.value:g}; arms that do: {shown}"
    )


def _fallback(
    table: ArmTable, target: Target, base: int, order: Collection[int], *, seed: int, samples: int
) -> Fallback:
    """What is used where nothing beats `base`: see Fallback."""
    of_order = list(order) if base in order else [base]
    among = [a for a in of_order if _meets(table, target, a)] or of_order
    f1_A, tokens_A = (values_AQ.mean(axis=1) for values_AQ in table.values)
    best = min(among, key=lambda a: (-f1_A[a], tokens_A[a]))
    found = paired_differences(table.f1_AQ[among], table.f1_AQ[best], seed=seed, samples=samples)
    alike = {a: mean for a, mean in zip(among, found, strict=True) if mean.high >= 0}
    arm = min(alike, key=lambda a: (tokens_A[a], -f1_A[a]))
    return Fallback(
        arm=table.arms[arm],
        tokens=float(tokens_A[arm]),
        best=table.arms[best],
        best_tokens=float(tokens_A[best]),
        f1_difference=alike[arm],
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
