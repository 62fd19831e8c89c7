"""Means over questions with bootstrap intervals; undefined values are counted, never averaged.

Shapes: Q questions, R resamples. Memory is O(Q + R): resamples are drawn one at a time.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True)
class Mean:
    """A mean with its interval [low, high], over n questions; undefined counts the NaN left out."""

    value: float
    low: float
    high: float
    n: int
    undefined: int


def bootstrap_mean(
    values: Sequence[float], *, seed: int, samples: int = 2000, level: float = 0.95
) -> Mean:
    """Mean over questions with a percentile bootstrap interval; the same seed, the same interval.

    NaN is left out and counted; with nothing left, every number is NaN and n is 0.
    ValueError on an infinite value, samples < 1, or a level outside (0, 1).
    """
    if samples < 1:
        raise ValueError(f"samples = {samples}; allowed: 1 or more")
    if not 0 < level < 1:
        raise ValueError(f"level = {level}; allowed: between 0 and 1, both excluded")
    values_Q = _without_infinities(values)
    defined_Q = values_Q[~np.isnan(values_Q)]
    n, undefined = defined_Q.size, values_Q.size - defined_Q.size
    if n == 0:
        return Mean(math.nan, math.nan, math.nan, 0, undefined)
    rng = np.random.default_rng(seed)
    means_R = np.array([defined_Q[rng.integers(n, size=n)].mean() for _ in range(samples)])
    tail = (1 - level) / 2
    low, high = np.quantile(means_R, [tail, 1 - tail])
    return Mean(float(defined_Q.mean()), float(low), float(high), n, undefined)


def paired_difference(
    a: Sequence[float],
    b: Sequence[float],
    *,
    seed: int,
    samples: int = 2000,
    level: float = 0.95,
) -> Mean:
    """bootstrap_mean of a_i - b_i, two arms on the same questions in the same order.

    A pair with a NaN is left out and counted. ValueError when the lengths differ.
    """
    if len(a) != len(b):
        raise ValueError(f"arms have {len(a)} and {len(b)} values; allowed: one each per question")
    differences_Q = _without_infinities(a) - _without_infinities(b)
    return bootstrap_mean(differences_Q.tolist(), seed=seed, samples=samples, level=level)


def _without_infinities(values: Sequence[float]) -> NDArray[np.float64]:
    values_Q = np.asarray(values, dtype=np.float64)
    infinite_Q = values_Q[np.isinf(values_Q)]
    if infinite_Q.size:
        raise ValueError(f"value {infinite_Q[0]}; allowed: finite numbers, and NaN for undefined")
    return values_Q
