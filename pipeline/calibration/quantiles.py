"""Thresholds from unlabelled questions: the Tp that admits a given share, or so many tokens.

Tp is not portable across models, templates, K, MT or dtype, but the share that it admits can be
asked for. Candidates are a frame: question_id, position, ig (null = not measured) and, for a
target in tokens, tokens; frames.candidates makes one. Any other signal serves as well as ig, by
its column's name.
"""

import math
from dataclasses import dataclass

import polars as pl


@dataclass(frozen=True)
class Threshold:
    """A threshold, and what it does on the candidates that it was taken from.

    share:           of the measured candidates, those that reach it; before any budget.
    passages:        admitted per question on average, after top_m.
    evidence_tokens: of these per question on average; NaN where tokens were not given.
    empty_share:     of the questions, those that admit nothing: what they then read is up to the
                     empty-context rule, and no part of the two means above.
    unmeasured:      candidates without the signal, which no threshold admits.
    """

    threshold: float
    share: float
    passages: float
    evidence_tokens: float
    empty_share: float
    questions: int
    candidates: int
    unmeasured: int


def for_share(
    candidates: pl.DataFrame, *, share: float, top_m: int, signal: str = "ig"
) -> Threshold:
    """The lowest threshold that admits at most `share` of the measured candidates.

    It lies half-way between the last admitted value and the next, so that rounding moves nothing;
    equal values are admitted together or not at all, and inf admits nothing. ValueError unless
    0 < share <= 1, and without a measured candidate.
    """
    if not 0 < share <= 1:
        raise ValueError(f"share = {share}; allowed: above 0, up to 1")
    ranked = _ranked(candidates, signal)
    allowed = math.floor(share * len(ranked) + 1e-9)
    return describe(candidates, _cut(ranked[signal].to_list(), allowed), top_m=top_m, signal=signal)


def for_tokens(
    candidates: pl.DataFrame, *, tokens: float, top_m: int, signal: str = "ig"
) -> Threshold:
    """The lowest threshold whose admitted passages, at most top_m a question, have on average at
    most `tokens` tokens a question.

    Between values as in for_share. ValueError on a negative target, a candidate without a token
    count, and without a measured candidate.
    """
    if not tokens >= 0:
        raise ValueError(f"tokens = {tokens}; allowed: 0 or more")
    _check_columns(candidates, "tokens")
    if unknown := candidates["tokens"].null_count():
        raise ValueError(f"candidates: {unknown} have no token count; a target in tokens needs all")
    ranked = _ranked(candidates, signal)
    spent = ranked.select(
        pl.when(pl.col("rank") <= top_m).then("tokens").otherwise(0).cum_sum()
    ).to_series()
    allowed = int((spent <= tokens * candidates["question_id"].n_unique()).sum())
    return describe(candidates, _cut(ranked[signal].to_list(), allowed), top_m=top_m, signal=signal)


def describe(
    candidates: pl.DataFrame, threshold: float, *, top_m: int, signal: str = "ig"
) -> Threshold:
    """What a threshold does on the candidates; ValueError as in for_share."""
    ranked = _ranked(candidates, signal)
    passing = ranked.filter(pl.col(signal) >= threshold)
    admitted = passing.filter(pl.col("rank") <= top_m)
    questions = candidates["question_id"].n_unique()
    counted = "tokens" in candidates.columns and not candidates["tokens"].null_count()
    return Threshold(
        threshold=threshold,
        share=len(passing) / len(ranked),
        passages=len(admitted) / questions,
        evidence_tokens=int(admitted["tokens"].sum()) / questions if counted else math.nan,
        empty_share=1 - admitted["question_id"].n_unique() / questions,
        questions=questions,
        candidates=len(candidates),
        unmeasured=len(candidates) - len(ranked),
    )


def _ranked(candidates: pl.DataFrame, signal: str) -> pl.DataFrame:
    """The measured candidates, best first, with their rank in their question (Algorithm 1)."""
    _check_columns(candidates, "question_id", "position", signal)
    ranked = (
        candidates.drop_nulls(signal)
        .sort(signal, "position", descending=[True, False], maintain_order=True)
        .with_columns((pl.int_range(pl.len()).over("question_id") + 1).alias("rank"))
    )
    if ranked.is_empty():
        raise ValueError(f"candidates: {signal!r} is measured for none of {len(candidates)}")
    if ranked[signal].is_nan().any():
        raise ValueError(f"candidates: {signal!r} holds NaN; allowed: numbers, null = not measured")
    return ranked


def _cut(values: list[float], allowed: int) -> float:
    """The threshold that admits the first `allowed` of falling values, or fewer where it would
    part equal ones."""
    while 0 < allowed < len(values) and values[allowed - 1] == values[allowed]:
        allowed -= 1
    if allowed == 0:
        return math.inf
    if allowed == len(values):
        return values[-1]
    between = (values[allowed - 1] + values[allowed]) / 2
    return between if between > values[allowed] else values[allowed - 1]


def _check_columns(candidates: pl.DataFrame, *names: str) -> None:
    for name in names:
        if name not in candidates.columns:
            present = ", ".join(candidates.columns)
            raise ValueError(f"candidates: no column {name!r}; present: {present}")
