"""What of old nights goes, and what stays."""

import datetime
import json
from pathlib import Path

import pytest

from jobs import retention as job
from pipeline import driver
from pipeline.nightly import retention
from pipeline.nightly.nights import Night
from pipeline.runs import lease
from pipeline.runs.storage import Storage

KEPT = {"manifest.json", "metrics.json", "gate.json", "summary.md", "scores.parquet", "_SUCCESS"}


def put(root: Path, date: str, *, baseline: str | None = None, passed: bool = False) -> Night:
    night = Night(datetime.date.fromisoformat(date), f"nightly-{date}-0123abcd")
    folder = root / night.folder
    for name in (*KEPT, "runs/r/contexts/p", "stages/probe-1/p", "report/report.html"):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text("1234")
    gate = {"baseline": baseline and {"id": baseline}, "passed": passed}
    (folder / "gate.json").write_text(json.dumps(gate))
    return night


def run(root: Path, *more: str) -> int:
    return job.run(job.parser().parse_args([str(root), "--today=2026-12-10", *more]))


def names(root: Path, night: Night) -> set[str]:
    folder = root / night.folder
    return {path.name for path in folder.iterdir()} if folder.exists() else set()


def test_nights_up_to_so_many_days_old_stay_whole(tmp_path: Path) -> None:
    old, border, young = (put(tmp_path, f"2026-12-0{day}") for day in (2, 3, 9))
    assert run(tmp_path, "--keep-days=7") == driver.DONE
    assert names(tmp_path, old) == KEPT
    assert names(tmp_path, border) == names(tmp_path, young) == KEPT | {"runs", "stages", "report"}
    before = sorted(tmp_path.rglob("*"))
    assert run(tmp_path, "--keep-days=7") == driver.DONE
    assert sorted(tmp_path.rglob("*")) == before


def test_a_dry_run_tells_what_would_go_and_removes_nothing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    night = put(tmp_path, "2026-11-01")
    before = sorted(tmp_path.rglob("*"))
    assert run(tmp_path, "--keep-days=7", "--dry-run") == driver.DONE
    assert sorted(tmp_path.rglob("*")) == before
    out = capsys.readouterr().out
    assert [line.split()[2] for line in out.splitlines()[:-1]] == [
        f"{night.folder}/{name}" for name in retention.BULK
    ]
    assert out.splitlines()[-1].startswith("would free 12 ")


def test_whole_nights_go_but_the_baselines_of_those_that_stay(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    gone = put(tmp_path, "2026-11-01")
    needed = put(tmp_path, "2026-11-02", baseline=gone.id)
    young = put(tmp_path, "2026-12-09", baseline=needed.id)
    assert run(tmp_path, "--keep-days=7", "--whole") == driver.DONE
    assert not (tmp_path / gone.folder).parent.exists()
    assert names(tmp_path, needed) == names(tmp_path, young) == KEPT | {"runs", "stages", "report"}
    assert f"baseline of {young.id}" in capsys.readouterr().out


def test_a_night_that_a_driver_holds_stays(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    night = put(tmp_path, "2026-11-01")
    with lease.hold(Storage(str(tmp_path)), [night.folder]):
        assert run(tmp_path, "--keep-days=7", "--whole") == driver.DONE
    assert names(tmp_path, night) == KEPT | {"runs", "stages", "report"}
    assert "held by process" in capsys.readouterr().out


def test_a_root_without_nights_has_nothing_to_remove(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(tmp_path, "--keep-days=0") == driver.DONE
    assert capsys.readouterr().out.startswith("freed 0 ")


@pytest.mark.parametrize("days", ["-1", "1.5", "x"])
def test_days_are_a_whole_number(tmp_path: Path, days: str) -> None:
    with pytest.raises(SystemExit) as ended:
        job.parser().parse_args([str(tmp_path), f"--keep-days={days}"])
    assert ended.value.code == driver.USAGE


def test_the_last_night_that_passed_stays_however_old_it_is(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    first, last = (put(tmp_path, f"2026-11-0{day}", passed=True) for day in (1, 2))
    failed = put(tmp_path, "2026-11-03")
    assert run(tmp_path, "--keep-days=7", "--whole") == driver.DONE
    assert names(tmp_path, first) == names(tmp_path, failed) == set()
    assert names(tmp_path, last) >= KEPT
    assert "the last that passed" in capsys.readouterr().out
