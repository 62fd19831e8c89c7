"""The status, gc and redrive jobs over roots written by hand and a run in one process."""

import json
from pathlib import Path

import pytest

from jobs import gc, status
from pipeline import driver
from pipeline.config import OfflineIgpConfig
from pipeline.report.status import duration, size
from pipeline.runs import layout
from pipeline.runs.inventory import MANIFEST, NoRuns
from pipeline.runs.storage import Storage
from pipeline.stages.manifest import manifest
from pipeline.stages.plan import run_local
from tests.jobs.runs import DEMO, overrides
from tests.runs.roots import (
    PROBE,
    SOURCE,
    answers,
    hold,
    texts,
    write_letters,
    write_part,
    write_run,
)
from tests.stages.plans import config, prepared


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """Two finished runs with one dead question, and the probes of a third that is gone."""
    storage = Storage(str(tmp_path))
    for name, number in (("demo", 1), ("other", 2)):
        folder = write_run(storage, name, number=number, success=True)
        write_part(storage, f"{folder}/contexts", 0)
        write_part(storage, f"{folder}/contexts", 1, rows=1)
        write_letters(storage, folder, 1, q9="prompt too long")
        write_part(storage, answers(number), 0, generated=3)
    for folder in (SOURCE, PROBE, "stages/probe-00000000000000dd"):
        write_part(storage, folder, 0, rollouts=12, seconds=2.5)
    return tmp_path


def test_a_root_is_told_in_two_tables_and_one_run_in_detail(
    root: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    before = texts(root)
    assert status.run(str(root), None, as_json=False) == driver.DONE
    shown = capsys.readouterr().out
    assert "demo-00000001" in shown and "other-00000002" in shown
    assert "3 of 4" in shown and "stages/probe-00000000000000dd" in shown
    assert "most frequent reasons" not in shown
    status.run(str(root), "demo", as_json=False)
    shown = capsys.readouterr().out
    assert "rollouts 12" in shown and "1 x prompt too long" in shown and "1 of 2" in shown
    assert "other-00000002" not in shown.replace("demo-00000001, other-00000002", "")
    assert "stages/probe-00000000000000dd" not in shown
    assert texts(root) == before


def test_a_root_is_told_as_json(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    hold(Storage(str(root)), "runs/new-00000003")
    status.run(str(root), None, as_json=True)
    told = json.loads(capsys.readouterr().out)
    assert [run["run"] for run in told["runs"]] == [
        "demo-00000001",
        "new-00000003",
        "other-00000002",
    ]
    assert told["runs"][0]["dead"]["probe"]["questions"] == 1
    probes = next(each for each in told["directories"] if each["directory"] == PROBE)
    assert (probes["parts"], probes["runs"]) == (1, ["demo-00000001", "other-00000002"])
    status.run(str(root), None, as_json=False)
    assert "no manifest yet" in capsys.readouterr().out


def test_a_run_that_is_not_there_is_an_error_that_names_those_that_are(root: Path) -> None:
    with pytest.raises(NoRuns, match="no run x; there are: demo-00000001, other-00000002"):
        status.run(str(root), "x", as_json=False)


def test_a_root_that_is_none_is_an_error_of_usage(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert driver.guarded(lambda: status.run(str(tmp_path), None, False)) == driver.USAGE
    assert driver.guarded(lambda: gc.run(str(tmp_path), False)) == driver.USAGE
    assert capsys.readouterr().err.count("no runs here") == 2


def test_gc_tells_first_and_then_removes_what_it_told(
    root: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    before = texts(root)
    assert gc.run(str(root), dry_run=True) == driver.DONE
    told = capsys.readouterr().out
    assert "would go stages/probe-00000000000000dd" in told and texts(root) == before
    assert gc.run(str(root), dry_run=False) == driver.DONE
    done = capsys.readouterr().out
    assert done.replace("removed ", "would go").replace("freed", "would free") == told
    assert {path for path in before if path not in texts(root)} == {
        "stages/probe-00000000000000dd/part-000000.parquet"
    }


def redriven(folder: Path, *more: str) -> int:
    arguments = [str(DEMO), *overrides(folder), *more]
    return driver.main("", OfflineIgpConfig, driver.redrive_run, arguments)


def test_a_redrive_of_a_run_that_is_not_there_is_an_error_of_usage(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert redriven(tmp_path) == driver.USAGE
    assert "no run here has read this input" in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


def test_a_redrive_of_a_run_without_dead_letters_says_so_and_writes_nothing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    cfg = config(tmp_path)
    plan = prepared(cfg)
    run_local(plan, cfg)
    assert driver.run_plan(plan, cfg) == driver.DONE
    before = texts(tmp_path)
    capsys.readouterr()
    assert driver.redrive_run(cfg, dry_run=False) == driver.DONE
    assert capsys.readouterr().out.endswith(": no dead letters to redrive\n")
    assert texts(tmp_path) == before


def test_a_redrive_that_was_cut_off_before_its_end_brings_the_metrics_up_to_date(
    tmp_path: Path,
) -> None:
    cfg = config(tmp_path)
    plan = prepared(cfg)
    run_local(plan, cfg)
    storage = Storage(plan.root)
    storage.write_json(f"{plan.run_folder}/{MANIFEST}", manifest(plan, cfg, None))
    storage.write_json(f"{plan.run_folder}/metrics.json", {"questions": 49})
    assert driver.redrive_run(cfg, dry_run=False) == driver.DONE
    assert storage.read_json(f"{plan.run_folder}/metrics.json")["questions"] == 50
    assert storage.exists(f"{plan.run_folder}/{driver.SUCCESS}")
    assert layout.shards_done(storage, plan.letters_folder) == set()


@pytest.mark.parametrize(
    ("bytes", "text"), [(999, "999 B"), (1500, "1.5 kB"), (2_000_000, "2.0 MB"), (3e9, "3.0 GB")]
)
def test_sizes_are_told_in_the_largest_unit_below_them(bytes: int, text: str) -> None:
    assert size(bytes) == text


@pytest.mark.parametrize(
    ("seconds", "text"), [(59.6, "1 min 00 s"), (9, "0 min 09 s"), (3725, "1 h 02 min")]
)
def test_durations_are_told_in_two_units(seconds: float, text: str) -> None:
    assert duration(seconds) == text
