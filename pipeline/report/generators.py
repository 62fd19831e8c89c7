"""One data set under several generators: what pruning does as the model grows (the paper's fig. 7).

Of every run the declared policy under test is followed over its budgets, with retrieval order under
the same budget beside it; all numbers are over the questions that every run of the data set
answered. Shapes: Q questions.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import polars as pl

from pipeline.config import DatasetConfig
from pipeline.readers import InputError
from pipeline.report import measured, resampled
from pipeline.report.comparisons import BASELINE
from pipeline.report.evaluation import label
from pipeline.report.finished import Arm, Finished, open_run
from pipeline.stages.arms import policy_under_test, threshold

MEANS = ("f1", BASELINE, "tk")
PLAIN = "retrieval order"
Texts = Mapping[str, str]
"""Of questions, by id."""
_SIZE = re.compile(r"(?<![\w.])(\d+(?:\.\d+)?)([mb])(?![a-z0-9])", re.IGNORECASE)
_UNITS = {"m": 1e6, "b": 1e9}


def frame(runs: Sequence[Finished], *, seed: int, samples: int) -> pl.DataFrame:
    """A row a data set, generator, budget and method: retrieval order, then the policy under test.

    F1, its difference from retrieval order, and TK with intervals; `size` is as `size_of` reads it
    off the model's name. No rows of a data set with one run. InputError where two runs of a data
    set have one generator, no question in common, or another text under one question's id.
    """
    by_dataset: dict[str, list[Finished]] = {}
    for run in runs:
        by_dataset.setdefault(run.dataset, []).append(run)
    rows = [
        row
        for own in by_dataset.values()
        if len(own) > 1
        for row in _of_dataset(own, seed=seed, samples=samples)
    ]
    return pl.DataFrame(rows, schema=SCHEMA)


def beside(dataset: DatasetConfig, model: str) -> list[Finished]:
    """The runs that a data set names to stand beside that of the generator `model`; InputError
    where one is not finished, or two of all have one generator."""
    runs = [open_run(dataset.name, folder) for folder in dataset.beside]
    _check_apart(dataset.name, [*map(name_of, runs), _name(model)])
    return runs


def name_of(run: Finished) -> str:
    """The generator's name, of a local folder its last part."""
    return _name(run.manifest["config"]["generator"]["model"])


def size_of(name: str) -> float | None:
    """Parameters as the name of a model gives them, 1.5e9 of "Qwen2.5-1.5B-Instruct"; None where it
    gives none or several."""
    found = _SIZE.findall(name)
    if len(found) != 1:
        return None
    ((number, unit),) = found
    return float(number) * _UNITS[unit.lower()]


def family_of(name: str) -> str:
    """The name without the size: what models that differ in it alone share."""
    return re.sub(r"[-_ ]{2,}", "-", _SIZE.sub("", name)).strip("-_ ")


def shared(runs: Sequence[Finished]) -> list[list[int]]:
    """Of each run of a data set, the places of the questions that all of them answered, in one
    order. InputError as in `frame`."""
    _check_apart(runs[0].dataset, [name_of(run) for run in runs])
    texts = [run.questions() for run in runs]
    common = sorted(set(texts[0]).intersection(*texts[1:]))
    if not common:
        folders = ", ".join(str(run.storage.root) for run in runs)
        raise InputError(f"data set {runs[0].dataset}: no question is in all of {folders}")
    places = []
    for run, own in zip(runs, texts, strict=True):
        _check_alike((runs[0], texts[0]), (run, own), common)
        place = {question: i for i, question in enumerate(own)}
        places.append([place[question] for question in common])
    return places


def _of_dataset(runs: Sequence[Finished], *, seed: int, samples: int) -> Iterator[dict[str, Any]]:
    for run, kept in zip(runs, shared(runs), strict=True):
        yield from _of_run(run, kept, seed=seed, samples=samples)


def _check_apart(dataset: str, names: Sequence[str]) -> None:
    if repeated := sorted({name for name in names if names.count(name) > 1}):
        raise InputError(
            f"data set {dataset}: two runs have generator {repeated[0]}; allowed: one each"
        )


def _check_alike(
    one: tuple[Finished, Texts], other: tuple[Finished, Texts], shared: Sequence[str]
) -> None:
    (first, own), (second, texts) = one, other
    for question in shared:
        if own[question] != texts[question]:
            raise InputError(
                f"data set {first.dataset}: question {question!r} is {own[question]!r} in "
                f"{first.storage.root} and {texts[question]!r} in {second.storage.root}; allowed: "
                "runs over the same questions"
            )


def _of_run(
    run: Finished, kept: Sequence[int], *, seed: int, samples: int
) -> Iterator[dict[str, Any]]:
    """A run's rows over the questions that are kept, by their places."""
    found, name = measured.of_run(run), name_of(run)
    for arm in _followed(run.arms):
        f1_Q = found.of(str(arm["arm"]), "f1")[kept]
        baseline_Q = found.of(str(arm["baseline"]), "f1")[kept]
        tokens_Q = found.of(str(arm["arm"]), "prompt_tokens")[kept]
        values = dict(zip(MEANS, (f1_Q, f1_Q - baseline_Q, tokens_Q), strict=True))
        if arm["arm"] == arm["baseline"]:
            values[BASELINE] = np.full(f1_Q.size, np.nan)
        made = {"dataset": run.dataset, "generator": name, "size": size_of(name)}
        made |= {"method": _method(arm), "arm": arm["arm"]}
        made |= {key: arm["policy"][key] for key in ("top_m", "token_guard")}
        for key, values_Q in values.items():
            (mean,) = resampled.means([values_Q[None]], seed=seed, samples=samples)
            made |= resampled.columns(key, mean)
        yield made


def _followed(arms: Sequence[Arm]) -> Iterator[Arm]:
    """The arms of the policy under test at every budget, each after retrieval order."""
    tested = policy_under_test(arms)
    if tested is None:
        return
    by_name: Mapping[str, Arm] = {str(arm["arm"]): arm for arm in arms}
    for arm in arms:
        alike = arm["kind"] == "policy" and label(arm) == label(tested)
        if alike and threshold(arm["policy"]) == threshold(tested["policy"]):
            yield by_name[str(arm["baseline"])]
            yield arm


def _method(arm: Arm) -> str:
    if arm["arm"] == arm["baseline"]:
        return PLAIN
    tp = threshold(arm["policy"])
    return label(arm) if tp == -np.inf else f"{label(arm)} {tp:g}"


def _name(model: object) -> str:
    return str(model).rstrip("/").rpartition("/")[2]


SCHEMA: dict[str, Any] = {
    **{"dataset": pl.String, "generator": pl.String, "size": pl.Float64, "method": pl.String},
    **{"arm": pl.String, "top_m": pl.Int64, "token_guard": pl.Int64},
    **resampled.schema(*MEANS),
}
