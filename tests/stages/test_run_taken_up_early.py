"""Tests of whole runs over a changed input whose rollouts are spared or ended early: whether what
the one run left out is told from what it made."""

from pathlib import Path

import pyarrow as pa

from pipeline.runs import layout
from pipeline.runs.storage import Storage
from tests.stages.changed import ALL, QUESTIONS, WHO, Input, fresh, probed
from tests.stages.plans import N, finished, run, written


def test_what_a_gate_had_spared_is_made_and_the_rest_taken_up(
    changed: Input, tmp_path: Path
) -> None:
    gated = {"selector": "ig", "thresholds": [0.0], "nu0_limit": 0.3}
    arms = {"top_m": [3], "empty_context": "frame", "grid": [gated], "controls": False}
    first, paid = run(changed.config(tmp_path / "root", arms=arms))
    spared = sum(row["probes"]["free_rule"] for row in finished(first).to_pylist())
    assert spared == 3
    plan, counts = run(changed.config(tmp_path / "root"))
    assert probed(counts) == (spared * N, ALL - spared * N)
    assert paid.sums["probe"]["rollouts"] == ALL - spared * N
    assert written(plan) == fresh(changed, tmp_path)
    changed.ask(WHO)
    again, counts = run(changed.config(tmp_path / "root", arms=arms))  # and back
    made = 1 if finished(again).to_pylist()[0]["probes"]["free_rule"] else N + 1
    assert counts.sums["probe"]["rollouts"] == made
    assert written(again) == fresh(changed, tmp_path, arms=arms)


def test_rollouts_ended_early_are_taken_up_under_the_same_threshold(
    changed: Input, tmp_path: Path
) -> None:
    early = {"early_stop_threshold": 0.0}
    _, paid = run(changed.config(tmp_path / "root", probe=early))
    changed.ask(WHO)
    plan, counts = run(changed.config(tmp_path / "root", probe=early))
    assert probed(paid) == (ALL, 0) and probed(counts) == (N + 1, ALL)
    stopped = [made.sums["probe"]["early_stopped"] for made in (paid, counts)]
    assert stopped == [15, 0]
    assert written(plan) == fresh(changed, tmp_path, probe=early)
    _, other = run(changed.config(tmp_path / "root", probe={"early_stop_threshold": -0.1}))
    assert other.sums["probe"]["taken_up"] == 0


def nudged(part: pa.Table) -> pa.Table:
    """The part with an NU(q) that another batch might have given, and its limits with it."""
    rows = part.to_pylist()
    for row in rows:
        row["probes"]["u"][0] = [u / 2 for u in row["probes"]["u"][0]]
        row["probes"]["nu0"] /= 2
    return pa.Table.from_pylist(rows, schema=part.schema)


def test_under_another_limit_a_stored_rollout_is_none(changed: Input, tmp_path: Path) -> None:
    early = {"early_stop_threshold": 0.0}
    given = changed.config(tmp_path / "root", probe=early)
    run(given)
    storage = Storage(str(tmp_path / "root"))
    (folder,) = (f"stages/{f}" for f in storage.names("stages") if f.startswith("probe"))
    folder = f"{folder}/{storage.names(folder)[0]}"
    # The rollouts without evidence stand as they were in a newer sibling, and there alone.
    for shard in range(4):
        path = layout.part(folder, shard)
        part = storage.read_table(path)
        storage.write_table(path, nudged(part))
        alone = part.to_pylist()
        for row in alone:
            for name in ("keys", "steps", "prompt_tokens", "answers", "u", "margins"):
                row["probes"][name] = row["probes"][name][:1]
        newer = pa.Table.from_pylist(alone, schema=part.schema)
        storage.write_table(layout.part(f"{folder.rpartition('/')[0]}/newer", shard), newer)
    changed.ask(WHO)
    plan, counts = run(changed.config(tmp_path / "root", probe=early))
    assert probed(counts) == (ALL - QUESTIONS + N + 1, QUESTIONS)
    assert written(plan) == fresh(changed, tmp_path, probe=early)
