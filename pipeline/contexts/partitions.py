"""The partitions of a set of contexts: where they are, which are finished, and their rows."""

import datetime
import re

import pyarrow as pa
import pyarrow.compute as pc

from pipeline import schema
from pipeline.runs import layout
from pipeline.runs.storage import Storage

MANIFEST, SUCCESS = "manifest.json", "_SUCCESS"
_DATE = re.compile(r"date=(\d{4}-\d{2}-\d{2})")


def folder(root: str, name: str) -> str:
    """Where the contexts of the runs called `name` are kept under a root."""
    return f"{root.rstrip('/')}/{layout.CONTEXTS}/{name}"


def partition(date: datetime.date) -> str:
    """The folder of a date, below that of its set."""
    return f"date={date.isoformat()}"


def finished(storage: Storage) -> list[datetime.date]:
    """The dates of a set whose partitions are whole, in order."""
    found = (_DATE.fullmatch(name) for name in storage.names(""))
    dates = sorted(datetime.date.fromisoformat(match[1]) for match in found if match)
    return [date for date in dates if storage.exists(f"{partition(date)}/{SUCCESS}")]


def parts(storage: Storage, date: datetime.date) -> list[str]:
    """The paths of a partition's parts, in the order of the questions."""
    own = partition(date)
    return [layout.part(own, shard) for shard in sorted(layout.shards_done(storage, own))]


def flat(rows: pa.Table) -> pa.Table:
    """Finished rows with question_id, question and context as a partition holds them: a column a
    field of the context, whose text takes its name."""
    context = rows[schema.CONTEXT.name].combine_chunks()
    kept = rows.select(["question_id", "question"])
    for field in schema.CONTEXT.type:
        name = schema.CONTEXT.name if field.name == "text" else field.name
        kept = kept.append_column(name, pc.struct_field(context, field.name))
    return kept
