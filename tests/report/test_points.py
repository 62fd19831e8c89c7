"""Tests of pipeline.report.points: what figures draw, against counts and sums by hand."""

import math
from collections import Counter
from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import polars as pl
import pytest
from hypothesis import given
from hypothesis.strategies import floats, integers, lists, tuples

from pipeline.report import evaluation, passages, points
from pipeline.report.finished import Finished
from tests.report.recount import column, mean, same
from tests.report.runs import rows_of

EMPTY = evaluation.arms([]).schema


def arms(rows: Sequence[dict[str, Any]]) -> pl.DataFrame:
    """An arms frame of rows that name only what matters."""
    common = {"dataset": "d", "kind": "policy", "replayed": False, "label": "x", "top_m": 1}
    made = pl.DataFrame([common | row for row in rows], infer_schema_length=None)
    return pl.concat([pl.DataFrame(schema=EMPTY), made], how="diagonal_relaxed")


@pytest.fixture(scope="module")
def frame(runs: list[Finished]) -> pl.DataFrame:
    """The arms of both runs."""
    return evaluation.arms(runs)


def test_the_frontier_holds_whom_nobody_beats_in_both_cost_and_quality() -> None:
    found = points.pareto(
        arms(
            [
                {"arm": "cheap", "f1": 0.2, "tk": 100.0},
                {"arm": "better", "f1": 0.3, "tk": 200.0},
                {"arm": "worse", "f1": 0.1, "tk": 150.0},
                {"arm": "dear", "f1": 0.3, "tk": 300.0},
                {"arm": "twin", "f1": 0.2, "tk": 100.0},
                {"arm": "unknown", "f1": None, "tk": 1.0},
                {"arm": "oracle", "kind": "oracle", "f1": 0.9, "tk": 1.0},
            ]
        )
    )
    frontier = dict(found.select("arm", "frontier").iter_rows())
    assert frontier == {
        **{"cheap": True, "twin": True, "better": True, "worse": False, "dear": False},
        "oracle": None,  # no choice: it has read the golden answers
    }


@given(lists(tuples(integers(1, 9), integers(0, 9)), min_size=1, max_size=12))
def test_along_the_frontier_quality_rises_with_cost(cloud: list[tuple[int, int]]) -> None:
    rows = [{"arm": f"{i}", "tk": float(tk), "f1": f1 / 9} for i, (tk, f1) in enumerate(cloud)]
    best = points.pareto(arms(rows)).filter(pl.col("frontier")).unique(["tk", "f1"]).sort("tk")
    assert len(best)
    assert all(a["f1"] < b["f1"] and a["tk"] < b["tk"] for a, b in pairwise(best.to_dicts()))


def test_the_paretos_points_are_those_of_the_rows(
    folders: dict[str, str], frame: pl.DataFrame
) -> None:
    found = points.pareto(frame)
    assert not found.filter(pl.col("label").str.starts_with("igK")).height
    for row in found.to_dicts():
        rows = rows_of(folders[row["dataset"]])
        assert same(row["f1"], mean(column(rows, row["arm"], "f1")))
        assert same(row["tk"], mean(column(rows, row["arm"], "prompt_tokens")))
    series = dict(found.filter(pl.col("dataset") == "plain").select("arm", "series").iter_rows())
    assert series["ig -0.05 M3"] == series["ig -0.05 M1"] == "ig -0.05"
    assert series["ig M1"] == "ig"
    assert series["ig 0.1 M3 [random]"] == "ig 0.1 [random]"


def test_the_curve_over_tp_has_every_threshold_and_retrieval_order_beside_it(
    folders: dict[str, str], frame: pl.DataFrame
) -> None:
    found = points.thresholds(frame)
    assert set(found["label"]) == {"ig"}  # the others have one threshold or none
    for row in found.to_dicts():
        rows, m, tp = rows_of(folders[row["dataset"]]), row["top_m"], row["threshold"]
        name = f"ig M{m}" if math.isinf(tp) else f"ig {tp:g} M{m}"
        assert same(row["f1"], mean(column(rows, name, "f1")))
        assert same(row["tk"], mean(column(rows, name, "prompt_tokens")))
        assert same(row["empty_share"], column(rows, name, "admitted").count(0.0) / len(rows))
        assert same(row["baseline_f1"], mean(column(rows, f"retriever M{m}", "f1")))
        assert same(row["baseline_tk"], mean(column(rows, f"retriever M{m}", "prompt_tokens")))
    assert len(found) == 2 * 2 * 4


def test_the_map_over_k_and_mt_is_at_one_threshold_and_budget(
    folders: dict[str, str], frame: pl.DataFrame
) -> None:
    found = points.heat(frame)
    names = {(128, 6): "ig", (8, 2): "igK8T2", (8, 6): "igK8T6", (128, 2): "igK128T2"}
    for dataset, folder in folders.items():
        own = found.filter(pl.col("dataset") == dataset)
        assert set(own.select("ig_top_k", "ig_max_tokens").iter_rows()) == set(names)
        for row in own.to_dicts():
            assert (row["threshold"], row["top_m"]) == (0.0, 1)
            arm = f"{names[row['ig_top_k'], row['ig_max_tokens']]} 0 M1"
            assert same(row["f1"], mean(column(rows_of(folder), arm, "f1")))


def test_gated_arms_have_no_place_in_the_map() -> None:
    common = {"selector": "ig", "threshold": 0.0, "ig_top_k": 8, "empty_context": "frame"}
    rows = [
        {**common, "arm": f"{label} {mt}", "label": label, "ig_max_tokens": mt, "f1": f1, "bare": b}
        for label, f1, b in (("gated", 0.9, False), ("ig", 0.25, True))
        for mt in (2, 4)
    ]
    assert points.heat(arms(rows))["f1"].to_list() == [0.25, 0.25]
    assert points.heat(arms([row for row in rows if not row["bare"]])).is_empty()


def test_a_threshold_of_inf_is_no_reordering() -> None:
    rows = [
        {"arm": f"{tp}", "threshold": tp, "f1": 0.5, "tk": 1.0}
        for tp in (-math.inf, 0.0, 0.5, math.inf)
    ]
    found = points.thresholds(arms(rows))["threshold"].to_list()
    assert found == [-math.inf, 0.0, 0.5, math.inf]
    assert [points.threshold_text(tp) for tp in found] == ["reorder", "Tp 0", "Tp 0.5", "Tp ∞"]
    assert points.pareto(arms(rows))["series"].to_list() == ["x", "x 0", "x 0.5", "x inf"]
    two = [row for row in rows if row["threshold"] != 0.5]
    assert points.thresholds(arms(two)).is_empty()  # one finite threshold makes no curve


def test_without_replays_there_is_no_map(frame: pl.DataFrame) -> None:
    assert points.heat(frame.filter(~pl.col("replayed"))).is_empty()


def ranks(values: Sequence[float]) -> list[float]:
    """Ranks from 1, equal values sharing the mean of theirs."""
    counts, ordered = Counter(values), sorted(values)
    return [ordered.index(v) + (counts[v] + 1) / 2 for v in values]


def rho(x: Sequence[float], y: Sequence[float]) -> float:
    """Spearman: Pearson's correlation of the ranks."""
    a, b = ranks(x), ranks(y)
    middle = (len(a) + 1) / 2
    top = sum((p - middle) * (q - middle) for p, q in zip(a, b, strict=True))
    spread = [sum((p - middle) ** 2 for p in side) for side in (a, b)]
    return top / math.sqrt(spread[0] * spread[1])


def test_ndcg_and_f1_of_every_policy_and_their_rank_correlation(
    folders: dict[str, str], frame: pl.DataFrame
) -> None:
    found = points.ndcg(frame)
    assert set(found["dataset"]) == {"plain"}  # the pool has labels and no grades
    rows = rows_of(folders["plain"])
    for row in found.to_dicts():
        assert same(row["ndcg"], mean(column(rows, row["arm"], "ndcg")))
        assert same(row["f1"], mean(column(rows, row["arm"], "f1")))
    made = points.ndcg_spearman(found)
    for row in made.to_dicts():
        own = found.filter(pl.col("top_m") == row["top_m"])
        # One point an order: that of ig is one, though it has four thresholds.
        assert own["label"].to_list() == ["retriever", "ig", "coverage", "qlm"]
        assert not any(tp in arm for arm in own["arm"] for tp in (" 0 ", " 0.1 ", " -0.05 "))
        assert row["methods"] == len(own)
        if len(set(own["f1"])) > 1:
            assert same(row["spearman"], rho(own["ndcg"].to_list(), own["f1"].to_list()))
        else:
            assert row["spearman"] is None


def test_two_methods_have_no_rank_correlation() -> None:
    (row,) = points.ndcg_spearman(points.ndcg(arms(orders(2)))).to_dicts()
    assert (row["spearman"], row["methods"]) == (None, 2)


def orders(count: int) -> list[dict[str, Any]]:
    """Arms that only reorder, the better the order the better the F1."""
    return [
        {
            **{"arm": f"m{i} M1", "label": f"m{i}", "threshold": -math.inf},
            **{"ndcg": i / 4, "f1": i / 5},
        }
        for i in range(count)
    ]


def test_the_thresholds_of_one_order_do_not_count_as_methods() -> None:
    # Three orders rise together: 1. Ten thresholds of the first, of all F1s, say nothing of it.
    cut = [
        {"arm": f"m0 {i} M1", "label": "m0", "threshold": i / 10, "ndcg": 0.0, "f1": i / 10}
        for i in range(10)
    ]
    (row,) = points.ndcg_spearman(points.ndcg(arms([*cut, *orders(3)]))).to_dicts()
    assert (row["spearman"], row["methods"]) == (1.0, 3)


@pytest.mark.parametrize("place", [0, 1])
def test_the_histogram_counts_each_passage_once(runs: list[Finished], place: int) -> None:
    rows = passages.read(runs[place])
    found = points.histogram("d", rows)
    values = rows.select("ig", "holds", "label").to_dicts()
    low, high = min(v["ig"] for v in values), max(v["ig"] for v in values)
    width = (high - low) / points.BINS
    counted: Counter[tuple[str, int]] = Counter()
    for value in values:
        kind = points.GOLD if value["holds"] == 1 else points.OTHER
        kind = points.FALSE if value["label"] == "misinfo" else kind
        counted[kind, min(points.BINS - 1, math.floor((value["ig"] - low) / width))] += 1
    for kind in dict.fromkeys(found["kind"]):
        own = found.filter(pl.col("kind") == kind).to_dicts()
        total = sum(n for (name, _), n in counted.items() if name == kind)
        assert own[0]["passages"] == total
        assert sum(row["share"] for row in own) == pytest.approx(1)
        for b, row in enumerate(own):
            assert same(row["share"], counted[kind, b] / total)
            assert row["low"] == pytest.approx(low + b * width)
    assert (points.FALSE in set(found["kind"])) == (runs[place].dataset == "pool")


@given(lists(floats(-1, 1, width=32), max_size=30))
def test_the_shares_of_a_kind_sum_to_one(values: list[float]) -> None:
    count = len(values)
    rows = pl.DataFrame(
        {"ig": values, "holds": [None] * count, "label": [None] * count},
        schema={"ig": pl.Float32, "holds": pl.Float32, "label": pl.String},
    )
    found = points.histogram("d", rows)
    assert (found["share"].sum() == pytest.approx(1)) if values else found.is_empty()


def test_a_run_without_the_signal_has_no_histogram(runs: list[Finished]) -> None:
    assert points.histogram("d", passages.read(runs[0]).drop("ig")).is_empty()
