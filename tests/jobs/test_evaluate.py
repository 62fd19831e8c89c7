"""From many arms to a policy: evaluate, sweep, calibrate, the main job with it."""

import json
import re
from pathlib import Path
from typing import Any

import polars as pl
import pytest
import yaml

from jobs import evaluate
from pipeline import driver
from pipeline.config import EvaluateConfig
from tests.jobs.runs import finished_rows, job, job_here, only_run, overrides, run_here

pytestmark = [pytest.mark.cluster, pytest.mark.engine, pytest.mark.usefixtures("local_ray")]
FAKES = [
    *("generator.engine=fake", "generator.model=fake"),
    *("scorers.bi_encoder.engine=fake", "scorers.bi_encoder.model=fake"),
]
DEMO = Path("conf/evaluate/demo.yaml")


@pytest.fixture(scope="module")
def evaluated(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The root of a finished evaluation over the examples: a real BM25, fake models."""
    root = tmp_path_factory.mktemp("evaluate")
    done = job("evaluate", "demo", [f"run.root={root}", *FAKES])
    assert done.returncode == 0, done.stderr
    assert f"report: {root}/reports/demo/report.html" in done.stdout
    assert len(re.findall(r"(?m)^generated \d+ of \d+ distinct prompts; one gen", done.stdout)) == 1
    return root


def ledger(folder: Path) -> dict[str, Any]:
    made: dict[str, Any] = json.loads((folder / "metrics.json").read_text())["ledger"]
    return made


def test_every_arm_stands_once_for_every_question_and_in_the_report(evaluated: Path) -> None:
    folder = only_run(evaluated, "demo-examples")
    names = [arm["arm"] for arm in json.loads((folder / "manifest.json").read_text())["arms"]]
    assert {"retriever M3", "ig 0.05 M1", "qlm_gain 10 M5 [random]", "oracle"} <= set(names)
    for row in finished_rows(folder).to_pylist():
        assert [metric["arm"] for metric in row["metrics"]] == names
        assert len({answer["prompt_id"] for answer in row["answers"]}) == len(row["answers"])
    html = (evaluated / "reports" / "demo" / "report.html").read_text()
    assert all(name in html for name in names)


def test_equal_prompts_are_generated_once(evaluated: Path) -> None:
    folder = only_run(evaluated, "demo-examples")
    rows = finished_rows(folder).to_pylist()
    distinct = sum(len(row["answers"]) for row in rows)
    assert ledger(folder)["answer"]["generated"] <= distinct < len(rows) * len(rows[0]["arms"]) / 2


def test_other_arms_find_the_scores_probes_and_answers_of_before(evaluated: Path) -> None:
    kept = {p: p.stat().st_mtime_ns for p in evaluated.glob("stages/*/**/part-*.parquet")}
    done = job_here(
        "evaluate",
        "demo",
        [f"run.root={evaluated}", "run.name=more", "arms.top_m=[1, 2, 3, 5]", *FAKES],
    )
    assert done.returncode == 0, done.stderr
    assert all(path.stat().st_mtime_ns == stamp for path, stamp in kept.items())
    new = {p.parent for p in evaluated.glob("stages/*/**/part-*.parquet")} - {
        p.parent for p in kept
    }
    assert [folder.parent.name.partition("-")[0] for folder in new] == ["answer"]
    counted = ledger(only_run(evaluated, "more-examples"))["answer"]
    assert 0 < counted["generated"] < counted["prompts"] / 2


def test_a_choice_among_the_arms_is_a_policy_of_the_main_job(
    evaluated: Path, tmp_path: Path
) -> None:
    folder = only_run(evaluated, "demo-examples")
    done = job_here("calibrate", "choose", [f"run={folder}", f"output={tmp_path / 'policy'}"])
    assert done.returncode == 0, done.stderr
    # A fake model's arms differ by chance alone: the verdict must say so and keep retrieval order.
    assert done.stdout.startswith("nothing beats retriever M")
    kept = json.loads((tmp_path / "policy" / "calibration.json").read_text())["arm"]
    size = {"retriever M5": 5, "retriever M3": 3, "retriever M1": 1}[kept]
    policy = tmp_path / "policy" / "policy.yaml"
    again = run_here([*overrides(tmp_path), f"policy={policy}", "selection=null"])
    assert again.returncode == 0, again.stderr
    rows = finished_rows(only_run(tmp_path / "out")).to_pylist()
    assert rows[0]["arms"][0]["arm"] == "retriever"
    assert [piece["position"] for piece in rows[0]["arms"][0]["evidence"]] == [*range(size)]


def test_a_quantile_admits_the_share_that_was_asked_for(evaluated: Path, tmp_path: Path) -> None:
    folder = only_run(evaluated, "demo-examples")
    asked = ["quantile.share=0.3", f"run={folder}", f"output={tmp_path / 'policy'}"]
    done = job_here("calibrate", "quantile", asked)
    assert done.returncode == 0, done.stderr
    threshold = json.loads((tmp_path / "policy" / "calibration.json").read_text())["threshold"]
    gains = [gain for gains in finished_rows(folder)["gains"].to_pylist() for gain in gains]
    share = sum(gain >= threshold for gain in gains) / len(gains)
    assert share <= 0.3 < share + 1 / len(gains) + 1e-9


def test_a_blend_is_fitted_and_measured_as_an_arm(evaluated: Path, tmp_path: Path) -> None:
    folder = only_run(evaluated, "demo-examples")
    done = job_here("calibrate", "blend", [f"run={folder}", f"output={tmp_path / 'blend'}"])
    assert done.returncode == 0, done.stderr
    assert "out of fold on" in done.stdout
    grid = f"arms.grid=[{{selector: blend, blend: {tmp_path}/blend/blend.json, thresholds: [0.0]}}]"
    again = job_here(
        "evaluate", "demo", [f"run.root={evaluated}", "run.name=blended", grid, *FAKES]
    )
    assert again.returncode == 0, again.stderr
    row = finished_rows(only_run(evaluated, "blended-examples")).to_pylist()[0]
    assert "probes" not in row
    assert "blend 0 M5" in [arm["arm"] for arm in row["arms"]]


def test_a_sweep_replays_k_and_mt_from_one_probe_pass(evaluated: Path) -> None:
    ranges = ["sweep.top_k=[8, 128]", "sweep.max_tokens=[4, 32]", "sweep.thresholds=[-.inf, 0.05]"]
    (index,) = (evaluated / "indexes").glob("bm25-*")
    arguments = [f"run.root={evaluated}", f"retriever.index={index}", *FAKES[:2], *ranges]
    done = job_here("sweep", "demo", arguments)
    assert done.returncode == 0, done.stderr
    folder = only_run(evaluated, "sweep")
    assert "made 300 of 300 distinct rollouts, one pass per (K, MT) would be 1200" in done.stdout
    assert len(list(evaluated.glob("stages/probe-*"))) == 2  # with and without a trace
    rows = pl.read_parquet(folder / "contexts" / "*.parquet").select("arms").explode("arms")
    arms = rows.unnest("arms")
    whole = arms.filter(pl.col("arm") == "ig-K128-MT32 0.05 M5")["prompt_id"]
    assert whole.to_list() == arms.filter(pl.col("arm") == "ig 0.05 M5")["prompt_id"].to_list()
    assert (folder / "report.html").exists()


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ("arms.grid.0.selector=igg", "arms.grid.0.selector"),
        ("arms.grid.0.thresholds=[high]", "arms.grid.0.thresholds.0"),
        ("scorers.also=[qml]", "scorers.also.0"),
        ("datasets.0.input.qrels=examples/questions.jsonl", "questions.jsonl:1"),
        ("arms.grid.0.ig_top_k=3", "arms.grid.0.ig_top_k"),
    ],
)
def test_a_bad_grid_or_input_is_one_line_and_exit_code_2(
    change: str, said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = ["conf/evaluate/demo.yaml", f"run.root={tmp_path}", *FAKES, change]
    assert driver.main("", EvaluateConfig, evaluate.run, arguments) == driver.USAGE
    (line,) = [line for line in capsys.readouterr().err.splitlines() if '"error"' in line]
    assert said in json.loads(line)["message"]


def test_a_bad_line_of_a_later_data_set_is_said_before_the_first_one_runs(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    questions = tmp_path / "questions.jsonl"
    questions.write_text('{"id": "a", "question": "b?", "golden_answers": ["c"]}\n{"id": "d"}\n')
    settings = yaml.safe_load(DEMO.read_text(encoding="utf-8"))
    (first,) = settings["datasets"]
    given = {**first["input"], "questions": str(questions), "qrels": None}
    second = {**first, "name": "second", "input": given}
    config = tmp_path / "two.yaml"
    config.write_text(yaml.safe_dump({**settings, "datasets": [first, second]}), encoding="utf-8")
    arguments = [str(config), f"run.root={tmp_path / 'out'}", *FAKES]
    assert driver.main("", EvaluateConfig, evaluate.run, arguments) == driver.USAGE
    captured = capsys.readouterr()
    assert "questions.jsonl:2" in captured.err
    assert "== examples" not in captured.out
    assert not (tmp_path / "out" / "runs").exists()
