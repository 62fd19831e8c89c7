"""The audit job as a command line, over a run probed by the fake engine."""

import json
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from jobs import audit
from pipeline import driver
from pipeline.config import AuditConfig
from pipeline.engines.table import GENERATORS
from tests.calibration.audits import Crowded, Dying, Overflowing, change_manifest, write_run
from tests.jobs.runs import REPOSITORY

DEMO = REPOSITORY / "conf" / "audit" / "demo.yaml"


def run(folder: Path, *more: str) -> int:
    return driver.main("", AuditConfig, audit.run, [str(DEMO), f"run={folder}", *more])


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return write_run(tmp_path / "run")


def test_a_run_on_a_deterministic_engine_is_done_with_a_report_of_zeros(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(folder, "limits.ig=0", "limits.admissions=0") == driver.DONE
    report = json.loads((folder / "audit" / "audit.json").read_text(), parse_constant=pytest.fail)
    assert (report["questions"], report["rollouts"], report["exceeded"]) == (6, 24, [])
    assert len(report["comparisons"]) == 5 + 4  # five passes, each against the run and the first
    assert {entry["agreement"]["ig"]["max"] for entry in report["comparisons"]} == {0}
    page = (folder / "audit" / "audit.md").read_text()
    assert page.startswith("# Determinism audit") and page.count("| 0/18 | 0 |") == 9
    shown = capsys.readouterr()
    assert "6 questions, 24 rollouts a pass" in shown.out and "audit.md" in shown.out
    assert '"rollouts_done"' in shown.err  # progress, as JSON where there is no terminal


def test_an_unstable_engine_fails_the_gate_with_one_line_a_limit(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(GENERATORS, "fake", Crowded)
    assert run(folder, f"output={folder.parent / 'out'}") == driver.DONE  # reported only
    assert run(folder, "limits.ig=0.001") == driver.GATE
    report = json.loads((folder / "audit" / "audit.json").read_text())
    assert len(report["exceeded"]) == 8 and "is over limits.ig 0.001" in report["exceeded"][0]
    assert report["exceeded"][0] in capsys.readouterr().out
    largest = max(entry["agreement"]["ig"]["max"] for entry in report["comparisons"])
    assert run(folder, f"limits.ig={largest}") == driver.DONE


def test_a_changed_admission_fails_the_gate(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # Halved in company, a gain that was the smallest at Tp falls below it.
    smallest = min(gain for gain in stored_gains(folder) if gain > 0)
    change_threshold(folder, smallest)
    monkeypatch.setitem(GENERATORS, "fake", Crowded)
    assert run(folder, "limits.admissions=0") == driver.GATE
    report = json.loads((folder / "audit" / "audit.json").read_text())
    assert all("over limits.admissions 0" in line for line in report["exceeded"])
    changed = [entry["agreement"]["cuts"] for entry in report["comparisons"]]
    assert max(cut["candidates"] for cuts in changed for cut in cuts) >= 1
    assert "| candidates | questions |" in (folder / "audit" / "audit.md").read_text()


def stored_gains(folder: Path) -> list[float]:
    parts = [pq.read_table(path)["gains"] for path in sorted((folder / "contexts").iterdir())]
    return [gain for part in parts for gains in part.to_pylist() for gain in gains]


def change_threshold(folder: Path, threshold: float) -> None:
    def change(manifest: dict[str, list[dict[str, dict[str, float] | None]]]) -> None:
        for arm in manifest["arms"]:
            if (policy := arm["policy"]) is not None:
                policy["threshold"] = threshold

    change_manifest(folder, change)


def test_refused_rollouts_pass_no_limit(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(GENERATORS, "fake", Overflowing)
    assert run(folder, "dtypes=[float16]") == driver.DONE
    assert run(folder, "dtypes=[float16]", "limits.ig=1") == driver.GATE
    report = json.loads((folder / "audit" / "audit.json").read_text(), parse_constant=pytest.fail)
    assert "18 rollouts refused: the model's logits are not finite" in report["exceeded"][0]
    assert report["comparisons"][0]["agreement"]["ig"]["max"] is None


def test_a_lost_engine_is_infrastructure(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(GENERATORS, "fake", Dying)
    assert run(folder) == driver.INCOMPLETE
    assert "the engine is gone" in capsys.readouterr().err
    assert not (folder / "audit").exists()


def test_a_dry_run_names_the_passes_and_writes_nothing(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(folder, "--dry-run", "dtypes=[null, bfloat16]") == driver.DONE
    shown = capsys.readouterr().out
    assert "float32 alone, float32 small crowd, float32 crowd, float32 crowd #2" in shown
    assert "bfloat16 shuffled" in shown and str(folder / "audit") in shown
    assert not (folder / "audit").exists()


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("dtypes=[float8]", "dtypes.0: Input should be 'float32', 'bfloat16' or 'float16'"),
        ("dtypes=[]", "dtypes: Tuple should have at least 1 item"),
        ("compositions=[]", "compositions: Tuple should have at least 1 item"),
        ("compositions.1.name=alone", "two compositions are called 'alone'"),
        ("compositions.0.in_flight=0", "in_flight: Input should be greater than or equal to 1"),
        ("compositions.0.crowd=3", "unknown key"),
        ("limits.ig=-1", "limits.ig: Input should be greater than or equal to 0"),
    ],
)
def test_settings_that_mean_nothing_are_usage_errors(
    folder: Path, capsys: pytest.CaptureFixture[str], override: str, message: str
) -> None:
    assert run(folder, override) == driver.USAGE
    assert message in capsys.readouterr().err


def test_a_run_that_is_not_there_or_has_no_probes_is_a_usage_error(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(tmp_path / "gone") == driver.USAGE
    assert "no finished run here" in capsys.readouterr().err
    change_manifest(folder, lambda manifest: manifest.update(stages=[]))
    assert run(folder) == driver.USAGE
    assert f"{folder}: the run has no probes" in capsys.readouterr().err
