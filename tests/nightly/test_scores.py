"""What is kept of a night to be compared with."""

import shutil
from pathlib import Path

import numpy as np
import polars as pl
import pyarrow.parquet as pq
import pytest

from pipeline.calibration.finished import sample
from pipeline.nightly.scores import METRICS, paired, read
from pipeline.readers import InputError
from tests.nightly.conftest import Made


def test_scores_hold_every_arm_of_every_question_and_no_text(three: Made) -> None:
    table = pq.read_table(three.folder(0) / "scores.parquet")
    assert set(table.column_names) == {"question_id", "metrics", "probes", "gains"}
    assert table["question_id"].to_pylist() == [f"q{i:02d}" for i in range(40)]
    run = Path(three.results[0].manifest["run"]["folder"])
    rows = [
        row
        for part in sorted(run.glob("contexts/*.parquet"))
        for row in pq.read_table(part).to_pylist()
    ]
    for kept, row in zip(table.to_pylist(), rows, strict=True):
        assert [m["f1"] for m in kept["metrics"]] == [m["f1"] for m in row["metrics"]]
        assert kept["gains"] == row["gains"]
    own = read(str(three.folder(0) / "scores.parquet")).of_arm("igp")
    assert own.columns == ["question_id", *METRICS]
    assert own["f1"].mean() == pytest.approx(three.results[0].arm["f1"]["value"])


def test_a_copy_of_the_file_is_a_baseline_with_its_lineage(three: Made, tmp_path: Path) -> None:
    shutil.copy(three.folder(0) / "scores.parquet", tmp_path / "kept.parquet")
    kept = read(str(tmp_path / "kept.parquet"))
    assert kept.id == three.results[0].night.id
    assert kept.setting("probe.top_k") == 128
    assert sample(kept, threshold=0.05).questions == 40
    assert "probes" in kept.columns()


def test_pairs_are_the_questions_of_both_in_one_order() -> None:
    before = pl.DataFrame({"question_id": ["a", "b", "c"], "f1": [0.1, 0.2, None]})
    now = pl.DataFrame({"question_id": ["c", "d", "b"], "f1": [0.3, 0.4, 0.5]})
    old, new = paired(before, now, "f1")
    np.testing.assert_array_equal(old, [0.2, np.nan])
    np.testing.assert_array_equal(new, [0.5, 0.3])


def test_a_file_that_is_no_nights_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"gone\.parquet: absent"):
        read(str(tmp_path / "gone.parquet"))
    pl.DataFrame({"question_id": ["a"]}).write_parquet(tmp_path / "other.parquet")
    with pytest.raises(InputError, match=r"other\.parquet: its footer names no night"):
        read(str(tmp_path / "other.parquet"))
