"""Garbage under a root: directories of stages that no run refers to, and unfinished writes.

A directory stays while anything could still take it up: a run's manifest refers to it, a living
driver holds it, or an unfinished run refers to another one of its family.
"""

from dataclasses import dataclass

from pipeline.runs import inventory, lease
from pipeline.runs.inventory import Run, StageDir
from pipeline.runs.lease import LeaseHeld
from pipeline.runs.storage import Storage

_DONE = "_DONE.json"
"""Of an input's snapshot: says that it is whole, so it goes first."""


@dataclass(frozen=True)
class Garbage:
    """A directory, or one file of an unfinished write."""

    path: str
    bytes: int
    folder: bool


def find(storage: Storage) -> list[Garbage]:
    """What may go. NoRuns where a manifest cannot be read: it may refer to anything. LeaseHeld
    while a run starts, whose manifest is yet to come."""
    found = inventory.runs(storage)
    for run in found:
        if run.manifest is None and run.held_by is not None:
            raise LeaseHeld(f"{storage.uri(run.folder)}: {run.held_by} is starting it; try later")
    stages = inventory.stage_dirs(storage, found)
    needed = _families_in_use(found)
    unused = [
        each
        for each in stages
        if not each.runs and each.held_by is None and each.family not in needed
    ]
    made = [Garbage(each.folder, each.bytes, folder=True) for each in unused]
    return [*made, *_scratch(storage, found, stages, {each.folder for each in unused})]


def remove(storage: Storage, garbage: Garbage) -> bool:
    """Removes it, and the family's directory where that is left empty; False, and nothing is
    removed, where a driver has come to hold it."""
    if not garbage.folder:
        storage.delete(garbage.path)
        return True
    try:
        with lease.hold(storage, [garbage.path]):
            if any(garbage.path in run.uses for run in inventory.runs(storage)):
                return False
            storage.delete(f"{garbage.path}/{_DONE}")
            storage.delete_folder(garbage.path)
    except LeaseHeld:
        return False
    family = garbage.path.rpartition("/")[0]
    if family != "stages" and not storage.names(family):
        storage.delete_folder(family)
    return True


def _families_in_use(found: list[Run]) -> set[str]:
    """The families from which a run that is not complete may yet take values up."""
    open_runs = [run for run in found if run.state != "complete"]
    folders = (folder for run in open_runs for folder in run.uses)
    return {folder.rpartition("/")[0] for folder in folders if folder.count("/") == 2}


def _scratch(
    storage: Storage, found: list[Run], stages: list[StageDir], gone: set[str]
) -> list[Garbage]:
    """Unfinished writes where no living driver is at work, beside those of directories that go."""
    free = [file for s in stages if s.held_by is None and s.folder not in gone for file in s.files]
    idle = (run.folder for run in found if run.held_by is None)
    free += [file for folder in idle for file in storage.files(folder)]
    return [Garbage(file.path, file.bytes, folder=False) for file in free if file.scratch]
