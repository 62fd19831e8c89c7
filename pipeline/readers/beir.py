"""BEIR: corpus.jsonl {_id, title, text}, queries.jsonl {_id, text}, qrels/{split}.tsv.

The judgements are read by `trec.qrels`, which knows both forms.
"""

from collections.abc import Iterator

import pyarrow.fs as pafs

from pipeline.paths import locate
from pipeline.readers import fields
from pipeline.readers.fields import Value
from pipeline.readers.lines import OnBad, Row, checked, lines, of_json, refuse


def queries_file(path: str) -> str:
    """queries.jsonl in a data set's folder; another path as it is."""
    filesystem, name = locate(path)
    info = filesystem.get_file_info(name)
    return f"{path.rstrip('/')}/queries.jsonl" if info.type == pafs.FileType.Directory else path


def questions(path: str, on_bad: OnBad = refuse) -> Iterator[Row]:
    """Rows of the queries, without golden answers; `path` is the folder or queries.jsonl."""
    return checked(lines(queries_file(path)), of_json(_query), "question_id", on_bad)


def passage(value: Value) -> Row:
    """The row {passage_id, contents} of one passage; where only the title has words, as in some
    of the collections, the title is the text."""
    passage_id = fields.identifier(value, "_id")
    body = fields.optional_text(value, "text") or ""
    title = fields.optional_text(value, "title") or ""
    if body.strip():
        return {"passage_id": passage_id, "contents": fields.joined(title, body)}
    if title.strip():
        return {"passage_id": passage_id, "contents": " ".join(title.split())}
    raise ValueError(f"text must be a text that is not empty, got {value.get('text')!r}")


def _query(value: Value) -> Row:
    return {
        "question_id": fields.identifier(value, "_id"),
        "question": fields.text(value, "text"),
        "golden_answers": [],
        "metadata": fields.metadata(value),
    }
