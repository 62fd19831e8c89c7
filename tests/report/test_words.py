"""Tests of pipeline.report.words: the sentences say what the numbers say, the bad news too."""

import math
from typing import Any

import polars as pl
import pytest

from pipeline.report import evaluation, generators, standings, words
from pipeline.report.passages import HOLDS, TRUE
from tests.report.rows import spread

EMPTY = evaluation.arms([]).schema
NO_SIGNALS = pl.DataFrame(
    schema=dict.fromkeys(("dataset", "target", "signal"), pl.String)
    | dict.fromkeys(("auc", "auc_low", "auc_high"), pl.Float64)
)
NO_COSTS = pl.DataFrame(schema={"dataset": pl.String, "arm": pl.String})


def arm(name: str, f1: float | None, tk: float, **others: Any) -> dict[str, Any]:
    """A row of an arms frame; `others` give a mean as (value, low, high)."""
    row: dict[str, Any] = {"dataset": "d", "arm": name, "kind": "policy", "selector": "ig"}
    row |= {"prunes": True, "f1": f1, "f1_low": f1, "f1_high": f1, "f1_n": 9, "tk": tk}
    row |= {"empty_share": 0.25, "baseline": "retriever"}
    return row | spread(others)


def said(*rows: dict[str, Any], tested: str | None = "p", **frames: pl.DataFrame) -> str:
    """The summary of one data set."""
    made = pl.DataFrame(list(rows), infer_schema_length=None)
    arms = pl.concat([pl.DataFrame(schema=EMPTY), made], how="diagonal_relaxed")
    signals, costs = frames.get("signals", NO_SIGNALS), frames.get("costs", NO_COSTS)
    ((dataset, sentences),) = words.summary(arms, {"d": tested}, signals, costs)
    assert dataset == "d"
    return " ".join(sentences)


@pytest.mark.parametrize(
    ("low", "high", "told"),
    [(0.01, 0.2, "higher than"), (-0.2, -0.01, "lower than"), (-0.1, 0.1, "not told apart from")],
)
def test_a_difference_is_told_by_its_interval(low: float, high: float, told: str) -> None:
    text = said(arm("p", 0.3, 90, difference=(0.05, low, high), minus_same_size=(0.0, -0.1, 0.1)))
    assert f"Its F1 is {told} that of retrieval order under the same budget: +0.050" in text
    assert "not told apart from that of retrieval's prefix of the same size" in text


def test_the_policys_f1_comes_with_its_n_and_its_empty_contexts() -> None:
    text = said(arm("p", 0.3, 90))
    assert "p: F1 0.300 [0.300, 0.300] over n = 9 at 90 prompt tokens; 25% of its" in text


def test_pruning_that_beats_nothing_is_said_not_to() -> None:
    rows = [
        arm("p", 0.3, 90, difference=(0.0, -0.1, 0.1)),
        arm("q", 0.2, 90, difference=(-0.1, -0.2, -0.05)),
    ]
    text = said(*rows)
    assert "0 higher, 1 lower, 1 not told apart. Pruning did not beat it anywhere here." in text
    better = arm("r", 0.4, 90, difference=(0.1, 0.05, 0.2))
    text = said(*rows, better)
    assert "1 higher, 1 lower, 1 not told apart." in text and "did not beat" not in text


@pytest.mark.parametrize(
    ("saved", "paid", "uses", "told"),
    [
        (50.0, 100.0, 2.0, "More than it saves: the context must be used 2.0 times"),
        (50.0, 25.0, 0.5, "Less than it saves"),
        (-5.0, 100.0, math.inf, "saves no prompt token"),
    ],
)
def test_what_selection_costs_is_set_against_what_it_saves(
    saved: float, paid: float, uses: float, told: str
) -> None:
    row = {"dataset": "d", "arm": "p", "baseline_tk": 100.0, "saved_tokens": saved}
    costs = pl.DataFrame([row | {"selection_tokens": paid, "break_even_uses": uses}])
    assert told in said(arm("p", 0.3, 90), costs=costs)


def test_a_signal_at_chance_is_said_to_be() -> None:
    rows = [
        {
            "dataset": "d",
            "target": target,
            "signal": "ig",
            "auc": auc,
            "auc_low": low,
            "auc_high": 0.7,
        }
        for target, auc, low in ((HOLDS, 0.6, 0.55), (TRUE, 0.52, 0.45))
    ]
    text = said(arm("p", 0.3, 90), signals=pl.DataFrame(rows))
    assert "a golden answer in a passage with AUC 0.600 [0.550, 0.700]." in text
    assert "from misinformation with AUC 0.520 [0.450, 0.700], which is not told apart" in text


def test_every_difference_that_is_shown_is_counted_once() -> None:
    shown = (0.1, 0.0, 0.2)
    gated = arm("p", 0.3, 90, difference=shown, minus_same_size=shown, minus_random=shown)
    rows = [gated | {"minus_ungated": 0.1}, arm("retriever", 0.3, 90, difference=shown)]
    arms = pl.DataFrame(rows, schema=EMPTY, strict=False)
    first = {"settings": 2, "difference": 0.1, "minus_same_size": 0.1}  # cross-fitted
    repeated = {"settings": 1, "difference": 0.1, "minus_first": -0.1}
    ranked = pl.DataFrame([first, repeated], schema=standings.SCHEMA)
    by_generator = pl.DataFrame(
        [{"difference": 0.1}, {"difference": None}], schema=generators.SCHEMA
    )
    # 4 of p, none of retrieval order from itself; 2 of the first row, 1 of the second; 1.
    assert words.cautions(arms, ranked, by_generator)[0].startswith("8 differences in F1 ")


def test_without_golden_answers_the_summary_says_so() -> None:
    assert "F1 is undefined" in said(arm("p", None, 90))
    assert "No arm selects by anything but retrieval order" in said(
        arm("retriever", None, 90, selector="retriever", prunes=False), tested=None
    )
