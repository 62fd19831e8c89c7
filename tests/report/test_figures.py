"""Tests of pipeline.report.figures: what is drawn is what the points say, and readable in grey."""

import math
from typing import Any

import numpy as np
import polars as pl
import pytest
from matplotlib.axes import Axes
from matplotlib.collections import PathCollection
from matplotlib.figure import Figure
from matplotlib.text import Annotation

from pipeline.report import costs, evaluation, passages, points
from pipeline.report.figures import detail, quality, style
from pipeline.report.figures.style import Look
from pipeline.report.finished import Finished


@pytest.fixture(scope="module")
def arms(runs: list[Finished]) -> pl.DataFrame:
    """The arms of the run with judgements."""
    return evaluation.arms(runs[:1])


def drawn(axes: Axes) -> set[tuple[float, float]]:
    """Every point of the lines and clouds of some axes."""
    xy = [line.get_xydata() for line in axes.lines if line.get_marker() not in ("None", "", None)]
    clouds = [c.get_offsets() for c in axes.collections if isinstance(c, PathCollection)]
    return {(float(x), float(y)) for part in (*xy, *clouds) for x, y in np.asarray(part)}


def legend(figure: Figure) -> list[str]:
    """The names in a figure's legend."""
    return [text.get_text() for one in figure.legends for text in one.get_texts()]


def test_the_pareto_figure_draws_every_point_and_names_every_series(arms: pl.DataFrame) -> None:
    found = points.pareto(arms)
    figure = quality.pareto(found)
    expected = {(tk, f1) for tk, f1 in found.select("tk", "f1").iter_rows()}
    assert drawn(figure.axes[0]) == expected
    policies = found.filter(pl.col("kind") == "policy")["series"].unique(maintain_order=True)
    assert set(policies) <= set(legend(figure))
    assert quality.NAMES["closed_book"] in legend(figure)


def test_controls_are_hollow_and_choices_are_not(arms: pl.DataFrame) -> None:
    (axes,) = quality.pareto(points.pareto(arms)).axes
    faces = {c.get_label(): len(c.get_facecolor()) for c in axes.collections}
    assert faces[quality.NAMES["oracle"]] == 0
    assert all(line.get_markerfacecolor() != "none" for line in axes.lines)


def test_the_curve_over_tp_shows_f1_tokens_and_empty_share(arms: pl.DataFrame) -> None:
    found = points.thresholds(arms)
    panels = quality.thresholds(found).axes
    left = -0.05 - 0.1  # as far left of the smallest Tp as the largest gap between two
    for axes, name in zip(panels, ("f1", "tk", "empty_share"), strict=True):
        expected = {
            (left if math.isinf(tp) else tp, value)
            for tp, value in found.select("threshold", name).iter_rows()
        }
        assert drawn(axes) == expected
    labels = [tick.get_text() for tick in panels[2].get_xticklabels()]
    assert labels == [f"{style.MINUS}∞", "-0.05", "0", "0.1"]


def test_the_frontier_over_budgets_names_its_ends(arms: pl.DataFrame) -> None:
    found = points.thresholds(arms)
    figure = quality.budgets(found)
    shown = {(tk, f1) for tk, f1 in found.select("tk", "f1").iter_rows()}
    assert shown <= drawn(figure.axes[0])
    names = [t.get_text() for t in figure.axes[0].texts if isinstance(t, Annotation)]
    assert {"reorder", "Tp 0.1"} <= set(names)
    assert legend(figure) == ["ig M=1", "ig M=3", "retrieval order"]


def test_each_cell_of_the_map_says_its_f1(arms: pl.DataFrame) -> None:
    found = points.heat(arms)
    figure = detail.heat(found)
    ks, mts = sorted(set(found["ig_top_k"])), sorted(set(found["ig_max_tokens"]))
    text = {t.get_position(): t.get_text() for t in figure.axes[0].texts}
    for row in found.to_dicts():
        place = (mts.index(row["ig_max_tokens"]), ks.index(row["ig_top_k"]))
        assert float(text[place]) == pytest.approx(row["f1"], abs=5e-4)
    largest = found.filter(pl.col("ig_max_tokens") == 6).sort("ig_top_k")
    assert drawn(figure.axes[1]) == set(enumerate(largest["f1"]))


def test_a_whole_f1_is_written_as_one_and_a_part_without_its_nought() -> None:
    cells = [(8, 2, 1.0), (8, 4, 0.9996), (16, 2, 0.25), (16, 4, 0.0)]
    names = ("ig_top_k", "ig_max_tokens", "f1")
    found = pl.DataFrame(cells, schema=names, orient="row").with_columns(
        *(pl.lit(None, pl.Float64).alias(name) for name in ("f1_low", "f1_high"))
    )
    texts = {t.get_position(): t.get_text() for t in detail.heat(found).axes[0].texts}
    assert texts == {(0, 0): "1.000", (1, 0): "1.000", (0, 1): ".250", (1, 1): ".000"}


def test_the_scatters_legend_names_methods_that_only_a_later_panel_has() -> None:
    cells = [("x", 1), ("y", 1), ("x", 3), ("y", 3), ("z", 3)]
    found = pl.DataFrame(
        [
            {
                "dataset": "d",
                "top_m": m,
                "token_guard": None,
                "label": label,
                "arm": f"{label} M{m}",
            }
            | {"ndcg": place / 9, "f1": place / 7}
            for place, (label, m) in enumerate(cells)
        ],
        schema_overrides={"token_guard": pl.Int64},
    )
    assert legend(detail.ndcg(found, points.ndcg_spearman(found))) == ["x", "y", "z"]


def test_a_threshold_of_inf_has_a_place_of_its_own_at_the_right() -> None:
    # Finite thresholds .1 and .3: -inf stands at -.1 and inf at .5, one gap away.
    tps = [math.inf, 0.1, -math.inf, 0.3]
    found = pl.DataFrame(
        [
            {
                "label": "ig",
                "top_m": 1,
                "token_guard": None,
                "threshold": tp,
                "f1": f1,
                "tk": 9 * f1,
            }
            | {"f1_low": f1, "f1_high": f1, "empty_share": f1}
            | {"baseline_f1": None, "baseline_tk": None}
            for tp, f1 in zip(tps, (0.1, 0.2, 0.3, 0.4), strict=True)
        ],
        schema_overrides={
            "token_guard": pl.Int64,
            "baseline_f1": pl.Float64,
            "baseline_tk": pl.Float64,
        },
    )
    panels = quality.thresholds(found).axes
    places = {round(x, 9): y for x, y in drawn(panels[0])}
    assert places == {-0.1: 0.3, 0.1: 0.2, 0.3: 0.4, 0.5: 0.1}
    labels = [tick.get_text() for tick in panels[2].get_xticklabels()]
    assert labels == [f"{style.MINUS}∞", "0.1", "0.3", "∞"]
    names = [t.get_text() for t in quality.budgets(found).axes[0].texts]
    assert {"reorder", "Tp ∞"} <= set(names)


def test_a_missing_cell_of_the_map_is_a_dash(arms: pl.DataFrame) -> None:
    found = points.heat(arms).filter((pl.col("ig_top_k") > 8) | (pl.col("ig_max_tokens") > 2))
    texts = [text.get_text() for text in detail.heat(found).axes[0].texts]
    assert texts.count(style.UNDEFINED) == 1


def test_the_scatter_has_a_panel_a_budget_with_its_correlation(arms: pl.DataFrame) -> None:
    found = points.ndcg(arms)
    spearman = points.ndcg_spearman(found)
    panels = detail.ndcg(found, spearman).axes
    for axes, budget in zip(panels, spearman.to_dicts(), strict=True):
        own = found.filter(pl.col("top_m") == budget["top_m"])
        assert drawn(axes) == set(own.select("ndcg", "f1").iter_rows())
        rho = budget["spearman"]
        shown = style.UNDEFINED if rho is None else f"{rho:+.2f}"
        title = axes.get_title()
        assert title == f"M = {budget['top_m']}: {style.RHO} = {shown}, {len(own)} methods"


def test_the_histogram_draws_the_shares_of_each_kind(runs: list[Finished]) -> None:
    found = points.histogram("pool", passages.read(runs[1]))
    figure = detail.histogram(found)
    outlines = [patch for patch in figure.axes[0].patches if patch.get_label()]
    for patch, ((kind,), own) in zip(
        outlines, found.group_by("kind", maintain_order=True), strict=True
    ):
        assert patch.get_label() == f"{kind} (n = {own['passages'][0]})"
        steps: Any = patch
        assert steps.get_data().values.tolist() == own["share"].to_list()


def test_the_bars_say_what_each_stage_cost(runs: list[Finished]) -> None:
    ledger = costs.ledger(runs)
    panels = detail.stages(ledger).axes
    for axes, name in zip(panels, ("seconds_per_question", "tokens_per_question"), strict=True):
        widths = sorted(bar.get_width() for bar in axes.patches)  # type: ignore[attr-defined]
        assert widths == pytest.approx(sorted(value or 0.0 for value in ledger[name]))
    assert style.UNDEFINED in [text.get_text() for text in panels[1].texts]


def test_equal_figures_are_equal_text(arms: pl.DataFrame) -> None:
    found = points.pareto(arms)
    first, second = style.svg(quality.pareto(found)), style.svg(quality.pareto(found))
    assert first == second
    assert first.startswith("<?xml") and "<image" not in first


def test_two_names_never_look_alike_while_there_are_few() -> None:
    names = [f"m{i}" for i in range(24)]
    look = Look(["retriever", *names])
    assert look.colour("retriever") == style.BLACK
    assert len({(look.colour(name), look.marker(name)) for name in names}) == 24
