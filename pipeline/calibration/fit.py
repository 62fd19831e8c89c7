"""Fits a blend: which candidates hold a golden answer, from signals that cost no probe.

Shapes: P candidates with all features and a label, F features. Every number about quality is out
of fold: a candidate is scored by a model that saw none of its question. What the intervals do not
hold is the noise of training itself.
"""

import math
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import LogisticRegression

from pipeline.calibration.folds import question_folds
from pipeline.core.blend import Blend, features, signals_of
from pipeline.core.discrimination import bootstrap_auc, pairwise_accuracy
from pipeline.core.stats import bootstrap_mean


@dataclass(frozen=True)
class Fit:
    """A blend fitted on every question, and how blends fitted without a question do on it.

    out_of_fold: question_id, position, label, score (log-odds), fold; one row per candidate used.
    metrics:     JSON-able, NaN as None; see `fit`.
    """

    blend: Blend
    out_of_fold: pl.DataFrame
    metrics: dict[str, Any]


def fit(
    candidates: pl.DataFrame,
    names: Sequence[str],
    *,
    seed: int,
    folds: int = 5,
    l2: float = 1.0,
    samples: int = 2000,
) -> Fit:
    """Logistic regression of `label` on the named features, standardised on the training folds.

    candidates: as frames.candidates makes it: question_id, position, label and a column for every
                signal behind the features. A question's z-scores and gaps take all its candidates.
    names:      features, from core.blend.FEATURES.
    l2:         strength of the penalty on the standardised weights; the intercept has none.

    metrics holds questions, candidates, positives; left_out (candidates without a label or with a
    missing feature, which are not used); auc (pooled) and p_at_1 (of the questions with an answer
    among their candidates, ties sharing) with intervals over questions; pairwise (accuracy within
    questions); admitted, precision and recall of scores >= 0.

    ValueError on an absent signal, an unknown feature, l2 <= 0, or labels of one kind only, in
    all or in the training part of a fold.
    """
    if not l2 > 0:
        raise ValueError(f"l2 = {l2}; allowed: above 0")
    usable = _with_features(candidates, names)
    folded = usable.join(
        question_folds(usable["question_id"].to_list(), folds=folds, seed=seed),
        on="question_id",
        how="left",
        maintain_order="left",
    )
    scored = _out_of_fold(folded, names, folds=folds, l2=l2)
    metrics = {"left_out": len(candidates) - len(usable), **_metrics(scored, seed, samples)}
    x_PF, labels_P = folded.select(names).to_numpy(), folded["label"].to_numpy()
    return Fit(_logistic(x_PF, labels_P, names, l2, "in all"), scored, metrics)


def _out_of_fold(
    folded: pl.DataFrame, names: Sequence[str], *, folds: int, l2: float
) -> pl.DataFrame:
    """question_id, position, label, fold, and the score by a model fitted without the fold."""
    x_PF, labels_P = folded.select(names).to_numpy(), folded["label"].to_numpy()
    fold_P = folded["fold"].to_numpy()
    scores_P = np.full(len(folded), np.nan)
    for fold in range(folds):
        train_P = fold_P != fold
        model = _logistic(x_PF[train_P], labels_P[train_P], names, l2, f"outside fold {fold}")
        scores_P[~train_P] = _scores(model, x_PF[~train_P])
    kept = folded.select("question_id", "position", "label", "fold")
    return kept.with_columns(pl.Series("score", scores_P))


def _with_features(candidates: pl.DataFrame, names: Sequence[str]) -> pl.DataFrame:
    """The labelled candidates that have every feature, features as columns."""
    needed = ("question_id", "position", "label", *signals_of(names))
    absent = [name for name in needed if name not in candidates.columns]
    if absent:
        raise ValueError(
            f"candidates: no column {absent[0]!r}; present: {', '.join(candidates.columns)}"
        )
    kept = candidates.select(needed)
    signals = signals_of(names)
    pools = kept.group_by("question_id", maintain_order=True).agg("position", "label", *signals)
    values_PF = [
        values
        for pool in pools.iter_rows(named=True)
        for values in features({name: pool[name] for name in signals}, names)
    ]
    usable = (
        pools.select("question_id", "position", "label")
        .explode("position", "label")
        .hstack(pl.DataFrame(values_PF, schema=dict.fromkeys(names, pl.Float64), orient="row"))
        .drop_nulls()
    )
    if usable.is_empty():
        raise ValueError(f"candidates: none has a label and every one of {', '.join(names)}")
    return usable


def _logistic(
    x_PF: NDArray[np.float64],
    labels_P: NDArray[np.bool_],
    names: Sequence[str],
    l2: float,
    where: str,
) -> Blend:
    if labels_P.all() or not labels_P.any():
        raise ValueError(f"label is {bool(labels_P[0])} for every candidate {where}; need both")
    means_F, deviations_F = x_PF.mean(axis=0), x_PF.std(axis=0)
    # Equal values may have a deviation of rounding noise: 0.1 often has one of 2.8e-17.
    constant_F = (x_PF.min(axis=0) == x_PF.max(axis=0)) | (deviations_F == 0)
    scales_F = np.where(constant_F, 1.0, deviations_F)
    model = LogisticRegression(C=1 / l2, max_iter=1000)
    with warnings.catch_warnings():
        warnings.simplefilter("error", ConvergenceWarning)
        model.fit((x_PF - means_F) / scales_F, labels_P)
    return Blend(
        features=tuple(names),
        weights=tuple(model.coef_[0].tolist()),
        intercept=float(model.intercept_[0]),
        means=tuple(means_F.tolist()),
        scales=tuple(scales_F.tolist()),
    )


def _scores(blend: Blend, x_PF: NDArray[np.float64]) -> NDArray[np.float64]:
    standard_PF = (x_PF - np.array(blend.means)) / np.array(blend.scales)
    scores_P: NDArray[np.float64] = standard_PF @ np.array(blend.weights) + blend.intercept
    return scores_P


def _metrics(scored: pl.DataFrame, seed: int, samples: int) -> dict[str, Any]:
    scores, labels = scored["score"].to_list(), scored["label"].to_list()
    questions = scored["question_id"].to_list()
    area = bootstrap_auc(scores, labels, questions, seed=seed, samples=samples)
    best = (
        scored.filter(pl.col("label").any().over("question_id"))
        .filter(pl.col("score") == pl.col("score").max().over("question_id"))
        .group_by("question_id", maintain_order=True)
        .agg(pl.col("label").cast(pl.Float64).mean())
    )
    first = bootstrap_mean(best["label"].to_list(), seed=seed, samples=samples)
    admitted = scored.filter(pl.col("score") >= 0)
    right, positives = int(admitted["label"].sum()), int(scored["label"].sum())
    return {
        "questions": scored["question_id"].n_unique(),
        "candidates": len(scored),
        "positives": positives,
        "auc": _plain(asdict(area)),
        "p_at_1": _plain(asdict(first)),
        "pairwise": _number(pairwise_accuracy(scores, labels, questions)),
        "admitted": len(admitted),
        "precision": right / len(admitted) if len(admitted) else None,
        "recall": right / positives,
    }


def _plain(values: Mapping[str, float]) -> dict[str, float | None]:
    return {name: _number(value) for name, value in values.items()}


def _number(value: float) -> float | None:
    return None if math.isnan(value) else value
