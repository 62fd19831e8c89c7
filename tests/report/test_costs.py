"""Tests of pipeline.report.costs: tokens, seconds and calls, recounted from rows and parts."""

import json
import math
from pathlib import Path

import polars as pl
import pyarrow.parquet as pq

from pipeline.report import costs, evaluation, tables
from pipeline.report.finished import Finished
from tests.report import recount
from tests.report.recount import same
from tests.report.runs import json_of, rows_of


def test_the_ledger_is_the_sum_of_what_the_parts_were_counted_to(
    folders: dict[str, str], runs: list[Finished]
) -> None:
    for row in costs.ledger(runs).to_dicts():
        root = Path(folders[row["dataset"]]).parents[1]
        ids = {one["question_id"] for one in rows_of(folders[row["dataset"]])}
        totals: dict[str, float] = {}
        for part in sorted((root / "stages").glob(f"{row['stage']}-*/**/part-*.parquet")):
            table = pq.read_table(part)
            if set(table["question_id"].to_pylist()) <= ids:
                for name, value in json.loads(table.schema.metadata[b"winnow"]).items():
                    totals[name] = totals.get(name, 0) + value
        assert row["rows"] == totals["rows"] == len(ids)
        assert same(row["seconds"], totals["seconds"])
        assert row["tokens"] == totals.get("tokens")
        assert same(row["seconds_per_question"], totals["seconds"] / len(ids))


def test_the_probes_tokens_are_those_of_the_rows(
    folders: dict[str, str], runs: list[Finished]
) -> None:
    probes = costs.ledger(runs).filter(pl.col("stage") == "probe")
    for row in probes.to_dicts():
        rows = rows_of(folders[row["dataset"]])
        assert row["tokens"] == sum(map(recount.probe_tokens, rows))
        assert row["rollouts"] == sum(len(one["probes"]["steps"]) for one in rows)
        assert same(row["tokens_per_question"], row["tokens"] / len(rows))


def test_calls_made_and_naive_are_counted_question_by_question(
    folders: dict[str, str], runs: list[Finished]
) -> None:
    made = {(r["dataset"], r["calls"]): r for r in costs.sharing(runs).to_dicts()}
    for dataset, folder in folders.items():
        rows = rows_of(folder)
        answers, rollouts = made[dataset, "answers"], made[dataset, "rollouts"]
        assert answers["naive"] == sum(len(row["arms"]) for row in rows)
        prompts = {answer["prompt_id"] for row in rows for answer in row["answers"]}
        assert (answers["made"], answers["taken_up"]) == (len(prompts), 0)
        assert answers["settings"] == len(json_of(folder, "manifest.json")["arms"])
        once = sum(1 + len(row["candidates"]) for row in rows)
        distinct = {key for row in rows for key in row["probes"]["keys"]}
        assert rollouts["settings"] == 4  # 128x6, 8x2, 8x6, 128x2
        assert (rollouts["made"], rollouts["taken_up"]) == (len(distinct), 0)
        assert rollouts["naive"] == 4 * once


def test_what_an_arm_saves_and_when_it_has_repaid_its_selection(
    folders: dict[str, str], runs: list[Finished]
) -> None:
    arms = evaluation.arms(runs)
    made = costs.per_arm(arms).to_dicts()
    assert {row["arm"].split(" ")[0] for row in made} == {
        *("ig", "qlm", "igK8T2", "igK8T6", "igK128T2")
    }
    for row in made:
        rows, name = rows_of(folders[row["dataset"]]), row["arm"]
        baseline = f"retriever {name.split(' ')[-1]}"
        tk = recount.mean(recount.column(rows, name, "prompt_tokens"))
        base = recount.mean(recount.column(rows, baseline, "prompt_tokens"))
        stage = "score_qlm" if name.startswith("qlm") else "probe"
        paid = recount.mean([float(p) for p in recount.selection(rows, [stage])])
        assert same(row["baseline_tk"], base) and same(row["saved_tokens"], base - tk)
        assert same(row["selection_tokens"], paid)
        expected = paid / (base - tk) if base > tk else math.inf
        assert row["break_even_uses"] == expected or same(row["break_even_uses"], expected)


def test_a_run_without_a_ledger_has_no_rows(runs: list[Finished]) -> None:
    bare = Finished(
        dataset="d",
        storage=runs[0].storage,
        manifest=runs[0].manifest,
        metrics={"arms": []},
        shards=(),
        columns=(),
    )
    assert costs.ledger([bare]).is_empty()


def test_a_stage_s_refusals_stand_in_the_ledger_whether_or_not_they_killed(
    runs: list[Finished],
) -> None:
    counted = {"rows": 9, "seconds": 1.0}
    ledger = {"probe": {**counted, "dead": 2}, "score_qlm": {**counted, "unmeasured": 3}}
    bare = Finished(
        dataset="d",
        storage=runs[0].storage,
        manifest=runs[0].manifest,
        metrics={"arms": [], "ledger": ledger},
        shards=(),
        columns=(),
    )
    assert costs.ledger([bare])["refused"].to_list() == [2, 3]


def test_what_a_gate_saves_and_costs_stands_in_the_table_where_there_is_one(
    runs: list[Finished],
) -> None:
    frame = costs.per_arm(evaluation.arms(runs))
    headings = [column.heading for column in tables.costs(frame).columns]
    assert "probes saved" not in headings
    gated = frame.with_columns(
        probes_saved=pl.lit(0.25), minus_ungated=pl.lit(-0.5), minus_ungated_low=pl.lit(None)
    )
    sheet = tables.costs(gated)
    assert [column.heading for column in sheet.columns][-2:] == ["probes saved", "F1 minus ungated"]
    assert [cell.text for cell in sheet.rows[0][-2:]] == ["0.25", "-0.500"]
