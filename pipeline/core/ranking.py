"""Ranking metrics of one question's passages, from graded relevance judgements.

Shapes: K ranked passages, best rank first, an unjudged one with relevance 0; J judged passages
of the question, in any order. A grade below 0 (TREC's junk) counts as 0. Every metric is NaN
when no judged passage is relevant: such a question says nothing about the ranker, so means leave
it out and count it.
Source: "Less is More for RAG", eq. 16; precision, recall and reciprocal rank as in trec_eval.
"""

import math

import numpy as np
from numpy.typing import ArrayLike, NDArray


def ndcg(rel_K: ArrayLike, judged_J: ArrayLike, *, k: int) -> float:
    """nDCG@k in [0, 1] with gain 2**rel - 1 and discount log2(rank + 1).

    The ideal order is that of all judged passages, so what was never retrieved is missed.
    """
    _check_cutoff(k)
    ideal = _dcg(-np.sort(-_grades(judged_J)), k)
    return _dcg(_grades(rel_K), k) / ideal if ideal > 0 else math.nan


def ndcg_candidates(rel_N: ArrayLike, *, k: int) -> float:
    """nDCG@k whose ideal order is that of the N ranked candidates alone; N may exceed k.

    It measures the reranker and not the retriever: never below ndcg(), and NaN where none of
    the candidates is relevant.
    """
    return ndcg(rel_N, rel_N, k=k)


def recall(rel_K: ArrayLike, judged_J: ArrayLike, *, k: int, relevant_from: int = 1) -> float:
    """Share of the relevant judged passages that stand in the first k ranks.

    relevant_from: lowest grade that counts as relevant, 1 or more.
    """
    hit_K, relevant = _relevance(rel_K, judged_J, k, relevant_from)
    return float(hit_K.sum()) / relevant if relevant else math.nan


def precision(rel_K: ArrayLike, judged_J: ArrayLike, *, k: int, relevant_from: int = 1) -> float:
    """Share of the first k ranks that hold a relevant passage; missing ranks hold none."""
    hit_K, relevant = _relevance(rel_K, judged_J, k, relevant_from)
    return float(hit_K.sum()) / k if relevant else math.nan


def reciprocal_rank(
    rel_K: ArrayLike, judged_J: ArrayLike, *, k: int, relevant_from: int = 1
) -> float:
    """1 / rank of the first relevant passage among the first k; 0 when there is none."""
    hit_K, relevant = _relevance(rel_K, judged_J, k, relevant_from)
    if not relevant:
        return math.nan
    return 1 / (1 + int(hit_K.argmax())) if hit_K.any() else 0.0


def _relevance(
    rel_K: ArrayLike, judged_J: ArrayLike, k: int, relevant_from: int
) -> tuple[NDArray[np.bool_], int]:
    """Whether each of the first k ranks is relevant, and how many judged passages are."""
    _check_cutoff(k)
    if relevant_from < 1:
        raise ValueError(f"relevant_from = {relevant_from}; allowed: 1 or more")
    relevant = int((_grades(judged_J) >= relevant_from).sum())
    return _grades(rel_K)[:k] >= relevant_from, relevant


def _dcg(rel_K: NDArray[np.float64], k: int) -> float:
    top_K = rel_K[:k]
    discount_K = np.log2(np.arange(top_K.size) + 2)
    return float(((np.exp2(top_K) - 1) / discount_K).sum())


def _grades(rel: ArrayLike) -> NDArray[np.float64]:
    grades = np.asarray(rel, dtype=np.float64)
    if grades.ndim != 1:
        raise ValueError(f"relevance has shape {grades.shape}; allowed: one dimension")
    unusable = grades[~np.isfinite(grades)]
    if unusable.size:
        raise ValueError(f"relevance {unusable[0]}; allowed: a finite grade, 0 for unjudged")
    return np.maximum(grades, 0.0)


def _check_cutoff(k: int) -> None:
    if k < 1:
        raise ValueError(f"k = {k}; allowed: 1 or more")
