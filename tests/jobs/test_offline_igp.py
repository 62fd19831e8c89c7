"""The main job as a process: killed, stopped, resumed, repeated, changed."""

import json
import math
import signal
import subprocess
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from tests.jobs.runs import (
    REPOSITORY,
    as_text,
    command,
    environment,
    family,
    finished_rows,
    none_left,
    only_run,
    overrides,
    run,
    run_here,
    start,
    wait_for_parts,
)

pytestmark = [pytest.mark.cluster, pytest.mark.usefixtures("local_ray")]
SLOW = "delay=0.4"


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("undisturbed")
    done = run(overrides(folder))
    assert done.returncode == 0, done.stderr
    return folder / "out"


def test_a_killed_driver_loses_nothing_and_doubles_nothing(
    tmp_path: Path, undisturbed: Path
) -> None:
    process = start(overrides(tmp_path, generator__model=SLOW))
    wait_for_parts(tmp_path / "out", "probe", 5)
    processes = family(process)
    process.send_signal(signal.SIGKILL)
    process.wait()
    assert none_left(processes)
    assert not (only_run(tmp_path / "out") / "_SUCCESS").exists()

    kept = {p: p.stat().st_mtime_ns for p in (tmp_path / "out").glob("stages/*/**/part-*.parquet")}
    again = run_here(overrides(tmp_path))
    assert again.returncode == 0, again.stderr
    assert all(path.stat().st_mtime_ns == stamp for path, stamp in kept.items())
    rows = finished_rows(only_run(tmp_path / "out"))
    assert as_text(rows) == as_text(finished_rows(only_run(undisturbed)))
    assert len(set(rows["question_id"].to_pylist())) == len(rows) == 50
    assert list((tmp_path / "out").rglob("*.tmp")) == []


def test_a_stopped_driver_gives_its_leases_back_and_can_go_on(
    tmp_path: Path, undisturbed: Path
) -> None:
    process = start(overrides(tmp_path, generator__model=SLOW))
    wait_for_parts(tmp_path / "out", "probe", 2)
    processes = family(process)
    process.terminate()
    assert process.wait(60) == 1
    assert none_left(processes)
    assert list((tmp_path / "out").rglob("lease.json")) == []
    again = run_here(overrides(tmp_path))
    assert again.returncode == 0, again.stderr
    mine, theirs = (finished_rows(only_run(root)) for root in (tmp_path / "out", undisturbed))
    assert as_text(mine) == as_text(theirs)


def test_a_repeated_run_does_nothing(undisturbed: Path) -> None:
    before = {path: path.stat().st_mtime_ns for path in undisturbed.rglob("*") if path.is_file()}
    again = run_here(overrides(undisturbed.parent))
    assert again.returncode == 0
    assert "was complete" in again.stdout
    after = {path: path.stat().st_mtime_ns for path in undisturbed.rglob("*") if path.is_file()}
    assert before == after


def test_another_threshold_and_budget_make_no_rollout(undisturbed: Path) -> None:
    probes = sorted(undisturbed.glob("stages/probe-*/*"))
    stamps = {path: path.stat().st_mtime_ns for path in undisturbed.glob("stages/probe-*/*/part-*")}
    changed = overrides(
        undisturbed.parent, run__name="other", selection__threshold=0.2, selection__top_m=1
    )
    done = run_here(changed)
    assert done.returncode == 0, done.stderr
    assert sorted(undisturbed.glob("stages/probe-*/*")) == probes
    assert {path: path.stat().st_mtime_ns for path in stamps} == stamps
    rows = finished_rows(only_run(undisturbed, "other"))
    assert max(len(arms[0]["evidence"]) for arms in rows["arms"].to_pylist()) == 1


def test_an_infinite_threshold_only_reorders_and_is_written_as_strict_json(
    undisturbed: Path,
) -> None:
    done = run_here(overrides(undisturbed.parent, run__name="rerank", selection__threshold="-.inf"))
    assert done.returncode == 0, done.stderr
    folder = only_run(undisturbed, "rerank")
    manifest = json.loads((folder / "manifest.json").read_text(), parse_constant=pytest.fail)
    assert float(manifest["config"]["selection"]["threshold"]) == -math.inf
    for row in finished_rows(folder).to_pylist():
        gains = [row["gains"][piece["position"]] for piece in row["arms"][0]["evidence"]]
        assert gains == sorted(row["gains"], reverse=True)


def test_more_resamples_change_the_intervals_of_a_finished_run(undisturbed: Path) -> None:
    before = json.loads((only_run(undisturbed) / "metrics.json").read_text())
    again = run_here(overrides(undisturbed.parent, evaluation__bootstrap_samples=300))
    assert again.returncode == 0, again.stderr
    after = json.loads((only_run(undisturbed) / "metrics.json").read_text())
    assert after["arms"][3]["f1"]["value"] == before["arms"][3]["f1"]["value"]
    assert after["arms"][3]["f1"]["high"] != before["arms"][3]["f1"]["high"]


def test_the_run_directory_holds_what_it_should(undisturbed: Path) -> None:
    folder = only_run(undisturbed)
    manifest = json.loads((folder / "manifest.json").read_text())
    assert manifest["config"]["generator"]["engine"] == "fake"
    assert [entry["stage"] for entry in manifest["stages"]] == [
        "probe",
        "select",
        "answer",
        "evaluate",
    ]
    for entry in manifest["stages"]:
        assert entry["folder"] is None or (undisturbed / entry["folder"]).is_dir()
    assert all(len(file["sha256"]) == 64 for file in manifest["source"]["files"])
    metrics = json.loads((folder / "metrics.json").read_text())
    assert metrics["questions"] == 50
    assert metrics["dead_letters"] == 0
    assert (folder / "_SUCCESS").exists()


def test_dead_questions_fail_the_run_after_everything_else_is_written(tmp_path: Path) -> None:
    changed = overrides(tmp_path, generator__max_model_len=430)
    done = run_here(changed)
    assert done.returncode == 1
    folder = only_run(tmp_path / "out")
    letters = [pq.read_table(path) for path in (folder / "dead_letters").glob("*.parquet")]
    dead = [row for table in letters for row in table.to_pylist()]
    rows = finished_rows(folder)
    assert dead
    assert len(rows)
    assert len(dead) + len(rows) == 50
    assert {row["question_id"] for row in dead}.isdisjoint(rows["question_id"].to_pylist())
    assert all("exceed the window of 430 tokens" in row["reason"] for row in dead)
    assert {row["stage"] for row in dead} == {"answer"}
    assert f"{len(dead)} of 50 questions died" in done.stderr
    assert not (folder / "_SUCCESS").exists()
    tolerated = run_here([*changed, "run.max_error_rate=1.0"])
    assert tolerated.returncode == 0
    assert (folder / "_SUCCESS").exists()


def test_a_row_that_hangs_is_given_up_with_its_shard_and_a_repaired_run_goes_on(
    tmp_path: Path, undisturbed: Path
) -> None:
    hangs = "hang_at=Everest?"  # in the first question
    changed = overrides(tmp_path, generator__model=hangs, cluster__watchdog_seconds=5)
    process = subprocess.Popen(
        command(changed), cwd=REPOSITORY, env=environment(), stderr=subprocess.PIPE, text=True
    )
    _, said = process.communicate(timeout=120)
    print(said)
    assert process.returncode == 1
    assert "no shard finished at any stage for 5 s" in said
    assert "first shards not done: {'probe': [0" in said
    again = run_here(overrides(tmp_path))
    assert again.returncode == 0, again.stderr
    mine, theirs = (finished_rows(only_run(root)) for root in (tmp_path / "out", undisturbed))
    assert as_text(mine) == as_text(theirs)
