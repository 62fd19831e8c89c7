"""Clues: how a policy of selector clues chooses among a row's sentences, part by part.

S sentences of a row. A list of them is that of the extractor, "clues", or all, "sentences"; it is
ordered by the reranker, cut by the truncator, and then held against Tp. Places count in the row's
`sentences`.
"""

import math
import random
from collections.abc import Mapping
from typing import Any, NamedTuple

from pipeline import schema
from pipeline.config import PolicyOptions, SelectionConfig

LISTS = schema.CLUE_LISTS
SPLIT, RERANK, EXTRACT = "split_sentences", "score_sentences", "extract_clues"


class Ordered(NamedTuple):
    """What a truncator is shown: which list, and in which order."""

    of: str
    by: str

    @property
    def column(self) -> str:
        """The truncator's column."""
        return str(schema.cut(self.of, self.by).name)

    @property
    def stage(self) -> str:
        """The truncator's stage."""
        return f"truncate_{self.of}_{self.by}"


def ordered(policy: PolicyOptions) -> Ordered:
    """The list that a policy takes, and its order."""
    return Ordered("clues" if policy.extract == "model" else "sentences", policy.rerank)


def probe_stage(of: str) -> str:
    """The stage that measures the gains of a list."""
    return f"probe_{of}"


def stages(policy: PolicyOptions) -> tuple[str, ...]:
    """The durable stages that a policy needs for its sentences, in plan order."""
    if policy.selector != "clues":
        return ()
    own = ordered(policy)
    return (
        *([RERANK] * (policy.rerank == "cosine")),
        *([EXTRACT] * (policy.extract == "model")),
        *([probe_stage(own.of)] * (policy.rerank == "ig")),
        *([own.stage] * (policy.truncate == "model")),
    )


def columns(policy: PolicyOptions) -> tuple[str, ...]:
    """The row's columns that a policy reads for its sentences."""
    if policy.selector != "clues":
        return ()
    own = ordered(policy)
    cut = [own.column] * (policy.truncate == "model")
    return (*order_columns(own), *cut)


def order_columns(own: Ordered) -> tuple[str, ...]:
    """The row's columns from which a list comes in its order."""
    by = {"cosine": schema.SENTENCE_SCORES.name, "ig": schema.sentence_gains(own.of).name}
    named = [schema.CLUES.name] * (own.of == "clues")
    return (schema.SENTENCES.name, *named, *([by[own.by]] if own.by in by else ()))


def listed(row: Mapping[str, Any], of: str) -> list[int]:
    """The places of a list: as extracted, or all as they stand in the passages."""
    return list(row["clues"]["named"] if of == "clues" else range(len(row["sentences"])))


def in_order(row: Mapping[str, Any], own: Ordered) -> list[tuple[int, float]]:
    """(place, signal) of a list, best first, equals as listed; without a reranker as listed.

    A gain that was not measured goes last, as -inf.
    """
    places = listed(row, own.of)
    if own.by == "cosine":
        signals = [row["sentence_scores"][place] for place in places]
    elif own.by == "ig":
        gains = row[schema.sentence_gains(own.of).name]["gains"]
        signals = [-math.inf if gain is None else gain for gain in gains]
    else:
        signals = [-float(i) for i in range(len(places))]
    pairs = zip(places, signals, strict=True)
    return sorted(pairs, key=lambda pair: -pair[1])  # a stable sort


def kept(row: Mapping[str, Any], policy: SelectionConfig, *, seed: int) -> list[int]:
    """The places that a policy admits, best first, before its budget.

    A random cut keeps from none to all, evenly, as (seed, question_id) say.
    """
    own = ordered(policy)
    pairs = in_order(row, own)
    if policy.truncate == "model":
        pairs = pairs[: row[own.column]["keep"]]
    elif policy.truncate == "random":
        draw = random.Random(f"{seed}:{row['question_id']}:truncate")
        pairs = pairs[: draw.randint(0, len(pairs))]
    return [place for place, signal in pairs if signal >= policy.threshold]
