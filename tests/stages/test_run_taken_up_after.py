"""Tests of whole runs over a changed input after something went wrong: parts that are damaged,
questions that were refused, a run that was cut off."""

from pathlib import Path
from typing import Any

import pytest

from pipeline.runs import garbage, inventory, layout
from pipeline.runs.storage import Storage
from pipeline.stages import plan as plans
from pipeline.stages import redrive
from pipeline.stages.plan import Plan, run_local
from tests.stages.changed import ALL, QUESTIONS, SHARD, WHO, Input, fresh, probed
from tests.stages.plans import Counts, N, prepared, run, written


@pytest.mark.parametrize("name", ["probe", "answer"])
def test_a_sibling_s_part_that_was_cut_short_is_passed_over_and_its_values_made_anew(
    name: str, changed: Input, root: Path, tmp_path: Path
) -> None:
    (part,) = root.glob(f"stages/{name}-*/*/{layout.part_name(0)}")
    part.write_bytes(part.read_bytes()[:100])
    changed.ask(WHO)
    plan, counts = run(changed.config(root))
    assert counts.sums[name]["skipped"] == 1
    made = SHARD * (N + 1) if name == "probe" else 0
    assert probed(counts) == (N + 1 + made, ALL - made)
    assert written(plan) == fresh(changed, tmp_path)


def ill(file: Path) -> dict[str, Any]:
    return {"generator": {"model": f"refuse_while={file}:builders"}}


def dead(plan: Plan) -> list[str]:
    storage = Storage(plan.root)
    found: list[str] = []
    for shard in sorted(layout.shards_done(storage, plan.letters_folder)):
        letters = storage.read_table(layout.part(plan.letters_folder, shard))
        found += letters["question_id"].to_pylist()
    return found


def test_what_was_refused_is_not_taken_up_and_a_redrive_takes_up_what_others_made(
    changed: Input, tmp_path: Path
) -> None:
    file, root = tmp_path / "ill", tmp_path / "root"
    file.touch()
    run(changed.config(root, **ill(file)))
    changed.ask(WHO)
    cfg = changed.config(root, **ill(file))
    plan, counts = run(cfg)
    assert dead(plan) == ["ex-q10", "ex-q20"]
    assert probed(counts) == (N + 1, ALL - 2 * (N + 1))
    file.unlink()
    well = Input(tmp_path / "well")
    _, counts = run(well.config(root, **ill(file), run={"rows_per_shard": 7}))
    assert probed(counts) == (2 * (N + 1), ALL - 2 * (N + 1))
    again = Counts()
    redrive.run_local(plan, cfg, again)
    assert dead(plan) == []
    assert probed(again) == (0, 2 * (N + 1))
    assert again.sums["answer"]["generated"] == 0 == again.sums["probe"]["tokens"]
    assert written(plan) == fresh(changed, tmp_path, **ill(file))


def test_a_run_that_was_cut_off_takes_up_the_same_when_it_goes_on(
    changed: Input, root: Path, tmp_path: Path
) -> None:
    changed.ask(WHO)
    cfg = changed.config(root)
    plan, first = prepared(cfg), Counts()
    plans.walk(plan, cfg, [0, 2], first)
    assert not [*root.glob("stages/*/*/known-*")]
    # A killed driver leaves its map behind; the next one makes its own.
    (root / plan.steps[0].folder / f"known-{'0' * 32}.parquet").write_bytes(b"x")
    second = Counts()
    run_local(plan, cfg, second)
    assert not [*root.glob("stages/*/*/known-*")]
    assert first.sums["probe"]["rollouts"] + second.sums["probe"]["rollouts"] == N + 1
    assert written(plan) == fresh(changed, tmp_path)


def test_what_a_run_over_another_input_may_take_up_is_kept_while_it_is_unfinished(
    changed: Input, root: Path
) -> None:
    storage = Storage(str(root))
    probes = {f"stages/{f}" for f in storage.names("stages") if f.startswith("probe-")}
    changed.ask(WHO)
    cfg = changed.config(root)
    plan = prepared(cfg)
    stages = [{"stage": step.stage.name, "folder": step.folder} for step in plan.steps]
    source = {"folder": plan.source.folder, "rows": QUESTIONS + 1, "shards": 4, "dead": 0}
    manifest = {"source": source, "stages": stages}
    storage.write_json(f"{plan.run_folder}/{inventory.MANIFEST}", manifest)
    assert not any(one.path.startswith(tuple(probes)) for one in garbage.find(storage))
    run_local(plan, cfg)
    dirs = inventory.stage_dirs(storage, inventory.runs(storage))
    assert [each.parts for each in dirs] == [4] * 6  # of both inputs: source, probe, answer
    storage.write_bytes(f"{plan.run_folder}/_SUCCESS", b"")
    gone = {one.path.rpartition("/")[0] for one in garbage.find(storage) if one.folder}
    assert probes < gone
