"""Split sentences: the first passages of a question as sentences that say where they come from."""

from typing import Any

import pyarrow as pa

from pipeline import schema
from pipeline.config import CluesConfig
from pipeline.engines import sentences
from pipeline.stages.clues import SPLIT
from pipeline.stages.stage import Stage, add_columns

ADDS = pa.schema([schema.SENTENCES])


def stage(cfg: CluesConfig) -> Stage:
    """The stage; it asks no model, and is so cheap that it keeps no parts of its own."""

    def split(table: pa.Table) -> pa.Table:
        rows = table["candidates"].to_pylist()
        return add_columns(table, {schema.SENTENCES: [_row(row, cfg) for row in rows]})

    return Stage(
        name=SPLIT,
        needs=("candidates",),
        adds=ADDS,
        depends_on={
            **sentences.describe(cfg.language),
            "passages": cfg.passages,
            "max_sentences": cfg.max_sentences,
        },
        build=lambda engines: split,
    )


def _row(candidates: list[dict[str, Any]], cfg: CluesConfig) -> list[dict[str, Any]]:
    return [
        {"position": position, "sentence": sentence, "text": text}
        for position, candidate in enumerate(candidates[: cfg.passages])
        for sentence, text in enumerate(
            sentences.split(candidate["text"], cfg.language)[: cfg.max_sentences]
        )
    ]
