"""The report's numbers once more, from a run's Parquet rows in plain Python, its code unused."""

import hashlib
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from tests.report.runs import SAMPLES, SEED

Row = Mapping[str, Any]
NAN = math.nan


def column(rows: Sequence[Row], arm: str, field: str) -> list[float]:
    """An arm's values question by question, NaN where the question lacks it or has none."""
    found = []
    for row in rows:
        value = [m[field] for m in row["metrics"] if m["arm"] == arm]
        found.append(NAN if not value or value[0] is None else float(value[0]))
    return found


def defined(values: Sequence[float]) -> list[float]:
    """Without the NaN."""
    return [value for value in values if not math.isnan(value)]


def mean(values: Sequence[float]) -> float:
    """Mean of the defined values, NaN without any."""
    kept = defined(values)
    return sum(kept) / len(kept) if kept else NAN


def interval(values: Sequence[float]) -> tuple[float, float]:
    """Percentile bootstrap interval over the defined values, resample by resample."""
    kept = np.array(defined(values))
    if not kept.size:
        return NAN, NAN
    drawn = np.random.default_rng(SEED).integers(kept.size, size=(SAMPLES, kept.size))
    means = sorted(float(kept[places].mean()) for places in drawn)
    low, high = np.quantile(means, [0.025, 0.975])
    return float(low), float(high)


def average_interval(sets: Sequence[Sequence[float]]) -> tuple[float, float]:
    """Percentile interval of the mean of data sets' means, each resampled by itself."""
    drawn = []
    for stratum, values in enumerate(sets):
        kept = np.array(defined(values))
        if not kept.size:
            return NAN, NAN
        rng = np.random.default_rng((SEED, stratum))
        drawn.append(kept[rng.integers(kept.size, size=(SAMPLES, kept.size))].mean(axis=1))
    low, high = np.quantile(np.mean(drawn, axis=0), [0.025, 0.975])
    return float(low), float(high)


def folds(texts: Sequence[str], number: int) -> list[int]:
    """The fold of each question: the distinct texts are dealt in the order of a hash."""
    dealt = sorted({*texts}, key=lambda text: hashlib.sha256(f"{SEED}:{text}".encode()).hexdigest())
    return [dealt.index(text) % number for text in texts]


def cross_fitted(
    f1: Sequence[Sequence[float]], tokens: Sequence[Sequence[float]], fold: Sequence[int]
) -> list[int]:
    """The setting of each question: the best F1 on the other folds, then the fewest tokens."""

    def worth(setting: int, own: int) -> tuple[float, float]:
        others = [question for question, other in enumerate(fold) if other != own]
        right = sum(defined([f1[setting][question] for question in others]))
        return right, -sum(tokens[setting][question] for question in others)

    return [max(range(len(f1)), key=lambda setting: worth(setting, own)) for own in fold]


def minus(a: Sequence[float], b: Sequence[float]) -> list[float]:
    """Differences question by question."""
    return [x - y for x, y in zip(a, b, strict=True)]


def probe_tokens(row: Row) -> int:
    """Tokens of a question's rollouts."""
    return int(sum(row["probes"]["prompt_tokens"]) + sum(row["probes"]["steps"]))


TOKENS: Mapping[str, Callable[[Row], int]] = {
    "probe": probe_tokens,
    "score_qlm": lambda row: int(row["score_tokens_qlm"]),
    "score_coverage": lambda row: int(row["score_tokens_coverage"]),
}


def selection(rows: Sequence[Row], stages: Sequence[str]) -> list[int]:
    """Tokens that models spent on each question in some stages."""
    return [sum(TOKENS[stage](row) for stage in stages) for row in rows]


def labelled(rows: Sequence[Row], arm: str) -> list[Row]:
    """The questions where an arm's F1 is defined."""
    return [
        row for row, f1 in zip(rows, column(rows, arm, "f1"), strict=True) if not math.isnan(f1)
    ]


def same(found: float | None, expected: float) -> bool:
    """Whether a frame's number is the expected one; null is NaN."""
    if found is None or math.isnan(expected):
        return found is None and math.isnan(expected)
    return math.isclose(found, expected, rel_tol=1e-9, abs_tol=1e-12)
