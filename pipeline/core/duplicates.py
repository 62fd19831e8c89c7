"""Near-duplicates among a question's candidates, and a gain penalty for repeating one.

Probing cannot see that two passages say the same: each alone has the same gain. Containment of
word 3-grams sees it without a probe, and unlike Jaccard also where a short passage is a cut of
a longer one. In scripts without blanks between words a clause is one word, and only texts that
share whole clauses are seen.
"""

import math
from collections.abc import Collection, Sequence

from pipeline.core.admission import order
from pipeline.core.words import words

_GRAM = 3

Gram = tuple[str, ...]


def near_duplicates(texts: Sequence[str], *, threshold: float = 0.5) -> list[tuple[int, int]]:
    """Pairs of positions (i, j), i < j, whose containment reaches the threshold, in order.

    threshold: in (0, 1]; at 1 one text's 3-grams must all stand in the other.
    """
    if not 0 < threshold <= 1:
        raise ValueError(f"threshold = {threshold}; allowed: above 0, up to 1")
    grams = [word_grams(text) for text in texts]
    return [
        (i, j)
        for i, one in enumerate(grams)
        for j in range(i + 1, len(grams))
        if containment(one, grams[j]) >= threshold
    ]


def word_grams(text: str) -> frozenset[Gram]:
    """The text's word 3-grams, lower-cased, without punctuation; a shorter text is one gram."""
    found = words(text)
    if not found:
        return frozenset()
    count = max(1, len(found) - _GRAM + 1)
    return frozenset(tuple(found[i : i + _GRAM]) for i in range(count))


def containment(one: Collection[Gram], other: Collection[Gram]) -> float:
    """Share of the smaller set that stands in the larger, in [0, 1]; 0 when either is empty."""
    smaller = min(len(one), len(other))
    return len(frozenset(one) & frozenset(other)) / smaller if smaller else 0.0


def penalise(
    gains: Sequence[float | None],
    duplicates: Sequence[tuple[int, int]],
    *,
    penalty: float,
    threshold: float,
) -> list[float | None]:
    """Gains after the penalty, aligned with the candidates: admission.admit takes them next.

    duplicates: pairs of near_duplicates(), of the same candidates.

    Down the list by gain, a candidate that near-duplicates one already admitted loses `penalty`,
    once; it is admitted when what is left reaches the threshold, and only then can a later one
    repeat it. None (not measured) stays None, and is never admitted.

    ValueError on a penalty that is negative or not finite, and on a NaN threshold or gain.
    """
    if not (math.isfinite(penalty) and penalty >= 0):
        raise ValueError(f"penalty = {penalty}; allowed: a finite number, 0 or more")
    if math.isnan(threshold):
        raise ValueError(f"threshold = {threshold}; allowed: a number, -inf or inf")
    pairs = frozenset(duplicates)
    left = list(gains)
    admitted: list[int] = []
    for position in order(gains):
        gain = gains[position]
        if gain is None:
            continue
        if any((min(position, other), max(position, other)) in pairs for other in admitted):
            gain -= penalty
        left[position] = gain
        if gain >= threshold:
            admitted.append(position)
    return left
