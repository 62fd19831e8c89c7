"""Tests of what runs over the same questions share on disk: whole, damaged, and judged later."""

from pathlib import Path

from tests.stages.plans import EXAMPLES, config, finished, run, written


def test_a_damaged_part_of_another_grid_stops_none_that_comes_after(tmp_path: Path) -> None:
    first, _ = run(config(tmp_path))
    parts = sorted(Path(first.root).glob("stages/answer-*/*/part-*.parquet"))
    parts[0].write_bytes(parts[0].read_bytes()[:100])
    settings = {"selection": {"threshold": 0.1}}
    plan, counts = run(config(tmp_path, **settings))
    assert counts.sums["answer"]["skipped"] == 1
    (tmp_path / "alone").mkdir()
    alone, _ = run(config(tmp_path / "alone", **settings))
    assert written(plan) == written(alone)


def test_judgements_that_come_later_find_candidates_probes_and_answers(tmp_path: Path) -> None:
    plan, _ = run(config(tmp_path))
    judged = config(tmp_path, input={"qrels": str(EXAMPLES / "qrels.tsv")})
    again, counts = run(judged)
    assert set(counts.sums) == {"select", "evaluate"}
    assert again.run_folder != plan.run_folder and again.folders[:-1] == plan.folders[:-1]
    assert [row["answers"] for row in finished(again).to_pylist()] == [
        row["answers"] for row in finished(plan).to_pylist()
    ]
    assert finished(plan)["judgements"].null_count == 50
    assert finished(again)["judgements"].null_count == 2  # the unanswerable ones
