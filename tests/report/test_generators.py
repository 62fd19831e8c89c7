"""Tests of pipeline.report.generators and its figure: one data set under several models."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import polars as pl
import pyarrow as pa
import pytest

from jobs import evaluate
from pipeline.config import EvaluateConfig
from pipeline.readers import InputError
from pipeline.report import evaluation, generators
from pipeline.report.figures.scale import scale
from pipeline.report.finished import Finished
from pipeline.runs import layout
from pipeline.runs.storage import Storage
from pipeline.stages.plan import CONTEXTS
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


def asking(run: Finished, change: Callable[[str], str], folder: Path) -> Finished:
    """A copy of the run whose questions' texts are changed."""
    storage = Storage(str(folder))
    for shard in run.shards:
        name = layout.part(CONTEXTS, shard)
        part = run.storage.read_table(name, list(run.columns))
        texts = pa.array([change(text) for text in part["question"].to_pylist()])
        place = part.column_names.index("question")
        storage.write_table(name, part.set_column(place, "question", texts))
    return replace(run, storage=storage)


def test_runs_that_ask_something_else_under_one_id_are_refused(
    runs: list[Finished], tmp_path: Path
) -> None:
    twin = renamed(runs[1], "toy-1B")
    other = asking(twin, lambda text: text.replace("number 1", "no. 1"), tmp_path)
    told = "data set pool: question 'm01' is 'Where is the bridge number 1[?]' in .* and 'Where is"
    with pytest.raises(InputError, match=f"{told} the bridge no[.] 1[?]' in {tmp_path}; allowed"):
        generators.frame([runs[1], other], **HOW)


def config(tmp_path: Path, model: str, *beside: str) -> EvaluateConfig:
    """An evaluation of two data sets whose files are not there; the second names finished runs."""
    absent = {"questions": "q.jsonl", "candidates": "c.jsonl", "corpus": "p.jsonl"}
    return EvaluateConfig.model_validate(
        {
            "run": {"root": str(tmp_path)},
            "generator": {"engine": "fake", "model": model},
            "probe": {"template": "chat", "top_k": 128, "max_tokens": 32},
            "arms": {"top_m": [1], "empty_context": "frame"},
            "datasets": [
                {"name": "first", "input": absent},
                {"name": "pool", "input": absent, "beside": list(beside)},
            ],
        }
    )


def test_what_stands_beside_a_data_set_is_checked_before_the_first_one_is_run(
    folders: dict[str, str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pool, twice = folders["pool"], "data set pool: two runs have generator fake"
    for cfg, told in (
        (config(tmp_path, "/models/fake", pool), twice),
        (config(tmp_path, "toy", pool, pool), twice),
        (
            config(tmp_path, "toy", str(tmp_path / "none")),
            "manifest.json: absent; allowed: the fol",
        ),
    ):
        with pytest.raises(InputError, match=told):
            evaluate.run(cfg, False)
    assert capsys.readouterr().out == ""
    (run,) = generators.beside(config(tmp_path, "toy", pool).datasets[1], "toy")
    assert (run.dataset, generators.name_of(run)) == ("pool", "fake")


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
