"""Tables: Parquet, one file or a folder of parts, and Hugging Face data sets (`hf://`).

Our own schema, so a finished run's contexts are an input again: question_id (or id), question,
golden_answers, metadata (an object, or one as JSON), judgements, and candidates with passage_id
(or id) and title and text (or contents). Only question is required; a row without an id is known
by its number from 0. Places count rows from 1, as lines do in text.
"""

from collections.abc import Iterator, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.fs as pafs
import pyarrow.parquet as pq

from pipeline.config.run import HUB
from pipeline.paths import locate
from pipeline.readers import fields, huggingface
from pipeline.readers.fields import Value
from pipeline.readers.lines import (
    InputError,
    OnBad,
    Place,
    Row,
    checked,
    json_object,
    refuse,
)

IDS = ("question_id", "id")
_QUESTION = huggingface.COLUMNS
_BATCH = 1024  # rows in memory at once; a row holds all its passages


def files(path: str) -> list[str]:
    """The Parquet files of a folder by name, or the path itself."""
    filesystem, name = locate(path)
    if filesystem.get_file_info(name).type != pafs.FileType.Directory:
        return [path]
    found = filesystem.get_file_info(pafs.FileSelector(name))
    names = sorted(f.base_name for f in found if f.base_name.endswith(".parquet"))
    if not names:
        raise InputError(f"{path}: holds no file that ends in .parquet")
    return [f"{path.rstrip('/')}/{part}" for part in names]


def questions(path: str, on_bad: OnBad = refuse) -> Iterator[Row]:
    """Rows of the questions, with their judgements where the table has them."""
    return checked(_rows(path, _QUESTION, "question"), _question, "question_id", on_bad)


def candidates(path: str) -> Iterator[Row]:
    """Rows {question_id, candidates} with the passages' contents."""
    return checked(_rows(path, (*IDS, "candidates"), "candidates"), _list, "question_id", refuse)


def passages(path: str) -> Iterator[Row]:
    """Rows {passage_id, contents} of a corpus with id and contents, or title and text."""
    columns = ("id", "passage_id", "contents", "title", "text")
    return checked(_rows(path, columns, None), _passage, "passage_id", refuse)


def _rows(path: str, wanted: Sequence[str], required: str | None) -> Iterator[tuple[Place, Value]]:
    """Rows as objects without their null values, with their places."""
    number = 0
    for file, found in _tables(path, wanted, required):
        for row, value in enumerate(found, 1):
            yield Place(file, row, number), {k: v for k, v in value.items() if v is not None}
            number += 1


def _tables(
    path: str, wanted: Sequence[str], required: str | None
) -> Iterator[tuple[str, Iterator[dict[str, Any]]]]:
    if path.startswith(HUB):
        yield path, huggingface.rows(path)
        return
    for file in files(path):
        yield file, _parquet(file, wanted, required)


def _parquet(path: str, wanted: Sequence[str], required: str | None) -> Iterator[dict[str, Any]]:
    try:
        filesystem, name = locate(path)
        with filesystem.open_input_file(name) as stream:
            file = pq.ParquetFile(stream)
            names = file.schema_arrow.names
            if required is not None and required not in names:
                raise InputError(f"{path}: has no column {required!r}, only {', '.join(names)}")
            kept = [name for name in wanted if name in names]
            for batch in file.iter_batches(_BATCH, columns=kept):
                yield from batch.to_pylist()
    except FileNotFoundError:
        raise InputError(f"{path}: no such file") from None
    except (pa.ArrowInvalid, OSError) as error:
        raise InputError(f"{path}: cannot be read as Parquet: {error}") from None


def _question(value: Value) -> Row:
    row = {
        **fields.known_id(value, *IDS),
        "question": fields.text(value, "question"),
        "golden_answers": fields.texts(value, "golden_answers"),
        "metadata": _metadata(value),
    }
    judged = fields.objects(value, "judgements") if "judgements" in value else None
    return {**row, "judgements": judged}


def _metadata(value: Value) -> dict[str, Any]:
    found = value.get("metadata")
    return json_object(found.encode()) if isinstance(found, str) else fields.metadata(value)


def _list(value: Value) -> Row:
    found = [
        fields.candidate(entry, "passage_id", "id", contents=fields.contents_of(entry))
        for entry in fields.objects(value, "candidates")
    ]
    return {**fields.known_id(value, *IDS), "candidates": fields.distinct(found, "candidates")}


def _passage(value: Value) -> Row:
    return {
        "passage_id": fields.identifier(value, "id", "passage_id"),
        "contents": fields.contents_of(value),
    }
