"""Rank correlation of two measures, such as NDCG and F1 over methods or over questions."""

import math
from collections.abc import Sequence

import numpy as np
from scipy import stats


def spearman(a: Sequence[float], b: Sequence[float]) -> float:
    """Spearman's rho in [-1, 1] of pairs, ties at their mean rank; pairs with a NaN are left out.

    NaN with fewer than two pairs left, or when one side has one value only. ValueError when the
    lengths differ.
    """
    if len(a) != len(b):
        raise ValueError(f"{len(a)} and {len(b)} values; allowed: pairs")
    pairs = np.column_stack([np.asarray(a, np.float64), np.asarray(b, np.float64)])
    defined = pairs[~np.isnan(pairs).any(axis=1)]
    if len(defined) < 2 or (defined == defined[0]).all(axis=0).any():
        return math.nan
    return float(stats.spearmanr(defined[:, 0], defined[:, 1]).statistic)
