"""Metrics of the ALCE tasks, each of one question and in [0, 1]; NaN where it has no target.

ASQA: how many readings of an ambiguous question a paragraph covers. QAMPARI: a list against sets of
aliases. ELI5: how many claims a paragraph entails, as some model of entailment says. A target that
normalises to nothing would always match: it is left out, and a set of such targets with it.
Sources: Gao et al. 2023 (ALCE); AdaRankLLM, table II.
"""

import math
import re
from collections.abc import Sequence
from typing import Literal, NamedTuple, TypeAlias, get_args

from pipeline.core.answers import normalise

ListMode: TypeAlias = Literal["alce", "adarank"]
"""How a prediction meets an alias: it equals it (ALCE), or holds it (AdaRankLLM's own evaluation, a
part of a word included). The numbers of the two do not compare."""
LIST_MODES: tuple[ListMode, ...] = get_args(ListMode)
_CITATION = re.compile(r" ?\[(?:DOC )?\d+(?:, ?(?:DOC )?\d+)*\]")
_TOP = 5


class ListScores(NamedTuple):
    """Of a list of predictions."""

    precision: float
    recall: float
    f1: float
    recall_5: float


def cleaned(output: str, *, first_line: bool) -> str:
    """An output as ALCE scores it: stripped, cut at its first line break, without citations.

    Citations are "[1]", and what our prompts invite: "[DOC 1]" and "[1, 2]". Without `first_line`
    nothing is cut, for models that write several paragraphs.
    """
    text = output.strip()
    if first_line:
        text = text.partition("\n")[0]
    return _CITATION.sub("", text).strip()


def str_em(output: str, readings: Sequence[Sequence[str]]) -> float:
    """ASQA's STR-EM: the share of the readings of which the output holds a short answer.

    readings: the short answers of each. Substrings after normalise, as ALCE has it.
    """
    found = [_holds(normalise(output), targets) for targets in _targets(readings)]
    return sum(found) / len(found) if found else math.nan


def str_em_hit(output: str, readings: Sequence[Sequence[str]]) -> float:
    """1 where the output holds a short answer of every reading, else 0."""
    share = str_em(output, readings)
    return share if math.isnan(share) else float(share == 1)


def predictions(output: str) -> list[str]:
    """The normalised entries of a comma-separated list, empty ones left out, repeats kept."""
    text = output.rstrip().rstrip(".").rstrip(",")
    return [entry for part in text.split(",") if (entry := normalise(part))]


def list_scores(output: str, answers: Sequence[Sequence[str]], *, mode: ListMode) -> ListScores:
    """QAMPARI's scores of a list; `answers` are sets of aliases, one an answer.

    Precision: the share of the predictions that meet an alias of any answer; recall: the share of
    the answers of which some prediction meets an alias; recall_5 takes five for enough. A list
    without entries scores 0. ValueError on another mode.
    """
    if mode not in LIST_MODES:
        raise ValueError(f"mode {mode!r}; allowed: {', '.join(LIST_MODES)}")
    sets, predicted = _targets(answers), predictions(output)
    if not sets:
        return ListScores(math.nan, math.nan, math.nan, math.nan)

    def meets(entry: str, aliases: Sequence[str]) -> bool:
        return entry in aliases if mode == "alce" else _holds(entry, aliases)

    right = sum(any(meets(entry, aliases) for aliases in sets) for entry in predicted)
    hits = sum(any(meets(entry, aliases) for entry in predicted) for aliases in sets)
    precision = right / len(predicted) if predicted else 0.0
    recall = hits / len(sets)
    total = precision + recall
    f1 = 2 * precision * recall / total if total else 0.0
    return ListScores(precision, recall, f1, min(_TOP, hits) / min(_TOP, len(sets)))


def claim_recall(entailed: Sequence[bool]) -> float:
    """ELI5's claim recall: the share of a question's claims that the output entails."""
    return sum(entailed) / len(entailed) if entailed else math.nan


def _targets(groups: Sequence[Sequence[str]]) -> list[list[str]]:
    """The groups' texts normalised, without those that normalise to nothing, nor empty groups."""
    kept = [[target for text in group if (target := normalise(text))] for group in groups]
    return [group for group in kept if group]


def _holds(text: str, targets: Sequence[str]) -> bool:
    return any(target in text for target in targets)
