"""Finished rows as the flat frames that calibration works on.

candidates  one row a candidate: question_id, position, label (holds a golden answer; null
            where there is no golden answer), tokens (by the generator's tokenizer; null
            where no arm used the passage), and one Float64 column for every signal that the
            run stored, named as in core.blend.SIGNALS; null = not measured
arms        one row a question and arm: question_id, arm, f1 (NaN = undefined), prompt_tokens
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import polars as pl
import pyarrow as pa

from pipeline.core.answers import holds_answer
from pipeline.core.blend import SIGNALS
from pipeline.prompts.render import PassageFormat, passage
from pipeline.stages.signals import retriever_scores

ARM_COLUMNS = ("question_id", "arm", "f1", "prompt_tokens")
_KEYS = {"question_id": pl.String, "position": pl.Int64, "label": pl.Boolean, "tokens": pl.Int64}


def candidates(
    parts: Iterable[pa.Table], *, passage_format: PassageFormat = "contents"
) -> pl.DataFrame:
    """The candidates of finished rows, in the order of the rows and of retrieval.

    parts need question_id, golden_answers and candidates; every column of theirs that holds a
    signal (score_<name>, gains, probes.nu) is taken along, and so are the passages' tokens (arms).

    passage_format: the text that `label` looks at, that of the prompts.
    """
    rows = [
        made
        for part in parts
        for row in part.select(_wanted(part)).to_pylist()
        for made in _candidates(row, passage_format)
    ]
    present = [name for name in SIGNALS if any(row.get(name) is not None for row in rows)]
    return pl.DataFrame(rows, schema={**_KEYS, **dict.fromkeys(present, pl.Float64)})


def arms(parts: Iterable[pa.Table]) -> pl.DataFrame:
    """The metrics of finished rows by question and arm; parts need question_id and metrics."""
    frames = [
        pl.DataFrame(pl.from_arrow(part.select(["question_id", "metrics"])))
        .explode("metrics")
        .drop_nulls("metrics")
        .unnest("metrics")
        .select(ARM_COLUMNS)
        for part in parts
        if part.num_rows
    ]
    if not frames:
        raise ValueError("no finished row to read metrics from")
    return pl.concat(frames)


def _wanted(part: pa.Table) -> list[str]:
    needed = ["question_id", "golden_answers", "candidates"]
    scores = [f"score_{name}" for name in SIGNALS]
    return needed + [
        name for name in ("gains", "probes", "arms", *scores) if name in part.column_names
    ]


def _candidates(row: Mapping[str, Any], passage_format: PassageFormat) -> list[dict[str, Any]]:
    pool = row["candidates"]
    signals: dict[str, Sequence[float | None]] = {
        name: row[f"score_{name}"] for name in SIGNALS if row.get(f"score_{name}") is not None
    }
    signals["retriever"] = retriever_scores(pool)
    if row.get("gains") is not None:
        signals["ig"] = row["gains"]
    if row.get("probes") is not None:
        signals["neg_nu"] = [None if nu is None else -nu for nu in row["probes"]["nu"]]
    tokens = {
        piece["position"]: piece["tokens"]
        for arm in row.get("arms") or []
        for piece in arm["evidence"]
        if piece["text"] is None
    }
    return [
        {
            "question_id": row["question_id"],
            "position": position,
            "label": _label(candidate, row["golden_answers"], passage_format),
            "tokens": tokens.get(position),
            **{name: values[position] for name, values in signals.items()},
        }
        for position, candidate in enumerate(pool)
    ]


def _label(
    candidate: Mapping[str, Any], golds: Sequence[str], passage_format: PassageFormat
) -> bool | None:
    text = passage(candidate["title"], candidate["text"], passage_format)
    held = holds_answer(text, golds)
    return None if math.isnan(held) else held == 1
