"""A finished run as input: its manifest, its rows, and the sample that drift compares."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import polars as pl
import pyarrow as pa

from pipeline.calibration.drift import Sample
from pipeline.readers import InputError
from pipeline.runs import layout
from pipeline.runs.storage import Storage
from pipeline.stages.plan import CONTEXTS

MUST_AGREE = ("probe.top_k", "probe.max_tokens", "probe.template", "probe.passage_format")
"""Settings without which uncertainties are different quantities, not drifted ones."""
WORTH_NOTING = ("generator.model", "generator.revision", "generator.dtype", "generator.engine")
"""Settings that may well be why two runs differ."""
_COLUMNS = ("probes.nu0", "probes.nu", "probes.steps", "gains")


@dataclass(frozen=True)
class FinishedRun:
    """A run's folder, <root>/runs/<name>-<fingerprint>, and its manifest."""

    folder: str
    manifest: dict[str, Any]

    def setting(self, key: str) -> Any:
        """The value of a dotted key of the run's config, None where the config has no such key."""
        value: Any = self.manifest["config"]
        for name in key.split("."):
            value = value.get(name) if isinstance(value, dict) else None
        return value

    def columns(self) -> list[str]:
        """The names of the rows' columns, from the first shard's footer; InputError without one."""
        storage = Storage(self.folder)
        shards = layout.shards_done(storage, CONTEXTS)
        if not shards:
            raise InputError(f"{self.folder}: the run has no finished question")
        return storage.columns(layout.part(CONTEXTS, min(shards)))

    def parts(self, columns: Sequence[str] | None) -> Iterator[pa.Table]:
        """The finished rows' columns, all where None, shard by shard; dotted names pick fields of
        a struct."""
        storage = Storage(self.folder)
        for shard in sorted(layout.shards_done(storage, CONTEXTS)):
            yield storage.read_table(layout.part(CONTEXTS, shard), columns)


def open_run(folder: str) -> FinishedRun:
    """The run in a folder; InputError unless it is there, whole and marked as finished."""
    storage = Storage(folder)
    if not storage.exists("_SUCCESS"):
        raise InputError(f"{folder}: no finished run here: _SUCCESS is absent")
    try:
        manifest = storage.read_json("manifest.json")
    except (FileNotFoundError, ValueError) as error:
        raise InputError(f"{folder}/manifest.json: cannot be read: {error}") from None
    if not isinstance(manifest, dict) or not isinstance(manifest.get("config"), dict):
        raise InputError(f"{folder}/manifest.json: no run's manifest: it has no config")
    return FinishedRun(folder, manifest)


def check_comparable(reference: FinishedRun, current: FinishedRun) -> list[str]:
    """What differs and may explain drift, one line each; InputError where NU is another measure."""
    for key in MUST_AGREE:
        before, now = reference.setting(key), current.setting(key)
        if before is None:
            raise InputError(f"{reference.folder}/manifest.json: the config has no {key}")
        if before != now:
            raise InputError(
                f"{current.folder}: {key} is {now!r}, the reference has {before!r}; "
                "allowed: runs probed alike"
            )
    settings = ((key, reference.setting(key), current.setting(key)) for key in WORTH_NOTING)
    return [f"{key}: {before} -> {now}" for key, before, now in settings if before != now]


def check_gains_whole(run: FinishedRun) -> None:
    """InputError where the run ended rollouts early: of NU(q|d) and IG it has but one side."""
    limit = run.setting("probe.early_stop_threshold")
    if limit is not None:
        raise InputError(
            f"{run.folder}: gains below probe.early_stop_threshold {limit} were not measured; "
            "allowed: a run in which it is null"
        )


def sample(run: FinishedRun, *, threshold: float) -> Sample:
    """What drift compares; InputError for a run without probes or without questions, or with
    rollouts that were ended early.

    A candidate whose IG was not measured does not pass; a question without candidates has no
    pass rate.
    """
    check_gains_whole(run)
    frames = [_measured(part, run, threshold) for part in run.parts(_COLUMNS) if part.num_rows]
    if not frames:
        raise InputError(f"{run.folder}: the run has no finished question")
    rows = pl.concat(frames)
    made = Sample(
        nu0=_flat(rows["nu0"]),
        nu=_flat(rows["nu"].explode()),
        ig=_flat(rows["gains"].explode()),
        steps=_flat(rows["steps"].explode()),
        pass_rates=_flat(rows["pass_rate"]),
        questions=len(rows),
    )
    for name in ("nu0", "nu", "ig", "steps", "pass_rates"):
        if getattr(made, name).size == 0:
            raise InputError(f"{run.folder}: {name} was measured for none of {len(rows)} questions")
    return made


def _measured(part: pa.Table, run: FinishedRun, threshold: float) -> pl.DataFrame:
    if not {"probes", "gains"} <= set(part.column_names):
        raise InputError(f"{run.folder}: the run has no probes")
    probes = pl.col("probes").struct
    gains = pl.col("gains").cast(pl.List(pl.Float64))
    passing = gains.list.eval((pl.element() >= threshold).fill_null(False))
    return pl.DataFrame(pl.from_arrow(part)).select(
        probes.field("nu0"),
        probes.field("nu"),
        probes.field("steps"),
        gains,
        passing.list.mean().alias("pass_rate"),
    )


def _flat(values: pl.Series) -> np.ndarray[Any, np.dtype[np.float64]]:
    return values.drop_nulls().cast(pl.Float64).to_numpy()
