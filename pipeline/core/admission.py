"""Sorts candidates by gain and admits those that reach the threshold.

Gains are aligned with the candidates in retrieval order; None is a gain that was not measured.
Every admitted list is a prefix of order(gains), so N candidates make at most N + 1 of them.
"""

import math
from collections.abc import Sequence


def order(gains: Sequence[float | None]) -> list[int]:
    """Every position, by gain descending, ties by retrieval rank, None last; NaN: ValueError."""
    for position, gain in enumerate(gains):
        if gain is not None and math.isnan(gain):
            raise ValueError(f"gain of position {position} is {gain}; allowed: a number or None")
    measured = [(-gain, position) for position, gain in enumerate(gains) if gain is not None]
    unmeasured = [position for position, gain in enumerate(gains) if gain is None]
    return [position for _, position in sorted(measured)] + unmeasured


def admit(gains: Sequence[float | None], *, threshold: float) -> list[int]:
    """Positions with gain >= threshold in order() ("Less is More for RAG", Alg. 1 lines 8-10).

    A threshold of -inf reranks without pruning (the paper's "+IG"); None is never admitted.
    ValueError on a NaN gain or threshold.
    """
    if math.isnan(threshold):
        raise ValueError(f"threshold = {threshold}; allowed: a number, -inf or inf")
    return [
        position
        for position in order(gains)
        if (gain := gains[position]) is not None and gain >= threshold
    ]


def admit_rounds(rounds: Sequence[int], gains: Sequence[float], *, threshold: float) -> list[int]:
    """The positions of the rounds before the first whose gain is below the threshold.

    rounds: the position chosen in each round of a greedy search; gains: its gain over the set of
    the rounds before, aligned with rounds. ValueError on NaN or when the lengths differ.
    """
    if len(rounds) != len(gains):
        raise ValueError(f"{len(rounds)} rounds and {len(gains)} gains; allowed: one gain a round")
    if math.isnan(threshold) or any(math.isnan(gain) for gain in gains):
        raise ValueError(f"threshold = {threshold}, gains = {list(gains)}; allowed: no NaN")
    admitted: list[int] = []
    for position, gain in zip(rounds, gains, strict=True):
        if gain < threshold:
            break
        admitted.append(position)
    return admitted
