"""What tests of contexts share: the job's config over the examples, and runs without Ray."""

from pathlib import Path
from typing import Any

from pipeline.config import PrecomputeConfig
from pipeline.runs.inventory import MANIFEST, SUCCESS
from pipeline.runs.storage import Storage
from pipeline.stages.manifest import manifest
from pipeline.stages.plan import Plan
from tests.stages.changed import Input
from tests.stages.plans import Counts, run


def without_answers(given: Input, root: Path, **sections: Any) -> PrecomputeConfig:
    """The config of contexts over an input that a test may change."""
    cfg = given.config(root, **sections)
    sections = {name: getattr(cfg, name) for name in cfg.model_fields_set}
    return PrecomputeConfig(**sections)


def finish(cfg: PrecomputeConfig) -> tuple[Plan, Counts]:
    """A run in this process with the files around it, so that its job finds it complete."""
    plan, counts = run(cfg)
    storage = Storage(plan.root)
    storage.write_json(f"{plan.run_folder}/{MANIFEST}", manifest(plan, cfg, None))
    storage.write_bytes(f"{plan.run_folder}/{SUCCESS}", b"")
    return plan, counts
