"""The ways of choosing evidence, ranked by F1 or the score of their task: a row a selector or
labelled grid entry, budget, and ranking or pruning.

A row that stands for several Tp takes for each question the one that was best on
the other folds, so that no question has a say in how it is answered: the row is what tuning that
selector on a sample like this one is worth. The best setting on the same questions would look
better than it is. The order of the rows still flatters the first: it is the best of many.

Shapes: S settings, Q questions.
"""

import hashlib
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from pipeline.report import rankings, resampled
from pipeline.report.averages import AVERAGE
from pipeline.report.comparisons import BASELINE, CONTROLS, FIRST
from pipeline.report.evaluation import label
from pipeline.report.finished import Arm, Finished
from pipeline.report.measured import Floats, Measured
from pipeline.report.task_scores import TaskScores
from pipeline.stages.arms import prunes, replays, threshold

FOLDS = 5
RANKS, PRUNES = "ranking", "pruning"
RETRIEVER = "retriever"
F1, MIXED = "F1", "score"
"""The metric of short answers, and of an average over data sets that have several."""
MEANS = ("score", BASELINE, *(control.column for control in CONTROLS))
NUMBERS = ("tk", "selection_tokens")
DOUBT = (
    "Many replies that it rests on could not be read: malformed were {}. In their place stands "
    "what was there without the model, mostly retrieval order."
)

Budget = tuple[int, int | None]
Key = tuple[str, str, int, int | None]
"""way (see _way), RANKS or PRUNES, M, B."""
Folds = NDArray[np.int64]


@dataclass(frozen=True)
class Standing:
    """A row over one data set: (Q,) by name of MEANS and NUMBERS, NaN where undefined.

    `metric` is what `score` and the differences are of. `picked` says in how many folds each of the
    `settings` was taken. `difference` is undefined for
    retrieval order itself, and the controls' for what only ranks.
    """

    settings: int
    picked: Mapping[str, int]
    values: Mapping[str, Floats]
    metric: str = F1


def folds(texts: Sequence[str], *, seed: int) -> Folds:
    """The fold of each question, (Q,): equal texts share one, in whatever order they come.

    The distinct texts are dealt to the folds in the order of a seeded hash, so no fold has more
    than one of them above another.
    """

    def drawn(text: str) -> bytes:
        return hashlib.sha256(f"{seed}:{text}".encode()).digest()

    dealt = {text: i % FOLDS for i, text in enumerate(sorted(set(texts), key=drawn))}
    return np.array([dealt[text] for text in texts], np.int64)


def groups(arms: Sequence[Arm]) -> dict[Key, list[Arm]]:
    """The arms behind each row, in declared order. Replays of other K and MT are left out, and of
    arms with one policy the first stands for all."""
    plain = _plain(arms)
    made: dict[Key, list[Arm]] = {}
    seen: list[Any] = []
    for arm in arms:
        if arm["kind"] == "policy" and not replays(arm) and arm["policy"] not in seen:
            seen.append(arm["policy"])
            key = _way(arm, plain), PRUNES if prunes(arm) else RANKS, *_budget(arm)
            made.setdefault(key, []).append(arm)
    return made


def standings(
    arms: Sequence[Arm], found: Measured, fold_Q: Folds, task: TaskScores | None = None
) -> dict[Key, Standing]:
    """The rows of one data set, in declared order, by F1, or by the one score of its `task`."""
    plain = _plain(arms)
    score = _f1(found) if task is None else task.compared
    controls = {(a["control_of"], a["kind"]): str(a["arm"]) for a in arms if a["control_of"]}
    made = {}
    for key, group in groups(arms).items():
        baseline = plain.get(_budget(group[0]))
        others = {BASELINE: [None if baseline is None else str(baseline["arm"])] * len(group)}
        for one in CONTROLS:
            others[one.column] = [controls.get((str(arm["arm"]), one.kind)) for arm in group]
        standing = _standing(key, group, others, found, score, fold_Q)
        made[key] = standing if task is None else replace(standing, metric=task.metric)
    return made


def _f1(found: Measured) -> Callable[[str], Floats]:
    return lambda arm: found.of(arm, "f1")


def frame(
    by_dataset: Mapping[str, Mapping[Key, Standing]], *, seed: int, samples: int
) -> pl.DataFrame:
    """A row a data set and way of choosing, the best first, then those of the data sets' average
    where several have a defined score; none of a data set without any.

    `score` is of the row's `metric`; `difference` is it minus that of retrieval order under the
    same budget, `minus_first` minus that of the data set's first row, `minus_same_size` and
    `minus_random` minus those of the controls of equal size, all paired; `picked` names the
    settings and their folds.
    """
    labelled = {name: rows for name, rows in by_dataset.items() if _is_labelled(rows)}
    rows = []
    for dataset, standing in labelled.items():
        rows.extend(_rows(dataset, [standing], seed=seed, samples=samples))
    if len(labelled) > 1:
        rows.extend(_rows(AVERAGE, list(labelled.values()), seed=seed, samples=samples))
    return pl.DataFrame(rows, schema=SCHEMA)


def lead(ranked: pl.DataFrame) -> pl.DataFrame:
    """The rows that answer for the whole: those of the average over the data sets with a
    defined score, or of the only one."""
    datasets = ranked["dataset"].unique(maintain_order=True).to_list()
    return ranked.filter(pl.col("dataset") == datasets[-1]) if datasets else ranked


def doubts(first: pl.DataFrame, runs: Sequence[Finished]) -> list[str]:
    """What to know of the way that stands first in the ranked rows: on which data sets many replies
    of a model that it rests on were malformed."""
    if first.is_empty():
        return []
    row = first.row(0, named=True)
    key = row["selector"], row["selection"], row["top_m"], row["token_guard"]
    told = []
    for run in runs:
        stages = {stage for arm in groups(run.arms).get(key, []) for stage in arm["stages"]}
        replies = run.metrics.get("listwise", {})
        told += [f"{one} on {run.dataset}" for one in rankings.malformed(sorted(stages), replies)]
    return [DOUBT.format("; ".join(told))] if told else []


def _budget(arm: Arm) -> Budget:
    return arm["policy"]["top_m"], arm["policy"]["token_guard"]


def _plain(arms: Sequence[Arm]) -> dict[Budget, Arm]:
    """Retrieval order itself, by budget."""
    return {_budget(arm): arm for arm in arms if arm["arm"] == arm["baseline"]}


def _way(arm: Arm, plain: Mapping[Budget, Arm]) -> str:
    """The selector of a grid entry without a label, else the label: an ablation or a combination
    never stands for the selector itself. What is in retrieval order keeps that name before its
    label where its policy is another than retrieval order's (a penalty for near-duplicates)."""
    policy = arm["policy"]
    selector, name = str(policy["selector"]), label(arm)
    if selector == RETRIEVER:
        same = policy == plain.get(_budget(arm), arm)["policy"]
        return RETRIEVER if same else f"{RETRIEVER} {name}"
    if name != selector:
        return name
    joined = [f"{key} {policy[key]}" for key in ("order_by", "veto") if policy.get(key)]
    joined += ["random cut"] * (policy.get("truncate") == "random")
    return ", ".join([name, *joined])


def _standing(
    key: Key,
    group: Sequence[Arm],
    others: Mapping[str, Sequence[str | None]],
    found: Measured,
    score: Callable[[str], Floats],
    fold_Q: Folds,
) -> Standing:
    """others: by column of a difference, the arm that is taken from each of the group."""
    names = [str(arm["arm"]) for arm in group]
    tokens_SQ = np.stack([found.of(name, "prompt_tokens") for name in names])
    score_SQ = np.stack([score(name) for name in names])
    setting_Q, picked = _picked(score_SQ, tokens_SQ, fold_Q)

    def taken(rows: Sequence[Floats]) -> Floats:
        return np.asarray(np.stack(rows)[setting_Q, np.arange(setting_Q.size)])

    def minus(name: str, other: str | None) -> Floats:
        if other is None or other == name:
            return np.full(found.questions, np.nan)
        return score(name) - score(other)

    values = {
        "score": taken(list(score_SQ)),
        "tk": taken(list(tokens_SQ)),
        "selection_tokens": taken([found.selection_tokens(arm) for arm in group]),
        **{column: taken(list(map(minus, names, own))) for column, own in others.items()},
    }
    told = {_setting(group[s], key[0], alone=len(group) == 1): n for s, n in picked.items()}
    return Standing(len(group), told, values)


def _picked(score_SQ: Floats, tokens_SQ: Floats, fold_Q: Folds) -> tuple[Any, dict[int, int]]:
    """(the setting of each question, (Q,); in how many folds each was taken): that with the highest
    score on the other folds, of equal ones the one with fewer tokens, then the first declared."""
    picks = {}
    for fold in np.unique(fold_Q).tolist():
        others = fold_Q != fold
        score_S = np.nansum(score_SQ[:, others], axis=1)
        tokens_S = np.nansum(tokens_SQ[:, others], axis=1)
        picks[fold] = int(np.lexsort((tokens_S, -score_S))[0])
    return np.array([picks[fold] for fold in fold_Q.tolist()]), dict(Counter(picks.values()))


def _setting(arm: Arm, way: str, *, alone: bool) -> str:
    """What sets an arm apart from others of its way and budget; "" for nothing, where it is
    `alone`."""
    name, tp = label(arm), threshold(arm["policy"])
    own = [] if way.startswith(name) else [name]
    told = [*own, *([] if tp == -np.inf else [f"Tp {tp:g}"])]
    return ", ".join(told or ([] if alone else [name]))


def _is_labelled(rows: Mapping[Key, Standing]) -> bool:
    return not all(np.isnan(row.values["score"]).all() for row in rows.values())


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
    order = sorted(range(len(keys)), key=lambda i: (-means["score"][i]["value"], tokens["tk"][i]))
    against = [table_AQ - table_AQ[order[0]] for table_AQ in tables["score"]]
    means[FIRST] = resampled.means(against, seed=seed, samples=samples)
    metrics = {row.metric for one in sets for row in one.values()}
    metric = metrics.pop() if len(metrics) == 1 else MIXED
    undefined: dict[str, Any] = dict.fromkeys(resampled.PARTS)
    means[FIRST][order[0]] = undefined
    return [
        {
            **{"dataset": dataset, "metric": metric, "place": place},
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
    **{"dataset": pl.String, "metric": pl.String, "place": pl.Int64},
    **{"selector": pl.String, "selection": pl.String},
    **{"top_m": pl.Int64, "token_guard": pl.Int64, "settings": pl.Int64, "picked": pl.String},
    **dict.fromkeys(NUMBERS, pl.Float64),
    **resampled.schema(*MEANS, FIRST),
}
