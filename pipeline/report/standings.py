"""The ways of choosing evidence, ranked by F1: a row a selector, budget, and ranking or pruning.

A row that stands for several settings (Tp, gates, labels) takes for each question the one that was
best on the other folds, so that no question has a say in how it is answered: the row is what tuning
that selector on a sample like this one is worth. The best setting on the same questions would look
better than it is. The order of the rows still flatters the first: it is the best of many.

Shapes: S settings, Q questions.
"""

import hashlib
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from pipeline.report import resampled
from pipeline.report.averages import AVERAGE
from pipeline.report.comparisons import BASELINE, CONTROLS, FIRST
from pipeline.report.evaluation import label
from pipeline.report.finished import Arm
from pipeline.report.measured import Floats, Measured
from pipeline.stages.arms import prunes, replays, threshold

FOLDS = 5
RANKS, PRUNES = "ranking", "pruning"
RETRIEVER = "retriever"
MEANS = ("f1", BASELINE, *(control.column for control in CONTROLS))
NUMBERS = ("tk", "selection_tokens")

Budget = tuple[int, int | None]
Key = tuple[str, str, int, int | None]
"""selector, RANKS or PRUNES, M, B."""
Folds = NDArray[np.int64]


@dataclass(frozen=True)
class Standing:
    """A row over one data set: (Q,) by name of MEANS and NUMBERS, NaN where undefined.

    `picked` says in how many folds each of the `settings` was taken. `difference` is undefined for
    retrieval order itself, and the controls' for what only ranks.
    """

    settings: int
    picked: Mapping[str, int]
    values: Mapping[str, Floats]


def folds(texts: Sequence[str], *, seed: int) -> Folds:
    """The fold of each question, (Q,): equal texts share one, in whatever order they come.

    The distinct texts are dealt to the folds in the order of a seeded hash, so no fold has more
    than one of them above another.
    """

    def drawn(text: str) -> bytes:
        return hashlib.sha256(f"{seed}:{text}".encode()).digest()

    dealt = {text: i % FOLDS for i, text in enumerate(sorted(set(texts), key=drawn))}
    return np.array([dealt[text] for text in texts], np.int64)


def standings(arms: Sequence[Arm], found: Measured, fold_Q: Folds) -> dict[Key, Standing]:
    """The rows of one data set, in declared order. Replays of other K and MT are left out.

    Retrieval order with a policy of its own (a penalty for near-duplicates, say) is a row of its
    own, called by its label. Of arms with one policy the first stands for all.
    """
    plain = {_budget(a): a for a in arms if a["arm"] == a["baseline"]}
    groups: dict[Key, list[Arm]] = {}
    for arm in arms:
        if arm["kind"] == "policy" and not replays(arm):
            group = groups.setdefault(_key(arm, plain), [])
            if arm["policy"] not in [one["policy"] for one in group]:
                group.append(arm)
    controls = {(a["control_of"], a["kind"]): str(a["arm"]) for a in arms if a["control_of"]}
    made = {}
    for key, group in groups.items():
        baseline = plain.get(_budget(group[0]))
        others = {BASELINE: [None if baseline is None else str(baseline["arm"])] * len(group)}
        for one in CONTROLS:
            others[one.column] = [controls.get((str(arm["arm"]), one.kind)) for arm in group]
        made[key] = _standing(group, others, found, fold_Q)
    return made


def frame(
    by_dataset: Mapping[str, Mapping[Key, Standing]], *, seed: int, samples: int
) -> pl.DataFrame:
    """A row a data set and way of choosing, the best F1 first, then those of the data sets'
    average where several have golden answers; none of a data set without any.

    `difference` is F1 minus that of retrieval order under the same budget, `minus_first` minus
    that of the data set's first row, `minus_same_size` and `minus_random` minus those of the
    controls of equal size, all paired; `picked` names the settings and their folds.
    """
    labelled = {name: rows for name, rows in by_dataset.items() if _is_labelled(rows)}
    rows = []
    for dataset, standing in labelled.items():
        rows.extend(_rows(dataset, [standing], seed=seed, samples=samples))
    if len(labelled) > 1:
        rows.extend(_rows(AVERAGE, list(labelled.values()), seed=seed, samples=samples))
    return pl.DataFrame(rows, schema=SCHEMA)


def lead(ranked: pl.DataFrame) -> pl.DataFrame:
    """The rows that answer for the whole: those of the average over the data sets with golden
    answers, or of the only one."""
    datasets = ranked["dataset"].unique(maintain_order=True).to_list()
    return ranked.filter(pl.col("dataset") == datasets[-1]) if datasets else ranked


def _budget(arm: Arm) -> Budget:
    return arm["policy"]["top_m"], arm["policy"]["token_guard"]


def _key(arm: Arm, plain: Mapping[Budget, Arm]) -> Key:
    """plain: retrieval order itself, by budget."""
    selector = arm["policy"]["selector"]
    if selector == RETRIEVER and arm["policy"] != plain.get(_budget(arm), arm)["policy"]:
        selector = f"{RETRIEVER} {label(arm)}"
    return selector, PRUNES if prunes(arm) else RANKS, *_budget(arm)


def _standing(
    group: Sequence[Arm],
    others: Mapping[str, Sequence[str | None]],
    found: Measured,
    fold_Q: Folds,
) -> Standing:
    """others: by column of a difference, the arm that is taken from each of the group."""
    names = [str(arm["arm"]) for arm in group]
    tokens_SQ = np.stack([found.of(name, "prompt_tokens") for name in names])
    f1_SQ = np.stack([found.of(name, "f1") for name in names])
    setting_Q, picked = _picked(f1_SQ, tokens_SQ, fold_Q)

    def taken(rows: Sequence[Floats]) -> Floats:
        return np.asarray(np.stack(rows)[setting_Q, np.arange(setting_Q.size)])

    def minus(name: str, other: str | None) -> Floats:
        if other is None or other == name:
            return np.full(found.questions, np.nan)
        return found.of(name, "f1") - found.of(other, "f1")

    values = {
        "f1": taken(list(f1_SQ)),
        "tk": taken(list(tokens_SQ)),
        "selection_tokens": taken([found.selection_tokens(arm) for arm in group]),
        **{column: taken(list(map(minus, names, own))) for column, own in others.items()},
    }
    told = {_setting(group[s], alone=len(group) == 1): n for s, n in picked.items()}
    return Standing(len(group), told, values)


def _picked(f1_SQ: Floats, tokens_SQ: Floats, fold_Q: Folds) -> tuple[Any, dict[int, int]]:
    """(the setting of each question, (Q,); in how many folds each was taken): that with the highest
    F1 on the other folds, of equal ones the one with fewer tokens, then the first declared."""
    picks = {}
    for fold in np.unique(fold_Q).tolist():
        others = fold_Q != fold
        f1_S = np.nansum(f1_SQ[:, others], axis=1)
        tokens_S = np.nansum(tokens_SQ[:, others], axis=1)
        picks[fold] = int(np.lexsort((tokens_S, -f1_S))[0])
    return np.array([picks[fold] for fold in fold_Q.tolist()]), dict(Counter(picks.values()))


def _setting(arm: Arm, *, alone: bool) -> str:
    """What sets an arm apart from others of its selector and budget; "" for nothing, where it is
    `alone`."""
    name, tp = label(arm), threshold(arm["policy"])
    own = [] if name == arm["policy"]["selector"] else [name]
    told = [*own, *([] if tp == -np.inf else [f"Tp {tp:g}"])]
    return ", ".join(told or ([] if alone else [name]))


def _is_labelled(rows: Mapping[Key, Standing]) -> bool:
    return not all(np.isnan(row.values["f1"]).all() for row in rows.values())


def _rows(
    dataset: str, sets: Sequence[Mapping[Key, Standing]], *, seed: int, samples: int
) -> list[dict[str, Any]]:
    keys = [key for key in sets[0] if all(key in one for one in sets)]
    tables = {
        name: [np.stack([one[key].values[name] for key in keys]) for one in sets]
        for name in (*MEANS, *NUMBERS)
    }
    means = {n: resampled.means(tables[n], seed=seed, samples=samples) for n in MEANS}
    tokens = {n: np.mean([t.mean(axis=1) for t in tables[n]], axis=0) for n in NUMBERS}
    order = sorted(range(len(keys)), key=lambda i: (-means["f1"][i]["value"], tokens["tk"][i]))
    against = [table_AQ - table_AQ[order[0]] for table_AQ in tables["f1"]]
    means[FIRST] = resampled.means(against, seed=seed, samples=samples)
    undefined: dict[str, Any] = dict.fromkeys(resampled.PARTS)
    means[FIRST][order[0]] = undefined
    return [
        {
            **{"dataset": dataset, "place": place},
            **dict(zip(("selector", "selection", "top_m", "token_guard"), keys[i], strict=True)),
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
    whole = picked.total()
    return ", ".join(f"{name} ({n} of {whole} folds)" for name, n in picked.most_common())


SCHEMA: dict[str, Any] = {
    **{"dataset": pl.String, "place": pl.Int64, "selector": pl.String, "selection": pl.String},
    **{"top_m": pl.Int64, "token_guard": pl.Int64, "settings": pl.Int64, "picked": pl.String},
    **dict.fromkeys(NUMBERS, pl.Float64),
    **resampled.schema(*MEANS, FIRST),
}
