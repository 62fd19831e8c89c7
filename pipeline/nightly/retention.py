"""What of old nights may go: their bulk, or with `whole` everything but what is still needed.

The bulk is rows, stage directories and report. What stays is small (manifest, metrics, gate,
summary, scores): the trend goes on, and a night can still be a baseline.
"""

import datetime
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from pipeline.nightly import nights
from pipeline.nightly.nights import Night
from pipeline.runs import lease
from pipeline.runs.lease import LeaseHeld
from pipeline.runs.storage import Storage

BULK = ("stages", "runs", "report")


@dataclass(frozen=True)
class Expired:
    """A folder of a night that may go, or why it stays."""

    night: Night
    folder: str
    bytes: int
    kept: str | None


def find(
    storage: Storage, *, today: datetime.date, keep_days: int, whole: bool
) -> Iterator[Expired]:
    """The folders of nights scheduled more than `keep_days` days before `today`, by date."""
    every = nights.nights(storage)
    old = [night for night in every if (today - night.date).days > keep_days]
    young = [night for night in every if night not in old]
    needed = _last_passed(storage, every) | _baselines(storage, young)
    for night in old:
        folders = [night.folder] if whole else [night.at(name) for name in BULK]
        for folder in folders:
            if storage.exists(folder):
                size = sum(file.bytes for file in storage.files(folder))
                yield Expired(night, folder, size, _kept(storage, night, needed, whole))


def remove(storage: Storage, expired: Expired) -> bool:
    """Removes it, and its date's folder where that is left empty; False where a driver holds it."""
    try:
        with lease.hold(storage, [expired.night.folder]):
            if expired.folder == expired.night.folder:
                storage.delete(expired.night.at(nights.SUCCESS))  # half a night is no night
            storage.delete_folder(expired.folder)
    except LeaseHeld:
        return False
    date = expired.night.folder.rpartition("/")[0]
    if not storage.names(date):
        storage.delete_folder(date)
    return True


def _kept(storage: Storage, night: Night, needed: dict[str, str], whole: bool) -> str | None:
    if holder := lease.holder(storage, night.folder):
        return f"held by {holder}"
    return needed.get(night.id) if whole else None


def _last_passed(storage: Storage, every: list[Night]) -> dict[str, str]:
    """The last night of each name that passed, however old: the next one's baseline."""
    last = {n.name: n for n in every if (gate := _gate(storage, n)) and gate["passed"]}
    return {night.id: "the last that passed" for night in last.values()}


def _baselines(storage: Storage, young: list[Night]) -> dict[str, str]:
    """The nights that younger ones were compared with."""
    made = {}
    for night in young:
        gate = _gate(storage, night)
        if gate and gate["baseline"] is not None:
            made[str(gate["baseline"]["id"])] = f"baseline of {night.id}"
    return made


def _gate(storage: Storage, night: Night) -> dict[str, Any] | None:
    """What a finished night's gate said; None before its end."""
    done = storage.exists(night.at(nights.SUCCESS))
    return dict(storage.read_json(night.at(nights.GATE))) if done else None
