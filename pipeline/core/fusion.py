"""Reciprocal rank fusion (Cormack, Clarke and Buettcher, SIGIR 2009): ranks alone, no scores."""

import math
from collections.abc import Sequence


def reciprocal_rank_fusion(rankings: Sequence[Sequence[str]], *, k: int) -> list[tuple[str, float]]:
    """(passage id, sum over rankings of 1 / (k + rank)), best first, ties by id.

    rankings: each retriever's passage ids, best first; rank from 1. A passage that a ranking
    lacks gets nothing from it. ValueError where an id stands twice in one ranking.
    """
    shares: dict[str, list[float]] = {}
    for ranking in rankings:
        if len(set(ranking)) != len(ranking):
            twice = next(id for place, id in enumerate(ranking) if id in ranking[:place])
            raise ValueError(f"passage {twice!r} stands twice in one ranking")
        for rank, passage_id in enumerate(ranking, start=1):
            shares.setdefault(passage_id, []).append(1 / (k + rank))
    fused = [(passage_id, math.fsum(parts)) for passage_id, parts in shares.items()]
    return sorted(fused, key=lambda entry: (-entry[1], entry[0]))
