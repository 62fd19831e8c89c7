"""Metrics of answers that must name several things: ASQA's short answers, QAMPARI's entities.

A question's answer sets are its distinct answers, each with its aliases. Scores are in [0, 1]
(the papers print them times 100) and NaN when there is no answer set to score by. Aliases that
normalise to nothing would match everything: they are ignored, and so is a set of only such.
Source: ALCE; AdaRankLLM's public scoring code for the mode `adarank`.
"""

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, get_args

from pipeline.core.answers import normalise

ListMode = Literal["alce", "adarank"]

_CITATION = re.compile(r"\s?\[\d+(?:\s*,\s*\d+)*\]")
_CUTOFF = 5


@dataclass(frozen=True)
class ListScores:
    """Scores of one list of predictions; recall_5 asks for at most five of the answer sets."""

    precision: float
    recall: float
    recall_5: float
    f1: float
    f1_5: float
    predictions: int


def clean_output(text: str, *, cut: bool = True) -> str:
    """An output as ALCE scores it: stripped, its first line alone, without citations as "[1]".

    cut=False keeps every line, for models that answer in paragraphs and stop by themselves.
    """
    stripped = text.strip()
    kept = stripped.split("\n", 1)[0] if cut else stripped
    return _CITATION.sub("", kept).strip()


def str_em(output: str, answer_sets: Sequence[Sequence[str]]) -> float:
    """ASQA's STR-EM: share of answer sets with an alias inside the output, both normalised."""
    text = normalise(output)
    sets = _normalised(answer_sets)
    if not sets:
        return math.nan
    return sum(any(alias in text for alias in aliases) for aliases in sets) / len(sets)


def str_em_hit(output: str, answer_sets: Sequence[Sequence[str]]) -> float:
    """1 when every answer set has an alias inside the output, else 0."""
    share = str_em(output, answer_sets)
    return share if math.isnan(share) else float(share == 1)


def qampari(output: str, answer_sets: Sequence[Sequence[str]], *, mode: ListMode) -> ListScores:
    """Precision and recall of a comma-separated list of entities.

    mode: "alce" counts a prediction that equals an alias; "adarank" one that contains an alias,
          which is never lower, so the two are not comparable and a table must name its mode.

    Without a prediction every score is 0. ValueError on an unknown mode.
    """
    if mode not in get_args(ListMode):
        raise ValueError(f"mode = {mode!r}; allowed: {', '.join(get_args(ListMode))}")
    sets = _normalised(answer_sets)
    predictions = _predictions(output)
    if not sets:
        nan = math.nan
        return ListScores(nan, nan, nan, nan, nan, len(predictions))
    right = [any(_names(p, aliases, mode) for aliases in sets) for p in predictions]
    found = sum(any(_names(p, aliases, mode) for p in predictions) for aliases in sets)
    precision = sum(right) / len(right) if right else 0.0
    recall = found / len(sets)
    recall_5 = min(_CUTOFF, found) / min(_CUTOFF, len(sets))
    return ListScores(
        precision=precision,
        recall=recall,
        recall_5=recall_5,
        f1=_harmonic(precision, recall),
        f1_5=_harmonic(precision, recall_5),
        predictions=len(predictions),
    )


def _predictions(output: str) -> list[str]:
    entries = output.rstrip().rstrip(".").rstrip(",").split(",")
    return [text for entry in entries if (text := normalise(entry))]


def _names(prediction: str, aliases: Sequence[str], mode: ListMode) -> bool:
    if mode == "alce":
        return prediction in aliases
    return any(alias in prediction for alias in aliases)


def _normalised(answer_sets: Sequence[Sequence[str]]) -> list[list[str]]:
    sets = [[text for alias in aliases if (text := normalise(alias))] for aliases in answer_sets]
    return [aliases for aliases in sets if aliases]


def _harmonic(one: float, other: float) -> float:
    return 2 * one * other / (one + other) if one + other else 0.0
