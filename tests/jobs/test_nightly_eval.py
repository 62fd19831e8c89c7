"""The nightly job over scheduled dates: unchanged nights pass, a planted fall is caught."""

import json
from pathlib import Path

import pytest

from pipeline import driver
from tests.jobs.runs import Ended, job_here
from tests.nightly.world import settings, write_data

DATES = ("2026-11-29", "2026-11-30", "2026-12-01")


def night(folder: Path, date: str, *more: str) -> Ended:
    data, root = folder / "data", folder / "root"
    return job_here("nightly_eval", "demo", settings(data, root, date, *more))


def verdict(folder: Path, date: str) -> str:
    (gate,) = (folder / "root" / "nights" / f"date={date}").glob("*/gate.json")
    return str(json.loads(gate.read_text())["verdict"])


@pytest.mark.cluster
@pytest.mark.usefixtures("local_ray")
def test_an_unchanged_night_passes_and_one_with_wrong_passages_ends_with_3(tmp_path: Path) -> None:
    write_data(tmp_path / "data")
    for date, said in ((DATES[0], "no_baseline"), (DATES[1], "passed")):
        done = night(tmp_path, date)
        assert (done.returncode, verdict(tmp_path, date)) == (driver.DONE, said), done.stderr
    made = {path: path.stat().st_mtime_ns for path in (tmp_path / "root").rglob("*")}

    again = night(tmp_path, DATES[1])
    assert again.returncode == driver.DONE
    assert "gate: passed" in again.stdout
    folders = {path for path in made if path.is_dir()}  # where the lease was
    now = {path: path.stat().st_mtime_ns for path in (tmp_path / "root").rglob("*")}
    assert now.keys() == made.keys()
    assert all(now[path] == made[path] for path in made.keys() - folders)

    write_data(tmp_path / "data", off_by=7)
    caught = night(tmp_path, DATES[2])
    assert (caught.returncode, verdict(tmp_path, DATES[2])) == (driver.GATE, "worse")
    assert "sub_em: " in caught.stdout and "gate: WORSE than the baseline" in caught.stdout

    under_a_rayjob = night(tmp_path, DATES[2], "gate.fails_job=false")
    assert (under_a_rayjob.returncode, verdict(tmp_path, DATES[2])) == (driver.DONE, "worse")


def test_a_night_without_a_date_is_a_usage_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("RAY_CLUSTER_NAME", raising=False)
    write_data(tmp_path / "data")
    done = night(tmp_path, "null")
    assert done.returncode == driver.USAGE
    assert "give date=YYYY-MM-DD" in done.stderr


def test_a_dry_run_tells_night_baseline_and_sizes_and_writes_nothing(tmp_path: Path) -> None:
    write_data(tmp_path / "data")
    done = night(tmp_path, DATES[0], "--dry-run")
    assert done.returncode == driver.DONE, done.stderr
    assert f"night: demo-{DATES[0]}-" in done.stdout and "baseline: none" in done.stdout
    assert "40" in done.stdout
    assert not (tmp_path / "root").exists()


def test_a_baseline_that_is_absent_is_refused_before_anything_is_measured(tmp_path: Path) -> None:
    write_data(tmp_path / "data")
    done = night(tmp_path, DATES[0], "gate.night=demo-2026-11-01-0123abcd")
    assert done.returncode == driver.USAGE
    assert "gate.night demo-2026-11-01-0123abcd: no other finished night" in done.stderr
    assert not list((tmp_path / "root").rglob("part-*"))
