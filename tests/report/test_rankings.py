"""Tests of pipeline.report.rankings: rates of the listwise rankers' replies, from rows by hand."""

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from pipeline import schema
from pipeline.config import ArmsConfig, GridEntry
from pipeline.report import costs, evaluation, rankings, sections, tables
from pipeline.report.finished import Finished, open_run
from pipeline.schema import REPAIRS
from tests.report.runs import make_runs, rows_of

ARMS = ArmsConfig(
    top_m=(1, 3),
    empty_context="frame",
    grid=(GridEntry(selector="adarank"), GridEntry(selector="listwise")),
)


def ranking(calls: int, *, positions: int = 1, **counts: int) -> dict[str, Any]:
    """A ranking with some counts; those of REPAIRS are repairs."""
    repairs = dict.fromkeys(REPAIRS, 0) | {k: v for k, v in counts.items() if k in REPAIRS}
    rest = {"retries": 0, "malformed": 0, "tokens": 0}
    rest |= {name: value for name, value in counts.items() if name not in REPAIRS}
    made = {"positions": list(range(positions)), "calls": calls, "replies": []}
    return {**made, **rest, "repairs": repairs}


def part(*values: dict[str, Any], selector: str = "adarank") -> pa.Table:
    column = schema.ranking(selector)
    return pa.table({column.name: pa.array(list(values), column.type)})


def summed(table: pa.Table) -> dict[str, Any]:
    return rankings.summarise(rankings.read(table))


def test_rates_are_of_replies_but_none_is_of_questions() -> None:
    made = summed(
        part(
            ranking(3, retries=2, malformed=1, prose=2, duplicates=4),
            ranking(1, positions=0),
            ranking(0, positions=0),  # no candidates: nobody was asked
        )
    )
    (rates,) = made.values()
    assert (rates["calls"], rates["retried"], rates["malformed"]) == (4, 0.5, 0.25)
    assert rates["none"] == 0.5
    assert rates["repairs"] == dict.fromkeys(REPAIRS, 0.0) | {"prose": 0.5, "duplicates": 1.0}


def test_rates_are_undefined_where_nothing_was_asked() -> None:
    (rates,) = summed(part(ranking(0))).values()
    assert rates["calls"] == 0
    assert rates["malformed"] is rates["none"] is rates["repairs"]["prose"] is None
    assert rankings.line("adarank", rates) == ("adarank replies: 0, malformed -, retried -, none -")


def test_a_line_leaves_out_the_repairs_that_never_happened() -> None:
    (rates,) = summed(part(ranking(2, retries=1, missing=1), selector="listwise")).values()
    assert rankings.line("listwise", rates) == (
        "listwise replies: 2, malformed 0, retried 0.5, none 0, missing 0.5"
    )


def test_the_columns_that_are_read_are_parts_of_the_rankings_there() -> None:
    assert rankings.columns(["question", "score_qlm"]) == []
    assert rankings.columns(["ranking_adarank"]) == [
        f"ranking_adarank.{field}"
        for field in ("calls", "retries", "malformed", "tokens", "positions", "repairs")
    ]


@pytest.fixture(scope="module")
def ranked(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """Folders of two finished runs of which the fake model ranked the passages."""
    return make_runs(Path(tmp_path_factory.mktemp("ranked")), ARMS)


def test_the_table_s_rates_are_those_of_the_rows(ranked: dict[str, str]) -> None:
    runs: list[Finished] = [open_run(name, folder) for name, folder in ranked.items()]
    frame = costs.replies(runs)
    assert len(frame) == 4
    for made in frame.to_dicts():
        rows = [r[f"ranking_{made['selector']}"] for r in rows_of(ranked[made["dataset"]])]
        calls = sum(r["calls"] for r in rows)
        assert made["calls"] == calls > 0
        assert made["malformed"] == sum(r["malformed"] for r in rows) / calls
        assert made["prose"] == sum(r["repairs"]["prose"] for r in rows) / calls
    sheet = tables.replies(frame)
    shown = [column.heading for column in sheet.columns]
    assert {"malformed", "retried", "prose"} <= {*shown} and "zeros" not in shown
    assert len(sheet.rows) == 4


def test_the_section_stands_where_a_model_ranked_and_only_there(
    ranked: dict[str, str], runs: list[Finished]
) -> None:
    opened = [open_run(name, folder) for name, folder in ranked.items()]
    for those, there in ((opened, True), (runs, False)):
        per_arm = costs.per_arm(evaluation.arms(those))
        others = (costs.ledger(those).clear(), costs.sharing(those).clear())  # no figure is drawn
        made = {s.anchor: s for s in sections.of_costs(per_arm, *others, costs.replies(those))}
        assert [sheet.name for sheet in made["replies"].sheets] == ["replies"] * there


def test_a_ranker_s_arms_pay_for_their_selection_like_any(ranked: dict[str, str]) -> None:
    opened = [open_run(name, folder) for name, folder in ranked.items()]
    made = {row["arm"] for row in costs.per_arm(evaluation.arms(opened)).to_dicts()}
    assert made == {f"{selector} M{m}" for selector in ("adarank", "listwise") for m in (1, 3)}
    pruning = tables.controls(evaluation.arms(opened)).frame
    assert {*pruning["arm"]} == {"adarank M1", "adarank M3"}
