"""Tests of pipeline.stages.manifest: from which other plans' folders a run may have values."""

from pathlib import Path

from pipeline.runs import inventory
from pipeline.runs.storage import Storage
from pipeline.stages.manifest import manifest, name_siblings
from pipeline.stages.plan import Plan, run_local
from tests.stages.changed import WHO, Input
from tests.stages.plans import prepared


def test_the_manifest_names_the_folders_that_were_mapped(changed: Input, root: Path) -> None:
    storage = Storage(str(root))
    families = ("probe", "answer")
    before = {
        name: [str(path.relative_to(root)) for path in root.glob(f"stages/{name}-*/*")]
        for name in families
    }
    changed.ask(WHO)
    cfg = changed.config(root)
    plan = prepared(cfg)

    def siblings(plan: Plan) -> dict[str, list[str]]:
        path = f"{plan.run_folder}/{inventory.MANIFEST}"
        storage.write_json(path, manifest(plan, cfg, None))  # as at the start of any run
        name_siblings(plan, storage)
        stages = storage.read_json(path)["stages"]
        return {stage["stage"]: stage["siblings"] for stage in stages}

    nothing: dict[str, list[str]] = {"select": [], "evaluate": []}
    assert siblings(plan) == {"probe": [], "answer": [], **nothing}
    run_local(plan, cfg)
    assert siblings(plan) == {**before, **nothing}
    run_local(plan, cfg)  # with nothing left to do
    assert siblings(plan) == {**before, **nothing}
    assert [len(before[name]) for name in families] == [1, 1]
