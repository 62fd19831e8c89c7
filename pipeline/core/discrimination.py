"""How well scores tell one kind of passage from another: AUC, pairs within a question, z-scores.

Shapes: P passages over all questions, N candidates of one question, Q questions, R resamples.
Passages of one question share its wording and its luck, so intervals resample whole questions.
"""

import math
from collections.abc import Hashable, Sequence

import numpy as np
from numpy.typing import NDArray

from pipeline.core.stats import Mean, check_bootstrap, resamples


def auc(scores_P: Sequence[float], labels_P: Sequence[bool]) -> float:
    """Chance that a labelled passage scores above an unlabelled one; a tie counts half.

    NaN when either kind is missing. ValueError on NaN scores or different lengths.
    """
    scores, labels = _checked(scores_P, labels_P)
    return float(_weighted_auc(scores, labels, np.ones((1, scores.size)))[0])


def pairwise_accuracy(
    scores_P: Sequence[float], labels_P: Sequence[bool], questions_P: Sequence[Hashable]
) -> float:
    """Share of pairs of a labelled and an unlabelled passage of one question in the right order.

    Ties count half, and every pair the same, so a question with many pairs weighs more. NaN when
    no question has both kinds. Unlike auc(), it does not ask scores of different questions to
    share a scale. ValueError on NaN scores or different lengths.
    """
    scores, labels = _checked(scores_P, labels_P)
    right, pairs = 0.0, 0
    for members in _members(questions_P, scores.size):
        positive, negative = scores[members][labels[members]], scores[members][~labels[members]]
        above, level = positive[:, None] > negative, positive[:, None] == negative
        right += float(above.sum() + 0.5 * level.sum())
        pairs += above.size
    return right / pairs if pairs else math.nan


def bootstrap_auc(
    scores_P: Sequence[float],
    labels_P: Sequence[bool],
    questions_P: Sequence[Hashable],
    *,
    seed: int,
    samples: int = 2000,
    level: float = 0.95,
) -> Mean:
    """The pooled auc() with a percentile interval over resampled questions; n is the questions.

    A question drawn twice brings its passages twice. Resamples without both kinds have no AUC:
    they are left out and counted as undefined. Errors as in auc() and stats.bootstrap_mean.
    """
    check_bootstrap(samples, level)
    scores, labels = _checked(scores_P, labels_P)
    members = _members(questions_P, scores.size)
    value = auc(scores_P, labels_P)
    if math.isnan(value):
        return Mean(value, math.nan, math.nan, len(members), samples)
    question_P = np.empty(scores.size, dtype=np.int64)
    for index, positions in enumerate(members):
        question_P[positions] = index
    drawn = resamples(len(members), samples=samples, seed=seed, cells=scores.size)
    areas_R = np.concatenate(
        [_weighted_auc(scores, labels, weights_RQ[:, question_P]) for weights_RQ in drawn]
    )
    defined_R = areas_R[~np.isnan(areas_R)]
    undefined = samples - defined_R.size
    if defined_R.size == 0:
        return Mean(value, math.nan, math.nan, len(members), undefined)
    tail = (1 - level) / 2
    low, high = np.quantile(defined_R, [tail, 1 - tail])
    return Mean(value, float(low), float(high), len(members), undefined)


def within_question_z(scores_N: Sequence[float | None]) -> list[float | None]:
    """Each score's distance from its question's mean in standard deviations (of the population).

    Equal scores, and a single one, get 0; None (not measured) stays None and does not count.
    ValueError on a score that is not finite.
    """
    measured = np.array([score for score in scores_N if score is not None], dtype=np.float64)
    if not np.isfinite(measured).all():
        raise ValueError(f"score {measured[~np.isfinite(measured)][0]}; allowed: a finite number")
    equal = measured.size == 0 or measured.min() == measured.max()
    mean, deviation = (0.0, 0.0) if equal else (measured.mean(), measured.std())
    if deviation == 0:
        return [None if score is None else 0.0 for score in scores_N]
    return [None if score is None else float((score - mean) / deviation) for score in scores_N]


def _weighted_auc(
    scores_P: NDArray[np.float64], labels_P: NDArray[np.bool_], weights_RP: NDArray[np.float64]
) -> NDArray[np.float64]:
    """AUC under each row of passage weights, (R,): a pair weighs the product of its two."""
    if not scores_P.size:
        return np.full(len(weights_RP), np.nan)
    order = np.argsort(scores_P, kind="stable")
    ranked_P = scores_P[order]
    starts = np.flatnonzero(np.append(True, ranked_P[1:] != ranked_P[:-1]))
    positive_RP = weights_RP[:, order] * labels_P[order]
    negative_RP = weights_RP[:, order] - positive_RP
    positive_RG = np.add.reduceat(positive_RP, starts, axis=1)  # G groups of equal scores
    negative_RG = np.add.reduceat(negative_RP, starts, axis=1)
    below_RG = np.cumsum(negative_RG, axis=1) - negative_RG
    right_R = (positive_RG * (below_RG + negative_RG / 2)).sum(axis=1)
    pairs_R = positive_RG.sum(axis=1) * negative_RG.sum(axis=1)
    area_R = np.full(len(pairs_R), np.nan)
    np.divide(right_R, pairs_R, out=area_R, where=pairs_R > 0)
    return area_R


def _members(questions_P: Sequence[Hashable], passages: int) -> list[list[int]]:
    """Positions of each question's passages, questions in order of appearance."""
    if len(questions_P) != passages:
        raise ValueError(f"{len(questions_P)} questions for {passages} scores; allowed: one each")
    members: dict[Hashable, list[int]] = {}
    for position, question in enumerate(questions_P):
        members.setdefault(question, []).append(position)
    return list(members.values())


def _checked(
    scores_P: Sequence[float], labels_P: Sequence[bool]
) -> tuple[NDArray[np.float64], NDArray[np.bool_]]:
    scores, labels = np.asarray(scores_P, np.float64), np.asarray(labels_P, np.bool_)
    if scores.shape != labels.shape:
        raise ValueError(f"{scores.size} scores for {labels.size} labels; allowed: one each")
    if np.isnan(scores).any():
        raise ValueError("a score is nan; allowed: a number")
    return scores, labels
