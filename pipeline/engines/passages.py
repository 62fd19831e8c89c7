"""A corpus as a memory-mapped Arrow file: row i is the corpus's line i, read without the rest.

Every record batch but the last has BATCH_ROWS rows, so a row is found by division; the memory
that a reader takes is the pages it touches.
"""

import os
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa

from pipeline import readers
from pipeline.engines.base import Passage, split_contents

BATCH_ROWS = 4096
_FIELDS = ("passage_id", "title", "text")


class Passages:
    """The passages of a file that `write` made; `len` and rows from 0."""

    def __init__(self, path: str) -> None:
        self._reader: Any = pa.ipc.open_file(pa.memory_map(path))
        last = self._reader.num_record_batches - 1
        self._rows: int = last * BATCH_ROWS + self._reader.get_batch(last).num_rows

    def __len__(self) -> int:
        return self._rows

    def __getitem__(self, row: int) -> Passage:
        """IndexError outside 0 <= row < len."""
        if not 0 <= row < self._rows:
            raise IndexError(f"row {row}; the corpus has {self._rows}")
        batch = self._reader.get_batch(row // BATCH_ROWS)
        return Passage(*(batch.column(name)[row % BATCH_ROWS].as_py() for name in _FIELDS))

    def between(self, start: int, stop: int) -> list[Passage]:
        """Rows start, ..., stop - 1."""
        return [self[row] for row in range(start, stop)]


def write(corpus: str, path: Path, progress: Callable[[int], None]) -> int:
    """Writes a corpus, which appears whole or not at all; how many passages.

    `progress` is called with the number read. InputError on a bad line or without a passage.
    """
    schema = pa.schema([pa.field(name, pa.string(), nullable=False) for name in _FIELDS])
    scratch = path.with_name(f".{path.name}.{uuid.uuid4().hex}.tmp")
    count = 0
    try:
        with pa.OSFile(str(scratch), "wb") as sink, pa.ipc.new_file(sink, schema) as writer:
            for batch in _batches(corpus, schema):
                writer.write_batch(batch)
                count += batch.num_rows
                progress(count)
        if count == 0:
            raise readers.InputError(f"{corpus}: holds no passage")
        os.replace(scratch, path)
    finally:
        scratch.unlink(missing_ok=True)
    return count


def _batches(corpus: str, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    rows: list[Passage] = []
    for row in readers.passages(corpus):
        rows.append(Passage(row["passage_id"], *split_contents(row["contents"])))
        if len(rows) == BATCH_ROWS:
            yield _batch(rows, schema)
            rows = []
    if rows:
        yield _batch(rows, schema)


def _batch(rows: list[Passage], schema: pa.Schema) -> pa.RecordBatch:
    return pa.record_batch([list(column) for column in zip(*rows, strict=True)], schema=schema)
