"""Nights under a root: which is which, which came before, and which are done.

    <root>/nights/date=YYYY-MM-DD/<name>-YYYY-MM-DD-<hash>/
        stages/ runs/     what the main job makes, each night anew
        scores.parquet    what a later night is compared with; may be kept as a frozen baseline
        manifest.json metrics.json gate.json summary.md report/ sinks.json, _SUCCESS

An id is the config's name, the scheduled date and 8 digits of a hash of what is evaluated, so the
same date and config always meet in one folder, however often and wherever they start.
"""

import datetime
import re
from dataclasses import dataclass
from typing import Any

from pipeline.config import NightlyConfig
from pipeline.config.jobs import OfflineIgpConfig
from pipeline.readers import InputError
from pipeline.runs.fingerprint import digest
from pipeline.runs.storage import Storage

NIGHTS, SUCCESS = "nights", "_SUCCESS"
MANIFEST, METRICS, GATE, SCORES = "manifest.json", "metrics.json", "gate.json", "scores.parquet"
LAST_PASSED = "last_passed"
_DATE = re.compile(r"date=(\d{4}-\d{2}-\d{2})")
_ID = re.compile(r"(.+)-\d{4}-\d{2}-\d{2}-[0-9a-f]{8}")


@dataclass(frozen=True, order=True)
class Night:
    """One night. `folder` is relative to the root that holds all of them."""

    date: datetime.date
    id: str

    @property
    def folder(self) -> str:
        """Below the root."""
        return f"{NIGHTS}/date={self.date.isoformat()}/{self.id}"

    @property
    def name(self) -> str:
        """The `run.name` of its config."""
        match = _ID.fullmatch(self.id)
        return self.id if match is None else match[1]

    def at(self, file: str) -> str:
        """The path of one of its files below the root."""
        return f"{self.folder}/{file}"


def config_hash(cfg: NightlyConfig) -> str:
    """16 hex digits over what is evaluated. Left out is what decides no number: where results live,
    how fast they come and to whom they are told, and what they are compared with."""
    around = {*type(cfg).model_fields} - {*OfflineIgpConfig.model_fields}
    plain = cfg.plain(exclude={*around, "cluster"})
    plain["run"] = {key: plain["run"][key] for key in ("rows_per_shard", "seed")}
    return digest(_without_runtime(plain))


def night_of(cfg: NightlyConfig, date: datetime.date) -> Night:
    """The night of a config and a date."""
    day = date.isoformat()
    return Night(date, f"{cfg.run.name}-{day}-{config_hash(cfg)[:8]}")


def nights(storage: Storage) -> list[Night]:
    """Every night under a root, by date and then id."""
    found = []
    for folder in storage.names(NIGHTS):
        if match := _DATE.fullmatch(folder):
            date = datetime.date.fromisoformat(match[1])
            found += [Night(date, name) for name in storage.names(f"{NIGHTS}/{folder}")]
    return sorted(found)


def finished(storage: Storage, *, name: str) -> list[Night]:
    """The nights of a name that have their numbers and verdict, by date."""
    every = (night for night in nights(storage) if night.name == name)
    return [night for night in every if storage.exists(night.at(SUCCESS))]


def baseline(storage: Storage, cfg: NightlyConfig, night: Night) -> str | None:
    """Where the baseline's scores are, as a path or URI of their own; None for none.

    InputError where a named one is absent, or is the night itself. The last night that passed is
    one of an earlier date, where there is one.
    """
    if cfg.gate.scores is not None:
        folder, _, name = cfg.gate.scores.rpartition("/")
        if not Storage(folder).exists(name):
            raise InputError(f"{cfg.gate.scores}: absent; gate.scores is a night's scores.parquet")
        return cfg.gate.scores
    if cfg.gate.night is None:
        return None
    if cfg.gate.night == LAST_PASSED:
        before = [one for one in finished(storage, name=night.name) if one.date < night.date]
        passed = [one for one in before if storage.read_json(one.at(GATE))["passed"]]
        return storage.uri(passed[-1].at(SCORES)) if passed else None
    named = [one for one in nights(storage) if one.id == cfg.gate.night and one != night]
    if not named or not storage.exists(named[0].at(SUCCESS)):
        raise InputError(f"gate.night {cfg.gate.night}: no other finished night in {storage.root}")
    return storage.uri(named[0].at(SCORES))


def _without_runtime(value: Any) -> Any:
    if isinstance(value, dict):
        return {k: _without_runtime(v) for k, v in value.items() if k != "runtime"}
    return [_without_runtime(v) for v in value] if isinstance(value, list) else value
