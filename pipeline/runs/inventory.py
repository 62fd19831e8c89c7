"""What a root directory holds, by its manifests, leases and the names of its files: runs, and the
directories of stages with the runs that refer to them."""

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from pipeline.runs import layout, lease
from pipeline.runs.storage import File, Storage

MANIFEST, SUCCESS = "manifest.json", "_SUCCESS"
State = Literal["complete", "running", "unfinished"]
_STAGE = re.compile(r"stages/\w+-[0-9a-f]{16}(/[0-9a-f]{16})?")


class NoRuns(ValueError):
    """A root, a run or a manifest that is none; the message is one line for the user."""


@dataclass(frozen=True)
class Run:
    """A run's directory. `manifest` is None where its driver has not yet written one, or ended
    before; `held_by` is the living driver."""

    folder: str
    manifest: Mapping[str, Any] | None
    held_by: str | None
    success: bool

    @property
    def name(self) -> str:
        """Of its directory."""
        return self.folder.rpartition("/")[2]

    @property
    def title(self) -> str:
        """The `run.name` of its config."""
        return self.name.rpartition("-")[0]

    @property
    def state(self) -> State:
        """A run that is redriven is running, and unfinished where that was cut off."""
        if self.held_by is not None:
            return "running"
        return "complete" if self.success else "unfinished"

    @property
    def stages(self) -> dict[str, str]:
        """The directory of every durable stage, by the stage's name, in the order of the plan."""
        stages = self.manifest["stages"] if self.manifest else []
        return {stage["stage"]: stage["folder"] for stage in stages if stage["folder"]}

    @property
    def uses(self) -> set[str]:
        """The directories that it refers to: its stages' and its input's."""
        return {
            *self.stages.values(),
            *([self.manifest["source"]["folder"]] if self.manifest else []),
        }


@dataclass(frozen=True)
class StageDir:
    """A directory of a stage's parts, and the names of the runs that refer to it."""

    folder: str
    files: tuple[File, ...]
    held_by: str | None
    runs: tuple[str, ...]

    @property
    def bytes(self) -> int:
        """Of all its files."""
        return sum(file.bytes for file in self.files)

    @property
    def parts(self) -> int:
        """How many shards are there."""
        names = (file.path.rpartition("/")[2] for file in self.files)
        return sum(layout.is_part(name) for name in names)

    def plain(self) -> dict[str, Any]:
        """JSON-able."""
        sizes = {"directory": self.folder, "parts": self.parts, "bytes": self.bytes}
        return {**sizes, "runs": list(self.runs), "held_by": self.held_by}

    @property
    def family(self) -> str | None:
        """The directory that it shares with those that may take its values up."""
        return self.folder.rpartition("/")[0] if self.folder.count("/") == 2 else None


def runs(storage: Storage) -> list[Run]:
    """Every run under a root, by name; NoRuns where there is no place for them, or where a
    manifest cannot be read."""
    if not storage.exists("runs"):
        raise NoRuns(f"{storage.root}: no runs here; allowed: a run.root, which holds runs/")
    return [_run(storage, f"runs/{name}") for name in storage.names("runs")]


def stage_dirs(storage: Storage, found: Sequence[Run]) -> list[StageDir]:
    """Every directory of a stage under a root, with its references among the runs."""
    files: dict[str, list[File]] = {}
    for file in storage.files("stages"):
        folder = file.path.rpartition("/")[0]
        if _STAGE.fullmatch(folder):
            files.setdefault(folder, []).append(file)
    return [
        StageDir(
            folder,
            tuple(inside),
            lease.holder(storage, folder),
            tuple(run.name for run in found if folder in run.uses),
        )
        for folder, inside in files.items()
    ]


def _run(storage: Storage, folder: str) -> Run:
    path = f"{folder}/{MANIFEST}"
    held_by = lease.holder(storage, folder)
    manifest = _manifest(storage, path) if storage.exists(path) else None
    return Run(folder, manifest, held_by, storage.exists(f"{folder}/{SUCCESS}"))


def _manifest(storage: Storage, path: str) -> Mapping[str, Any]:
    """The manifest; NoRuns unless it says what a run rests on."""
    try:
        read = storage.read_json(path)
        source = {name: read["source"][name] for name in ("folder", "rows", "shards", "dead")}
        folders = [(stage["stage"], stage["folder"]) for stage in read["stages"]]
    except json.JSONDecodeError as error:
        raise NoRuns(f"{storage.uri(path)}: damaged: {error}") from None
    except (KeyError, TypeError) as error:
        raise NoRuns(f"{storage.uri(path)}: no run's manifest: it lacks {error}") from None
    return {
        **read,
        "source": {**read["source"], **source},
        "stages": [{"stage": stage, "folder": folder} for stage, folder in folders],
    }
