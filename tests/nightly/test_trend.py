"""The nights so far: a row a night, and their plot."""

import numpy as np
import polars as pl
from matplotlib.collections import PathCollection

from pipeline.nightly import trend
from tests.nightly.conftest import DATES, Made


def rows(three: Made, place: int) -> pl.DataFrame:
    result = three.results[place]
    return trend.frame(three.storage, result.night, (result.metrics, result.gate["verdict"]))


def test_a_night_sees_itself_and_the_earlier_ones_alone(three: Made) -> None:
    for place in range(3):
        found = rows(three, place)
        assert [str(date) for date in found["date"]] == [*DATES[: place + 1]]
    assert found["verdict"].to_list() == ["no_baseline", "passed", "worse"]
    assert found["f1"].to_list() == [result.arm["f1"]["value"] for result in three.results]
    assert found["sub_em"][2] == 0.0 < found["sub_em"][1]
    assert found["questions"].to_list() == [40, 40, 40]


def test_the_plot_shows_every_night_and_rings_those_that_did_not_pass(three: Made) -> None:
    found = rows(three, 2)
    figure = trend.plot(found, "igp")
    quality = figure.axes[0]
    days = [date.toordinal() for date in found["date"]]
    assert all(np.asarray(line.get_xdata()).tolist() == days for line in quality.get_lines())
    names = [line.get_label() for line in quality.get_lines()]
    assert names == ["retrieval order", "igp"]
    (ring,) = [c for c in quality.collections if isinstance(c, PathCollection)]
    assert np.asarray(ring.get_offsets()).tolist() == [[days[2], found["f1"][2]]]
    assert figure.axes[2].get_xlabel() == "scheduled date"


def test_a_single_night_and_one_without_golden_answers_can_be_drawn(three: Made) -> None:
    alone = rows(three, 0)
    assert trend.plot(alone, "igp").axes
    names = [name for name, kind in alone.schema.items() if kind == pl.Float64 and name != "tk"]
    unknown = alone.with_columns(pl.lit(None, pl.Float64).alias(name) for name in names)
    assert trend.plot(unknown, "igp").axes
