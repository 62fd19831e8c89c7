"""Tests of pipeline.report.generators and its figure: one data set under several models."""

from dataclasses import replace

import numpy as np
import polars as pl
import pytest

from pipeline.readers import InputError
from pipeline.report import evaluation, generators
from pipeline.report.figures.scale import scale
from pipeline.report.finished import Finished
from tests.report.runs import SAMPLES, SEED

HOW = {"seed": SEED, "samples": SAMPLES}


def renamed(run: Finished, model: str) -> Finished:
    """The run as if another generator had made it."""
    config = {**run.manifest["config"], "generator": {"model": model}}
    return replace(run, manifest={**run.manifest, "config": config})


@pytest.mark.parametrize(
    ("name", "size", "family"),
    [
        ("Qwen2.5-1.5B-Instruct", 1.5e9, "Qwen2.5-Instruct"),
        ("Llama-3.2-3B-Instruct", 3e9, "Llama-3.2-Instruct"),
        ("SmolLM2-135M-Instruct", 135e6, "SmolLM2-Instruct"),
        ("mistral-7b", 7e9, "mistral"),
        ("Mixtral-8x7B", None, "Mixtral-8x7B"),
        ("fake", None, "fake"),
    ],
)
def test_a_size_is_read_off_a_models_name_or_unknown(
    name: str, size: float | None, family: str
) -> None:
    assert generators.size_of(name) == size
    assert generators.family_of(name) == family


def test_each_generator_has_retrieval_order_and_the_policy_at_every_budget(
    runs: list[Finished],
) -> None:
    twins = [renamed(runs[1], f"/models/toy-{size}") for size in ("1B", "500M")]
    found = generators.frame([*twins, runs[0]], **HOW)
    assert set(found["dataset"]) == {"pool"}  # the other has one generator
    rows = found.select("generator", "method", "top_m").rows()
    methods = ("retrieval order", "ig 0")
    assert rows == [(g, w, m) for g in ("toy-1B", "toy-500M") for m in (1, 3) for w in methods]
    arms = {row["arm"]: row for row in evaluation.arms(runs[1:]).to_dicts()}
    for row in found.to_dicts():
        arm = arms[row["arm"]]
        names = ("f1", "f1_low", "f1_high", "tk")
        assert [row[n] for n in names] == pytest.approx([arm[n] for n in names])
        if row["method"] == "ig 0":
            assert row["difference_low"] == pytest.approx(arm["difference_low"])
        else:
            assert row["difference"] is None


def test_two_runs_of_one_generator_and_runs_of_other_questions_are_refused(
    runs: list[Finished],
) -> None:
    with pytest.raises(InputError, match="data set pool: two runs have generator fake"):
        generators.frame([runs[1], runs[1]], **HOW)
    other = renamed(replace(runs[0], dataset="pool"), "toy-1B")
    with pytest.raises(InputError, match="data set pool: no question is in all of "):
        generators.frame([runs[1], other], **HOW)


@pytest.mark.parametrize(
    ("models", "ticks"),
    [(("toy-1B", "toy-500M"), ["500M", "1B"]), (("first", "second"), ["first", "second"])],
)
def test_the_figure_draws_f1_and_tk_of_every_generator(
    runs: list[Finished], models: tuple[str, str], ticks: list[str]
) -> None:
    found = generators.frame([renamed(runs[1], model) for model in models], **HOW)
    figure = scale(found)
    assert [axes.get_title() for axes in figure.axes] == ["M = 1", "M = 3", "", ""]
    for axes, key in zip(figure.axes, ("f1", "f1", "tk", "tk"), strict=True):
        top_m = 1 if axes in figure.axes[::2] else 3
        drawn = [y for bar in axes.containers for y in np.asarray(bar[0].get_ydata()).tolist()]
        assert sorted(drawn) == sorted(found.filter(pl.col("top_m") == top_m)[key])
        assert [tick.get_text() for tick in axes.get_xticklabels()] == ticks
