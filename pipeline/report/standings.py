"""The ways of choosing evidence, ranked by F1: a row a selector, budget, and order or pruning.

A row that stands for several settings (Tp, gates, labels) takes for each question the one that was
best on the other folds, so that no question has a say in how it is answered: the row is what tuning
that selector on a sample like this one is worth. The best setting on the same questions would look
better than it is. The order of the rows still flatters the first: it is the best of many.

Shapes: S settings, Q questions.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import polars as pl

from pipeline.report import resampled
from pipeline.report.averages import AVERAGE
from pipeline.report.evaluation import label
from pipeline.report.finished import Arm
from pipeline.report.measured import Floats, Measured
from pipeline.stages.arms import prunes, replays, threshold

FOLDS = 5
"""Every fifth question is a fold."""
ORDERS, PRUNES = "order", "pruning"
MEANS = ("f1", "difference", "minus_same_size", "minus_random")
NUMBERS = ("tk", "selection_tokens")
_CONTROLS = {"minus_same_size": "same_size", "minus_random": "random_same_size"}

Key = tuple[str, str, int, int | None]
"""selector, ORDERS or PRUNES, M, B."""


@dataclass(frozen=True)
class Standing:
    """A row over one data set: (Q,) by name of MEANS and NUMBERS, NaN where undefined.

    `picked` says in how many folds each of the `settings` was taken. `difference` is undefined for
    retrieval order itself, and the controls' for what only orders.
    """

    settings: int
    picked: Mapping[str, int]
    values: Mapping[str, Floats]


def standings(arms: Sequence[Arm], found: Measured) -> dict[Key, Standing]:
    """The rows of one data set, in declared order. Replays of other K and MT are left out."""
    groups: dict[Key, list[Arm]] = {}
    for arm in arms:
        if arm["kind"] == "policy" and not replays(arm):
            groups.setdefault(_key(arm), []).append(arm)
    controls = {(a["control_of"], a["kind"]): str(a["arm"]) for a in arms if a["control_of"]}
    made = {}
    for key, group in groups.items():
        plain = [arm for arm in group if arm["arm"] == arm["baseline"]]
        made[key] = _standing(plain or group, controls, found)
    return made


def frame(
    by_dataset: Mapping[str, Mapping[Key, Standing]], *, seed: int, samples: int
) -> pl.DataFrame:
    """A row a data set, and their average where there are several, and way of choosing; the best
    F1 first. No rows where F1 is undefined.

    `difference` is F1 minus that of retrieval order under the same budget, `minus_first` minus
    that of the data set's first row, `minus_same_size` and `minus_random` minus those of the
    controls of equal size, all paired; `picked` names the settings and their folds.
    """
    rows = []
    for dataset, standing in by_dataset.items():
        rows.extend(_rows(dataset, [standing], seed=seed, samples=samples))
    if len(by_dataset) > 1:
        rows.extend(_rows(AVERAGE, list(by_dataset.values()), seed=seed, samples=samples))
    return pl.DataFrame(rows, schema=SCHEMA)


def lead(ranked: pl.DataFrame) -> pl.DataFrame:
    """The rows that answer for the whole: those of the average, or of the only data set."""
    datasets = ranked["dataset"].unique(maintain_order=True).to_list()
    return ranked.filter(pl.col("dataset") == datasets[-1]) if datasets else ranked


def _key(arm: Arm) -> Key:
    policy = arm["policy"]
    way = PRUNES if prunes(arm) else ORDERS
    return policy["selector"], way, policy["top_m"], policy["token_guard"]


def _standing(
    group: Sequence[Arm], controls: Mapping[tuple[str, str], str], found: Measured
) -> Standing:
    names = [str(arm["arm"]) for arm in group]
    tokens_SQ = np.stack([found.of(name, "prompt_tokens") for name in names])
    f1_SQ = np.stack([found.of(name, "f1") for name in names])
    setting_Q, picked = _picked(f1_SQ, tokens_SQ)

    def taken(rows: Sequence[Floats]) -> Floats:
        return np.asarray(np.stack(rows)[setting_Q, np.arange(setting_Q.size)])

    def minus(others: Sequence[str | None]) -> Floats:
        nothing = np.full(found.questions, np.nan)
        pairs = zip(names, others, strict=True)
        return taken(
            [
                nothing if o is None or o == name else found.of(name, "f1") - found.of(o, "f1")
                for name, o in pairs
            ]
        )

    values = {
        "f1": taken(list(f1_SQ)),
        "tk": taken(list(tokens_SQ)),
        "selection_tokens": taken([found.selection_tokens(arm) for arm in group]),
        "difference": minus([arm["baseline"] for arm in group]),
    }
    for column, kind in _CONTROLS.items():
        values[column] = minus([controls.get((name, kind)) for name in names])
    named = {_setting(group[s]): folds for s, folds in picked.items()}
    return Standing(len(group), named, values)


def _picked(f1_SQ: Floats, tokens_SQ: Floats) -> tuple[Any, dict[int, int]]:
    """(the setting of each question, (Q,); in how many folds each was taken): that with the highest
    F1 on the other folds, of equal ones the one with fewer tokens, then the first declared."""
    questions = f1_SQ.shape[1]
    fold_Q = np.arange(questions) % FOLDS
    picks = []
    for fold in range(FOLDS):
        others = fold_Q != fold
        f1_S = np.nansum(f1_SQ[:, others], axis=1)
        tokens_S = np.nansum(tokens_SQ[:, others], axis=1)
        picks.append(int(np.lexsort((tokens_S, -f1_S))[0]))
    return np.array(picks)[fold_Q], dict(Counter(picks[: min(FOLDS, questions)]))


def _setting(arm: Arm) -> str:
    """What sets an arm apart from others of its selector and budget; "" for nothing."""
    name = label(arm)
    own = [] if name == arm["policy"]["selector"] else [name]
    tp = threshold(arm["policy"])
    return ", ".join([*own, *([] if tp == -np.inf else [f"Tp {tp:g}"])])


def _rows(
    dataset: str, sets: Sequence[Mapping[Key, Standing]], *, seed: int, samples: int
) -> list[dict[str, Any]]:
    keys = [key for key in sets[0] if all(key in one for one in sets)]
    tables = {
        name: [np.stack([one[key].values[name] for key in keys]) for one in sets]
        for name in (*MEANS, *NUMBERS)
    }
    if any(np.isnan(table_AQ).all() for table_AQ in tables["f1"]):
        return []
    means = {n: resampled.means(tables[n], seed=seed, samples=samples) for n in MEANS}
    tokens = {n: np.mean([t.mean(axis=1) for t in tables[n]], axis=0) for n in NUMBERS}
    order = sorted(range(len(keys)), key=lambda i: (-means["f1"][i]["value"], tokens["tk"][i]))
    against = [table_AQ - table_AQ[order[0]] for table_AQ in tables["f1"]]
    means["minus_first"] = resampled.means(against, seed=seed, samples=samples)
    undefined: dict[str, Any] = dict.fromkeys(resampled.PARTS)
    means["minus_first"][order[0]] = undefined
    return [
        {
            **{"dataset": dataset, "place": place},
            **dict(zip(("selector", "way", "top_m", "token_guard"), keys[i], strict=True)),
            "settings": max(one[keys[i]].settings for one in sets),
            "picked": _told([one[keys[i]] for one in sets]),
            **{n: float(values[i]) for n, values in tokens.items()},
            **{c: v for n, own in means.items() for c, v in resampled.columns(n, own[i]).items()},
        }
        for place, i in enumerate(order, 1)
    ]


def _told(rows: Sequence[Standing]) -> str | None:
    """The settings and in how many folds of all data sets each was picked; None for nothing."""
    picked = sum((Counter(row.picked) for row in rows), Counter[str]())
    if all(row.settings == 1 for row in rows):
        return ", ".join(filter(None, picked)) or None
    folds = picked.total()
    return ", ".join(f"{name} ({n} of {folds} folds)" for name, n in picked.most_common())


def _schema() -> dict[str, Any]:
    made: dict[str, Any] = {"dataset": pl.String, "place": pl.Int64, "selector": pl.String}
    made |= {"way": pl.String, "top_m": pl.Int64, "token_guard": pl.Int64}
    made |= {"settings": pl.Int64, "picked": pl.String, **dict.fromkeys(NUMBERS, pl.Float64)}
    for name in (*MEANS, "minus_first"):
        for suffix in resampled.PARTS.values():
            made[f"{name}{suffix}"] = pl.Int64 if suffix in ("_n", "_undefined") else pl.Float64
    return made


SCHEMA = _schema()
