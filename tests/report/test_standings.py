"""Tests of pipeline.report.standings: honest picks by hand, and rows that are their arms'."""

from typing import Any

import numpy as np
import polars as pl
import pytest

from pipeline.config import ArmsConfig, GridEntry
from pipeline.report import evaluation, measured, standings
from pipeline.report.finished import Finished
from pipeline.report.measured import FIELDS, Measured
from pipeline.stages.arms import grid_arms
from tests.report import rows as made
from tests.report.recount import average_interval, column, same
from tests.report.runs import SAMPLES, SEED, rows_of

HOW = {"seed": SEED, "samples": SAMPLES}
GRID = ArmsConfig(
    top_m=(1,),
    empty_context="frame",
    oracle=False,
    grid=(GridEntry(selector="coverage", thresholds=(0.1, 0.2)),),
)
ARMS = grid_arms(GRID)
NAMES = tuple(arm.name for arm in ARMS)


def found(**f1: list[float]) -> Measured:
    """Five questions of the grid's arms; F1 by arm, 0 where none is given. Tokens are 10 an arm."""
    values: dict[str, Any] = {field: np.zeros((len(NAMES), 5)) for field in FIELDS}
    for place, name in enumerate(NAMES):
        values["f1"][place] = f1.get(name.replace(" ", "_").replace(".", ""), [0.0] * 5)
        values["prompt_tokens"][place] = 10.0 * (place + 1)
    tokens = {"score_coverage": np.full(5, 7.0)}
    return Measured(NAMES, values, tokens, None, None, np.full(5, np.nan), 0, {})


def row(ranked: pl.DataFrame, **key: Any) -> dict[str, Any]:
    """The one row with these values."""
    (made_,) = ranked.filter(*[pl.col(name) == value for name, value in key.items()]).to_dicts()
    return made_


def test_a_question_has_no_say_in_the_setting_that_answers_it() -> None:
    # Tp .1 is right on the first question alone and Tp .2 on the second: on the other folds the
    # first question sees Tp .2 ahead, the second Tp .1, and both are answered wrongly. The rest see
    # a tie, which the cheaper Tp .1 wins. The best setting on the same questions has F1 .2.
    measures = found(coverage_01_M1=[1.0, 0, 0, 0, 0], coverage_02_M1=[0, 1.0, 0, 0, 0])
    own = standings.standings(made.plain(ARMS), measures)[("coverage", "pruning", 1, None)]
    assert own.values["f1"].tolist() == [0.0] * 5
    assert own.picked == {"Tp 0.2": 1, "Tp 0.1": 4}
    assert own.settings == 2
    cheap, dear = (10.0 * (NAMES.index(f"coverage {tp} M1") + 1) for tp in (0.1, 0.2))
    assert own.values["tk"].tolist() == [dear, *[cheap] * 4]


def test_a_setting_that_is_always_better_is_always_taken() -> None:
    measures = found(coverage_02_M1=[1.0] * 5, retriever_M1=[0.5] * 5)
    ranked = standings.frame({"d": standings.standings(made.plain(ARMS), measures)}, **HOW)
    first, second = ranked.to_dicts()
    assert (first["selector"], first["way"], first["picked"]) == (
        *("coverage", "pruning"),
        "Tp 0.2 (5 of 5 folds)",
    )
    assert (first["f1"], first["difference"], first["minus_same_size"]) == (1.0, 0.5, 1.0)
    assert first["selection_tokens"] == 7.0
    assert first["minus_first"] is None and second["minus_first"] == -0.5
    assert second["difference"] is None and second["minus_same_size"] is None
    assert (first["place"], second["place"]) == (1, 2)


def test_without_golden_answers_nothing_is_ranked() -> None:
    nan = [np.nan] * 5
    measures = found(coverage_01_M1=nan, coverage_02_M1=nan, retriever_M1=nan)
    ranked = standings.frame({"d": standings.standings(made.plain(ARMS), measures)}, **HOW)
    assert ranked.is_empty() and ranked.columns == list(standings.SCHEMA)
    assert standings.lead(ranked).is_empty()


@pytest.fixture(scope="module")
def ranked(runs: list[Finished]) -> pl.DataFrame:
    """The ranking of both runs."""
    rows = {r.dataset: standings.standings(r.arms, measured.of_run(r)) for r in runs}
    return standings.frame(rows, **HOW)


def test_a_row_of_one_setting_has_the_numbers_of_its_arm(
    runs: list[Finished], ranked: pl.DataFrame
) -> None:
    arms = {(a["dataset"], a["arm"]): a for a in evaluation.arms(runs).to_dicts()}
    shared = [
        f"{mean}{suffix}" for mean in ("f1", "difference") for suffix in ("", "_low", "_high")
    ]
    for dataset in ("plain", "pool"):
        for selector in ("qlm", "coverage"):
            own = row(ranked, dataset=dataset, selector=selector, top_m=3)
            arm = arms[dataset, f"{selector} M3"]
            assert own["picked"] is None
            assert [own[name] for name in shared] == [arm[name] for name in shared]
            assert same(own["tk"], arm["tk"]) and same(
                own["selection_tokens"], arm["selection_tokens"]
            )


def test_every_selector_and_budget_has_a_row_and_replays_have_none(ranked: pl.DataFrame) -> None:
    ways = [(s, w) for s in ("retriever", "ig", "coverage", "qlm") for w in ("order",)]
    expected = {(*way, m) for way in [*ways, ("ig", "pruning")] for m in (1, 3)}
    for dataset in ("plain", "pool", "Avg."):
        own = ranked.filter(pl.col("dataset") == dataset)
        assert set(own.select("selector", "way", "top_m").iter_rows()) == expected
        assert len(own) == len(expected)
        assert own["f1"].to_list() == sorted(own["f1"], reverse=True)
    assert set(ranked["settings"]) == {1, 3}  # three Tp of IG, its replays of K and MT left out


def test_the_average_row_is_that_of_the_data_sets_rows(
    folders: dict[str, str], ranked: pl.DataFrame
) -> None:
    own = row(standings.lead(ranked), selector="qlm", top_m=1)
    sets = [column(rows_of(folder), "qlm M1", "f1") for folder in folders.values()]
    low, high = average_interval(sets)
    assert same(own["f1_low"], low) and same(own["f1_high"], high)
    each = [row(ranked, dataset=d, selector="qlm", top_m=1) for d in ("plain", "pool")]
    assert same(own["f1"], sum(one["f1"] for one in each) / 2)
    assert same(own["tk"], sum(one["tk"] for one in each) / 2)
