"""What is kept of a night to compare later ones with: metrics and probes question by question.

One Parquet file without any text, about 0.5 kB a question, with the night's lineage in its footer:
it stays when the night's rows go, and a copy of it is a frozen baseline.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import polars as pl
import pyarrow as pa
from numpy.typing import NDArray

from pipeline.calibration.finished import FinishedRun
from pipeline.config import TolerancesConfig
from pipeline.readers import InputError
from pipeline.report.finished import Finished
from pipeline.runs.storage import Storage

METRICS = tuple(TolerancesConfig.model_fields)
_PROBES = ("probes.nu0", "probes.nu", "probes.steps", "gains")
_COLUMNS = ("question_id", *(f"metrics.list.element.{name}" for name in ("arm", *METRICS)))


@dataclass(frozen=True)
class Scores(FinishedRun):
    """A night's scores: what the drift check reads as a run's rows, and every arm's metrics.

    `folder` is where the file is, `manifest` the lineage of its night.
    """

    def parts(self, columns: Sequence[str] | None) -> Iterator[pa.Table]:
        """Its rows' columns, in one piece; those that it does not hold are left out."""
        storage, name = _place(self.folder)
        there = set(self.columns())
        kept = None if columns is None else [c for c in columns if c.partition(".")[0] in there]
        yield storage.read_table(name, kept)

    def columns(self) -> list[str]:
        """The names of its columns."""
        storage, name = _place(self.folder)
        return storage.columns(name)

    @property
    def id(self) -> str:
        """Of its night."""
        return str(self.manifest["id"])

    def of_arm(self, arm: str) -> pl.DataFrame:
        """question_id and METRICS of an arm as floats, undefined as null; InputError without it."""
        (table,) = self.parts(["question_id", "metrics"])
        rows = pl.DataFrame(pl.from_arrow(table)).explode("metrics").unnest("metrics")
        own = rows.filter(pl.col("arm") == arm)
        if own.is_empty():
            known = ", ".join(rows["arm"].drop_nulls().unique(maintain_order=True)) or "none"
            raise InputError(f"{self.folder}: no arm {arm!r}; there are: {known}")
        floats = (pl.col(name).cast(pl.Float64).fill_nan(None) for name in METRICS)
        return own.select("question_id", *floats)


def write(run: Finished, path: str, lineage: Mapping[str, Any]) -> Scores:
    """Writes a finished run's scores to a path or URI."""
    storage, name = _place(path)
    tables = list(run.parts([*_COLUMNS, *_PROBES]))
    storage.write_table(name, pa.concat_tables(tables), lineage)
    return Scores(path, dict(lineage))


def read(path: str) -> Scores:
    """The scores in a file; InputError where it holds none."""
    storage, name = _place(path)
    try:
        _, lineage = storage.footer(name)
    except FileNotFoundError:
        raise InputError(f"{path}: absent; allowed: scores.parquet of a finished night") from None
    if "id" not in lineage or "config" not in lineage:
        raise InputError(f"{path}: its footer names no night; allowed: a night's scores.parquet")
    return Scores(path, lineage)


def paired(
    baseline: pl.DataFrame, night: pl.DataFrame, metric: str
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """A metric of both sides over the questions that both have, in one order, undefined as NaN."""
    both = baseline.select("question_id", pl.col(metric).alias("before")).join(
        night.select("question_id", pl.col(metric).alias("now")), on="question_id"
    )
    both = both.sort("question_id").fill_null(float("nan"))
    return both["before"].to_numpy(), both["now"].to_numpy()


def _place(path: str) -> tuple[Storage, str]:
    folder, _, name = path.rpartition("/")
    return Storage(folder), name
