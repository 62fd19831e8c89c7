"""The drift job as a command line, over two runs written by hand."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from jobs import drift
from pipeline import driver, schema
from pipeline.config import DriftConfig
from tests.jobs.runs import REPOSITORY

EXAMPLE = REPOSITORY / "conf" / "drift" / "example.yaml"
PROBE = {"top_k": 128, "max_tokens": 32, "template": "chat", "passage_format": "contents"}


def write_run(
    folder: Path, *, seed: int, shift: float = 0.0, questions: int = 200, **probe: Any
) -> Path:
    """A finished run of two parts; `shift` moves NU(q | d), `probe` changes its settings."""
    rng = np.random.default_rng(seed)
    rows = [row(f"q{i}", rng, shift) for i in range(questions)]
    names = ("question_id", "probes", "gains")
    table = pa.Table.from_pylist(rows, schema=pa.schema([schema.COLUMNS[n] for n in names]))
    (folder / "contexts").mkdir(parents=True)
    half = questions // 2
    pq.write_table(table[:half], folder / "contexts" / "part-000000.parquet")
    pq.write_table(table[half:], folder / "contexts" / "part-000001.parquet")
    generator = {"model": "m", "revision": "main", "dtype": "float32", "engine": "fake"}
    manifest = {"config": {"probe": PROBE | probe, "generator": generator}}
    (folder / "manifest.json").write_text(json.dumps(manifest))
    (folder / "_SUCCESS").touch()
    return folder


def row(name: str, rng: np.random.Generator, shift: float) -> dict[str, Any]:
    """A question with five candidates; one in ten has none, one in ten an unmeasured one."""
    n = 0 if rng.random() < 0.1 else 5
    nu0 = float(rng.beta(2, 5))
    nu: list[float | None] = np.clip(nu0 + rng.normal(shift, 0.1, n), 0, 1).tolist()
    if n and rng.random() < 0.1:
        nu[-1] = None
    gains = [None if value is None else nu0 - value for value in nu]
    steps = np.minimum(rng.geometric(0.05, n + 1), 32).tolist()
    return {
        "question_id": name,
        "probes": {"nu0": nu0, "nu": nu, "steps": steps},
        "gains": gains,
    }


def run(reference: Path, current: Path, output: Path, *more: str) -> int:
    paths = [f"reference={reference}", f"current={current}", f"output={output}"]
    return driver.main("", DriftConfig, drift.run, [str(EXAMPLE), *paths, *more])


@pytest.fixture
def reference(tmp_path: Path) -> Path:
    return write_run(tmp_path / "runs" / "before", seed=1)


def test_two_runs_of_the_same_kind_are_done_with_a_report(
    reference: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    current = write_run(tmp_path / "now", seed=2)
    assert run(reference, current, tmp_path / "report") == driver.DONE
    report = json.loads((tmp_path / "report" / "drift.json").read_text())
    assert not report["drifted"] and report["differences"] == []
    assert report["reference"] == {"run": str(reference), "questions": 200}
    assert [entry["signal"] for entry in report["signals"]].count("ig") == 2
    page = (tmp_path / "report" / "drift.md").read_text()
    assert page.startswith("# No drift") and page.count("\n| nu") == 4
    shown = capsys.readouterr().out
    assert "200 questions before, 200 now" in shown and "DRIFT" not in shown


def test_a_run_whose_passages_help_less_fails_the_gate_and_says_where(
    reference: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    current = write_run(tmp_path / "now", seed=2, shift=0.15)
    assert run(reference, current, tmp_path / "report") == driver.GATE
    report = json.loads((tmp_path / "report" / "drift.json").read_text())
    flagged = {entry["signal"] for entry in report["signals"] if entry["exceeded"]}
    assert report["drifted"] and {"ig", "pass_rate"} <= flagged and "nu0" not in flagged
    assert (tmp_path / "report" / "drift.md").read_text().startswith("# Drift")
    assert "DRIFT" in capsys.readouterr().out


def test_what_is_above_its_limit_and_may_be_chance_is_no_drift_and_is_told(
    reference: Path, tmp_path: Path
) -> None:
    current = write_run(tmp_path / "now", seed=2)
    assert run(reference, current, tmp_path / "report", "psi_limit=0.0001") == driver.DONE
    page = (tmp_path / "report" / "drift.md").read_text()
    assert page.startswith("# No drift shown: 4 above their limits, with too few questions")
    assert page.count("| above, may be chance |") == 4


def test_limits_from_the_command_line_decide(reference: Path, tmp_path: Path) -> None:
    current = write_run(tmp_path / "now", seed=2, shift=0.15)
    wide = ("psi_limit=99", "ks_limit=1", "pass_rate_limit=1")
    assert run(reference, current, tmp_path / "report", *wide) == driver.DONE


def test_the_pass_rate_is_that_of_the_candidates_by_hand(tmp_path: Path) -> None:
    # q0: IG .5 and unmeasured, 1 of 2 passes; q1: no candidate, no rate; q2: .0 of 1. Mean .25.
    folder = write_run(tmp_path / "now", seed=2)
    rows = [
        {"probes": {"nu0": 0.75, "nu": [0.25, None], "steps": [3, 2, 1]}, "gains": [0.5, None]},
        {"probes": {"nu0": 0.25, "nu": [], "steps": [4]}, "gains": []},
        {"probes": {"nu0": 0.5, "nu": [0.5], "steps": [32, 32]}, "gains": [0.0]},
    ]
    fields = pa.schema([schema.PROBES, schema.GAINS])
    (folder / "contexts" / "part-000001.parquet").unlink()
    pq.write_table(
        pa.Table.from_pylist(rows, schema=fields), folder / "contexts" / "part-000000.parquet"
    )
    assert run(folder, folder, tmp_path / "report", "threshold=0.5") == driver.DONE
    report = json.loads((tmp_path / "report" / "drift.json").read_text())
    means = {entry["signal"]: entry["reference"] for entry in report["signals"]}
    assert means == {
        "nu0": 0.5,  # (.75 + .25 + .5) / 3
        "nu": 0.375,  # (.25 + .5) / 2
        "ig": 0.25,  # (.5 + .0) / 2
        "steps": pytest.approx(74 / 6),
        "pass_rate": 0.25,
    }


@pytest.mark.parametrize(
    ("probe", "message"),
    [
        ({"top_k": 64}, "probe.top_k is 64, the reference has 128"),
        ({"max_tokens": 16}, "probe.max_tokens is 16, the reference has 32"),
        ({"template": "literal"}, "probe.template is 'literal'"),
        ({"early_stop_threshold": 0.05}, "probe.early_stop_threshold 0.05 were not measured"),
    ],
)
def test_runs_that_were_probed_differently_are_refused(
    reference: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    probe: dict[str, Any],
    message: str,
) -> None:
    current = write_run(tmp_path / "now", seed=2, **probe)
    assert run(reference, current, tmp_path / "report") == driver.USAGE
    assert message in capsys.readouterr().err
    assert not (tmp_path / "report").exists()


def test_another_model_is_no_hindrance_but_a_note(reference: Path, tmp_path: Path) -> None:
    current = write_run(tmp_path / "now", seed=2)
    manifest = json.loads((current / "manifest.json").read_text())
    manifest["config"]["generator"]["model"] = "m2"
    (current / "manifest.json").write_text(json.dumps(manifest))
    run(reference, current, tmp_path / "report")
    report = json.loads((tmp_path / "report" / "drift.json").read_text())
    assert report["differences"] == ["generator.model: m -> m2"]
    assert "differs: generator.model: m -> m2" in (tmp_path / "report" / "drift.md").read_text()


def damaged(folder: Path, what: str) -> None:
    """The run with one thing missing or broken."""
    parts = sorted((folder / "contexts").iterdir())
    if what == "unfinished":
        (folder / "_SUCCESS").unlink()
    elif what == "no manifest":
        (folder / "manifest.json").unlink()
    elif what == "no config":
        (folder / "manifest.json").write_text("{}")
    elif what == "no questions":
        for part in parts:
            part.unlink()
    elif what == "no probes":
        for part in parts:
            pq.write_table(pq.read_table(part).select(["question_id"]), part)


@pytest.mark.parametrize(
    ("what", "message"),
    [
        ("unfinished", "_SUCCESS is absent"),
        ("no manifest", "manifest.json: cannot be read"),
        ("no config", "it has no config"),
        ("no questions", "has no finished question"),
        ("no probes", "has no probes"),
    ],
)
def test_a_folder_that_is_no_usable_run_is_a_usage_error_that_names_it(
    reference: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    what: str,
    message: str,
) -> None:
    current = write_run(tmp_path / "now", seed=2)
    damaged(current, what)
    assert run(reference, current, tmp_path / "report") == driver.USAGE
    shown = capsys.readouterr().err
    assert message in shown and str(current) in shown


def test_a_folder_that_is_absent_is_a_usage_error(
    reference: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(reference, tmp_path / "gone", tmp_path / "report") == driver.USAGE
    assert f"{tmp_path / 'gone'}: no finished run here" in capsys.readouterr().err


def test_a_dry_run_checks_both_runs_and_writes_nothing(reference: Path, tmp_path: Path) -> None:
    current = write_run(tmp_path / "now", seed=2)
    assert run(reference, current, tmp_path / "report", "--dry-run") == driver.DONE
    assert run(reference, tmp_path / "gone", tmp_path / "report", "--dry-run") == driver.USAGE
    assert not (tmp_path / "report").exists()


@pytest.mark.parametrize("override", ["threshold=-.inf", "alpha=0", "psi_limit=-1"])
def test_limits_that_say_nothing_are_refused(
    reference: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], override: str
) -> None:
    assert run(reference, reference, tmp_path / "report", override) == driver.USAGE
    assert override.partition("=")[0] in capsys.readouterr().err
