"""Every candidate of a run with its label and its signals, and how well each signal tells them.

A signal says of a passage "show it": by it a passage that holds a golden answer should stand above
one that does not, and a correct one above misinformation. AUC pools all questions, so it asks of a
signal's scale to mean the same for every question; the accuracy over pairs within a question does
not.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import polars as pl
import pyarrow as pa

from pipeline.core import discrimination
from pipeline.core.answers import holds_answer
from pipeline.prompts import render
from pipeline.report.finished import Finished
from pipeline.stages.signals import retriever_scores

RETRIEVER, IG, NEG_NU = "retriever", "ig", "-NU(q|d)"
HOLDS, TRUE = "holds a golden answer", "correct over misinformation"
CORRECT, MISINFORMATION = "correct", "misinfo"
RESAMPLED = 1 << 27
"""Passages times resamples that an interval may cost: a million passages get 134 resamples."""

_READ = ("golden_answers", "candidates", "judgements", "probes.nu", "gains")
_SCORE, _TOKENS = "score_", "score_tokens_"


def scorers(run: Finished) -> list[str]:
    """The columns of the run's scorers."""
    return [n for n in run.columns if n.startswith(_SCORE) and not n.startswith(_TOKENS)]


def signals(run: Finished) -> list[str]:
    """The signals that the run's rows hold, in the order of the tables."""
    probed = [IG, NEG_NU] if "gains" in run.columns else []
    return [RETRIEVER, *probed, *(name.removeprefix(_SCORE) for name in scorers(run))]


def read(run: Finished) -> pl.DataFrame:
    """One row a candidate: question (a running number), position, holds, label, and the signals.

    holds: 1 when the passage, as the run's prompts show it, holds a golden answer as whole words;
    null without golden answers.
    label: the pool's, null where none is given. A signal that was not measured is null; that of
    the retriever is as in stages.signals.retriever_scores.
    """
    first, frames = 0, []
    for part in run.parts([*_READ, *scorers(run)]):
        frames.append(_frame(part, scorers(run), first, run.probe["passage_format"]))
        first += part.num_rows
    return pl.concat(frames)


def discrimination_frame(
    dataset: str, passages: pl.DataFrame, names: Sequence[str], *, seed: int, samples: int
) -> pl.DataFrame:
    """A row a signal and target: AUC with its interval over questions, and pairs within questions.

    `passages` counts those used and `unmeasured` those left out because the signal is null;
    `resamples` is `samples`, or fewer where there are very many passages (see RESAMPLED).
    """
    rows = [
        {"dataset": dataset, "signal": name, "target": target, **row}
        for target, labelled in _targets(passages)
        for name in names
        for row in [_row(labelled, name, seed=seed, samples=samples)]
    ]
    return pl.DataFrame(rows, schema=_SCHEMA)


def _targets(passages: pl.DataFrame) -> Iterator[tuple[str, pl.DataFrame]]:
    """The passages that have a label for each target, with it as the column `positive`."""
    held = passages.filter(pl.col("holds").is_not_null())
    if len(held):
        yield HOLDS, held.with_columns(positive=pl.col("holds") == 1)
    pool = passages.filter(pl.col("label").is_in([CORRECT, MISINFORMATION]))
    if pool["label"].n_unique() == 2:
        yield TRUE, pool.with_columns(positive=pl.col("label") == CORRECT)


def _row(labelled: pl.DataFrame, name: str, *, seed: int, samples: int) -> dict[str, Any]:
    measured = labelled.filter(pl.col(name).is_not_null())
    values = [measured[column].to_list() for column in (name, "positive", "question")]
    resamples = max(1, min(samples, RESAMPLED // max(1, len(measured))))
    mean = discrimination.bootstrap_auc(*values, seed=seed, samples=resamples)
    numbers = {
        "auc": mean.value,
        "auc_low": mean.low,
        "auc_high": mean.high,
        "pairs_in_order": discrimination.pairwise_accuracy(*values),
    }
    return {
        **{key: None if np.isnan(value) else value for key, value in numbers.items()},
        "questions": mean.n,
        "passages": len(measured),
        "positive": int(measured["positive"].sum()),
        "unmeasured": len(labelled) - len(measured),
        "resamples": resamples,
    }


_SCHEMA: dict[str, Any] = {
    **dict.fromkeys(("dataset", "signal", "target"), pl.String),
    **dict.fromkeys(("auc", "auc_low", "auc_high", "pairs_in_order"), pl.Float64),
    **dict.fromkeys(("questions", "passages", "positive", "unmeasured", "resamples"), pl.Int64),
}


def _frame(
    part: pa.Table, scores: Sequence[str], first: int, passage_format: render.PassageFormat
) -> pl.DataFrame:
    rows = [
        line
        for place, row in enumerate(part.to_pylist())
        for line in _lines(row, scores, first + place, passage_format)
    ]
    names = [name.removeprefix(_SCORE) for name in scores]
    probed = [IG, NEG_NU] if "gains" in part.column_names else []
    schema: dict[str, Any] = {
        "question": pl.Int32,
        "position": pl.Int32,
        "holds": pl.Float32,
        "label": pl.String,
        **dict.fromkeys([RETRIEVER, *probed, *names], pl.Float32),
    }
    return pl.DataFrame(rows, schema=schema, orient="row")


def _lines(
    row: Mapping[str, Any],
    scores: Sequence[str],
    question: int,
    passage_format: render.PassageFormat,
) -> Iterator[list[Any]]:
    """A row's candidates as lines of `_frame`."""
    candidates = row["candidates"]
    labels = {j["passage_id"]: j["label"] for j in row.get("judgements") or []}
    unmeasured = [None] * len(candidates)
    signals_N: list[Sequence[float | None]] = [retriever_scores(candidates)]
    if "gains" in row:
        nus = (row["probes"] or {"nu": unmeasured})["nu"]
        negative = [None if nu is None else -nu for nu in nus]
        signals_N += [unmeasured if row["gains"] is None else row["gains"], negative]
    signals_N += [unmeasured if row[name] is None else row[name] for name in scores]
    for position, candidate in enumerate(candidates):
        shown = render.passage(candidate["title"], candidate["text"], passage_format)
        held = holds_answer(shown, row["golden_answers"])
        yield [
            question,
            position,
            None if np.isnan(held) else held,
            labels.get(candidate["passage_id"]),
            *(signal[position] for signal in signals_N),
        ]
