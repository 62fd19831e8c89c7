"""Tests of pipeline.report.answer: the first lines of a report say what the ranking says."""

from typing import Any

import polars as pl
import pytest

from pipeline.report import answer, standings
from tests.report.rows import spread


def way(selector: str, f1: float, **others: Any) -> dict[str, Any]:
    """A row of a ranking; `others` give a mean as (value, low, high)."""
    row: dict[str, Any] = {"dataset": "d", "selector": selector, "selection": "ranking", "top_m": 1}
    row |= {"metric": "F1", "score": f1, "score_low": f1, "score_high": f1}
    row |= {"tk": 90.0, "selection_tokens": 0.0}
    return row | spread(others)


def frame(*rows: dict[str, Any]) -> pl.DataFrame:
    """Ranked rows."""
    return pl.DataFrame(list(rows), schema=standings.SCHEMA)


def said(*rows: dict[str, Any]) -> str:
    """The sentences about ranked rows."""
    return " ".join(answer.sentences(frame(*rows)))


RETRIEVER = way("retriever", 0.2, top_m=3, tk=250.0, minus_first=(-0.1, -0.2, -0.01))


def test_the_best_way_is_named_with_what_it_costs() -> None:
    text = said(way("qlm", 0.3, selection_tokens=1200.0, difference=(0.1, 0.05, 0.2)), RETRIEVER)
    assert "Of 2 ways, qlm (ranking) at M = 1 has the highest F1: 0.300 [0.300, 0.300]." in text
    assert "It costs 90 prompt tokens a question and 1,200 tokens that models read" in text
    assert "order under the same budget its F1 is higher: +0.100 [+0.050, +0.200]." in text


@pytest.mark.parametrize(("high", "shown"), [(-0.01, True), (0.02, False)])
def test_a_lead_over_retrievals_best_budget_is_told_by_its_interval(
    high: float, shown: bool
) -> None:
    text = said(way("qlm", 0.3), RETRIEVER | {"minus_first_high": high})
    told = "higher" if shown else "not told apart"
    assert f"M = 3 with 0.200 at 250 tokens, it is {told}: +0.100 [{-high:+.3f}, +0.200]" in text
    assert ("not shown here that choosing beats plain retrieval order" in text) is not shown
    level = "0" if shown else "1"
    assert f"Not told apart from it: {level} of the 1 others" in text


def test_where_retrieval_order_is_first_nothing_is_ahead_of_it() -> None:
    first = way("retriever", 0.3)
    text = said(first, way("ig", 0.1, minus_first=(-0.2, -0.3, -0.1)))
    assert "No way of choosing is ahead of retrieval order here." in text


@pytest.mark.parametrize(
    ("guard", "best", "shown"),
    [(200, None, "M = 3, B = 200 with"), (None, 200, "M = 3 with"), (200, 200, None)],
)
def test_retrievals_best_budget_is_told_where_it_differs_in_m_or_in_b(
    guard: int | None, best: int | None, shown: str | None
) -> None:
    text = said(way("qlm", 0.3, top_m=3, token_guard=best), RETRIEVER | {"token_guard": guard})
    assert ("Beside the best of retrieval order" in text) is (shown is not None)
    assert shown is None or f"Beside the best of retrieval order, {shown} 0.200" in text


def test_a_variant_of_retrieval_order_is_not_retrieval_order() -> None:
    text = said(way("retriever dedup", 0.3, difference=(0.1, 0.05, 0.2)), RETRIEVER)
    assert "retriever dedup (ranking) at M = 1 has the highest F1" in text
    assert "Beside retrieval order under the same budget its F1 is higher" in text


def test_all_that_choose_are_counted_against_retrieval_order() -> None:
    gains = [(0.1, 0.05, 0.2), (-0.1, -0.2, -0.05), (0.0, -0.1, 0.1)]
    rows = [way(f"s{i}", 0.3 - i / 10, difference=d) for i, d in enumerate(gains)]
    rows = [row | {"minus_first_high": 0.0} for row in rows]
    assert "same budget, of 3 that choose: 1 higher, 1 lower, 1 not told apart." in said(*rows)


@pytest.mark.parametrize(
    ("prefix", "random", "told"),
    [
        ((0.1, 0.05, 0.2), (0.1, 0.05, 0.2), "both"),
        ((0.1, 0.05, 0.2), (0.1, -0.05, 0.2), "prefix"),
        ((-0.1, -0.2, 0.0), (0.1, 0.05, 0.2), "random"),
        ((0.0, -0.1, 0.1), (0.0, -0.1, 0.1), "neither"),
    ],
)
def test_which_controls_a_pruning_way_beats(
    prefix: tuple[float, ...], random: tuple[float, ...], told: str
) -> None:
    row = way("ig", 0.3, selection="pruning", minus_same_size=prefix, minus_random=random)
    full = frame(row).to_dicts()[0]
    assert answer.beats_controls(full) == told
    shown = answer.sheet("ranking", "R", frame(row)).texts().to_dicts()[0]
    assert shown["beats controls"] == told and shown["verdict"] == "\N{EN DASH}"
    assert answer.beats_controls(frame(way("ig", 0.3)).to_dicts()[0]) is None


def test_of_many_settings_the_one_picked_most_often_is_shown() -> None:
    picked = ["Tp 0.1 (4 of 5 folds), Tp 0 (1 of 5 folds)", "Tp 0.1 (5 of 5 folds)", "Tp 0.1", None]
    shown = answer.sheet("r", "R", frame(*[way("ig", 0.3, picked=p) for p in picked])).texts()
    assert shown["setting"].to_list() == [
        *("Tp 0.1 (4 of 5 folds), \N{HORIZONTAL ELLIPSIS}", "Tp 0.1 (5 of 5 folds)", "Tp 0.1"),
        "\N{EN DASH}",
    ]


def test_without_golden_answers_the_answer_says_so() -> None:
    assert said() == answer.NOTHING
    assert answer.sentences(frame(), ["log"]) == [answer.NOTHING]


def test_data_sets_that_the_average_leaves_out_are_named() -> None:
    *_, last = answer.sentences(frame(RETRIEVER), ["log", "other"])
    assert last.endswith("no question has golden answers or a task's score: log, other.")
