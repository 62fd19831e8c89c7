"""Tests of pipeline.calibration.policies, on finished runs written by hand."""

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from pipeline.calibration.finished import open_run
from pipeline.calibration.policies import find
from pipeline.config import CalibrateConfig
from pipeline.readers import InputError

TOKENS = {"retriever M5": 400.0, "retriever M1": 100.0, "ig 0 M5": 90.0}


def arm(name: str, selector: str, threshold: float | str, top_m: int) -> dict[str, Any]:
    """An arm of a manifest."""
    policy = {
        "selector": selector,
        "threshold": threshold,
        "top_m": top_m,
        "empty_context": "frame",
    }
    return {"arm": name, "kind": "policy", "policy": policy}


def write_run(folder: Path, rows: pa.Table, arms: list[dict[str, Any]]) -> str:
    """A finished run of one shard; where it lies."""
    (folder / "contexts").mkdir(parents=True)
    pq.write_table(rows, folder / "contexts" / "part-000000.parquet")
    manifest = {"config": {"probe": {"passage_format": "contents"}}, "arms": arms}
    (folder / "manifest.json").write_text(json.dumps(manifest), encoding="utf-8")
    (folder / "_SUCCESS").touch()
    return str(folder)


def measured(names: list[str]) -> pa.Table:
    """Twelve questions with metrics: every arm has the F1 .5, and the tokens of TOKENS."""
    metrics = [{"arm": name, "f1": 0.5, "prompt_tokens": TOKENS[name]} for name in names]
    return pa.table({"question_id": [f"q{i}" for i in range(12)], "metrics": [metrics] * 12})


def settings(run: str, **way: dict[str, Any]) -> CalibrateConfig:
    """A config of jobs/calibrate.py."""
    return CalibrateConfig.model_validate({"run": run, "output": "unused", "samples": 100, **way})


def test_the_policy_of_a_budget_that_the_baseline_breaks_is_retrieval_order_within_it(
    tmp_path: Path,
) -> None:
    arms = [
        arm("retriever M5", "retriever", "-Infinity", 5),
        arm("retriever M1", "retriever", "-Infinity", 1),
    ]
    run = write_run(tmp_path / "run", measured(["retriever M5", "retriever M1"]), arms)
    wanted = {"target": "tokens", "value": 150, "baseline": "retriever M5"}
    found = find(settings(run, choose=wanted), open_run(run))
    assert (found.selection.selector, found.selection.top_m) == ("retriever", 1)
    assert "retriever M5 itself does not meet the target" in found.verdict


def test_the_policy_where_nothing_beats_the_baseline_is_the_shortest_that_is_as_good(
    tmp_path: Path,
) -> None:
    names = ["retriever M5", "retriever M1"]
    arms = [arm(name, "retriever", "-Infinity", int(name[-1])) for name in names]
    run = write_run(tmp_path / "run", measured(names), arms)
    wanted = {"target": "best", "baseline": "retriever M5"}
    found = find(settings(run, choose=wanted), open_run(run))
    assert (found.selection.selector, found.selection.top_m) == ("retriever", 1)
    assert found.verdict.startswith("nothing beats retriever M1, the best of retrieval order")
    assert found.method.startswith("cross-validated: ")
    assert found.figures["arm"] == found.figures["fallback"]["arm"] == "retriever M1"


def test_a_budget_that_only_a_pruning_arm_meets_is_refused_with_its_name(tmp_path: Path) -> None:
    arms = [arm("retriever M5", "retriever", "-Infinity", 5), arm("ig 0 M5", "ig", 0.0, 5)]
    run = write_run(tmp_path / "run", measured(["retriever M5", "ig 0 M5"]), arms)
    wanted = {"target": "tokens", "value": 150, "baseline": "retriever M5"}
    with pytest.raises(InputError, match=r"arms that do: ig 0 M5 \(90.0\)"):
        find(settings(run, choose=wanted), open_run(run))


EVIDENCE = pa.struct([("position", pa.int32()), ("text", pa.string()), ("tokens", pa.int32())])
ARMS = pa.list_(pa.struct([("evidence", pa.list_(EVIDENCE))]))


def spoil(part: Path, name: str) -> None:
    """Overwrites the data of a file's last column, and leaves its footer as it is."""
    group = pq.read_metadata(part).row_group(0)
    last = group.column(group.num_columns - 1)
    assert last.path_in_schema == name
    start, size = last.dictionary_page_offset or last.data_page_offset, last.total_compressed_size
    held = part.read_bytes()
    part.write_bytes(held[:start] + b"\xff" * size + held[start + size :])
    with pytest.raises(OSError, match="Parquet|Corrupt|deserialize"):
        pq.read_table(part)


def test_a_column_that_calibration_does_not_need_is_not_read(tmp_path: Path) -> None:
    candidate = {"passage_id": "p", "title": "", "text": "A town", "score": 1.0}
    evidence = [{"position": 0, "text": None, "tokens": 20}]
    rows = pa.table(
        {
            "question_id": [f"q{i}" for i in range(10)],
            "golden_answers": [["town"]] * 10,
            "candidates": [[candidate]] * 10,
            "gains": pa.array([[i / 10] for i in range(10)], pa.list_(pa.float32())),
            "arms": pa.array([[{"evidence": evidence}]] * 10, ARMS),
            "spoilt": ["x" * 500 + str(i) for i in range(10)],
        }
    )
    run = write_run(tmp_path / "run", rows, [])
    spoil(tmp_path / "run" / "contexts" / "part-000000.parquet", "spoilt")
    asked = {"signal": "ig", "share": 0.5, "top_m": 5, "empty_context": "frame"}
    found = find(settings(run, quantile=asked), open_run(run))
    assert found.selection.threshold == pytest.approx(0.45)  # between the fifth and the sixth


def early(run: str) -> str:
    """The run, said to have ended rollouts early."""
    path = Path(run) / "manifest.json"
    manifest = json.loads(path.read_text(encoding="utf-8"))
    manifest["config"]["probe"]["early_stop_threshold"] = 0.05
    path.write_text(json.dumps(manifest), encoding="utf-8")
    return run


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("quantile", {"signal": "ig", "share": 0.2}),
        ("blend", {"features": ["ig_z", "qlm"]}),
        ("blend", {"features": ["neg_nu"]}),
    ],
)
def test_gains_of_rollouts_that_were_ended_early_calibrate_nothing(
    tmp_path: Path, name: str, options: dict[str, Any]
) -> None:
    run = early(write_run(tmp_path / "run", measured([]), []))
    cfg = settings(run, **{name: {"top_m": 2, "empty_context": "frame", **options}})
    said = r"run: gains below probe\.early_stop_threshold 0\.05 were not measured"
    with pytest.raises(InputError, match=said):
        find(cfg, open_run(run))


def test_arms_of_a_run_that_ended_rollouts_early_are_chosen_from_as_ever(tmp_path: Path) -> None:
    arms = [arm("retriever M5", "retriever", "-Infinity", 5), arm("ig 0 M5", "ig", 0.1, 5)]
    run = early(write_run(tmp_path / "run", measured(["retriever M5", "ig 0 M5"]), arms))
    wanted = {"target": "quality", "value": 0.2, "baseline": "retriever M5"}
    assert find(settings(run, choose=wanted), open_run(run)).selection.top_m == 5
