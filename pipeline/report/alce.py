"""The ALCE tasks as frames: every arm of a data set, AdaRankLLM's table II, and what its selection
gives to weak and to strong generators.

Percentages are 0 to 100, as the paper has them. Shapes: A arms, K depths, Q questions.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import polars as pl

from pipeline.core.alce import ListMode
from pipeline.report import generators, resampled, task_scores
from pipeline.report.comparisons import bare
from pipeline.report.finished import Arm, Finished
from pipeline.report.measured import Floats
from pipeline.report.task_scores import COMPARED, TaskScores, mean
from pipeline.report.words import VERDICTS, verdict
from pipeline.stages.arms import NO_EVIDENCE, policy_under_test, replays

DEPTHS = (0, 1, 3, 5, 10)
"""The paper's k of Vanilla-k and Rerank-k."""
DEEPEST = 10
ORACLE, OVERALL = "Oracle", "Overall*"
HIGHER, LOWER, _ = VERDICTS


@dataclass(frozen=True)
class Scored:
    """A finished run of an ALCE task with its scores."""

    run: Finished
    scores: TaskScores

    @property
    def arms(self) -> Sequence[Arm]:
        """The run's arms as declared."""
        return self.run.arms


def read(runs: Sequence[Finished]) -> list[Scored]:
    """The runs of ALCE tasks, in the order of the paper's tasks."""
    found = [(run, task_scores.of_run(run)) for run in runs]
    scored = [Scored(run, scores) for run, scores in found if scores is not None]
    return sorted(scored, key=lambda one: [*COMPARED].index(one.scores.task))


def of_arms(one: Scored, *, seed: int, samples: int) -> pl.DataFrame:
    """A row an arm: the metrics of the task as means with their intervals, 0 to 1, and tokens."""
    scores = one.scores
    names = {name: scores.shown(name) for name in scores.scores}
    means = {
        name: resampled.means([scores.values[name]], seed=seed, samples=samples) for name in names
    }
    rows = []
    for place, arm in enumerate(scores.arms):
        row: dict[str, Any] = {"dataset": one.run.dataset, "arm": arm}
        for name, shown in names.items():
            row |= resampled.columns(shown, means[name][place])
        row |= {name: resampled.plain(mean(scores.of(arm, name))) for name in task_scores.TOKENS}
        rows.append(row)
    schema: dict[str, Any] = {"dataset": pl.String, "arm": pl.String}
    schema |= resampled.schema(*names.values())
    return pl.DataFrame(rows, schema=schema | dict.fromkeys(task_scores.TOKENS, pl.Float64))


def field_of(scores: TaskScores, mode: ListMode) -> str:
    """The one number of a task in table II; of QAMPARI its F1 in a mode."""
    return f"f1_{mode}" if scores.task == "qampari" else COMPARED[scores.task][0]


def whole(found: Sequence[Scored]) -> bool:
    """Whether there is an Overall*: each of the three tasks has one data set."""
    return [one.scores.task for one in found] == [*COMPARED]


def paper_table(
    found: Sequence[Scored], *, mode: ListMode, seed: int, samples: int
) -> pl.DataFrame:
    """Table II: a row a method, of each data set its score in percent and the tokens of the
    evidence, over the questions with a defined score; then Overall*, the mean of the three scores.

    Vanilla-k and Rerank-k at the paper's k; other policies by their arms' names. The oracle takes
    for each question the k of retrieval order with the best score, the smallest of equal ones.
    """
    cells = [_cells(one, field_of(one.scores, mode)) for one in found]
    methods = [name for name in cells[0] if all(name in own for own in cells)] if cells else []
    rows: list[dict[str, Any]] = [{"method": name} for name in methods]
    schema: dict[str, Any] = {"method": pl.String}
    tables = [np.stack([own[name][0] for name in methods]) for own in cells]
    for one, own, table_AQ in zip(found, cells, tables, strict=True):
        score, tokens = columns_of(one, mode)
        means = resampled.means([table_AQ], seed=seed, samples=samples)
        for row, value in zip(rows, means, strict=True):
            score_Q, tokens_Q = own[row["method"]]
            row |= resampled.columns(score, value)
            row[tokens] = resampled.plain(mean(tokens_Q[~np.isnan(score_Q)]))
        schema |= {**resampled.schema(score), tokens: pl.Float64}
    if whole(found):
        for row, value in zip(
            rows, resampled.means(tables, seed=seed, samples=samples), strict=True
        ):
            row |= resampled.columns(OVERALL, value)
        schema |= resampled.schema(OVERALL)
    return pl.DataFrame(rows, schema=schema)


def columns_of(one: Scored, mode: ListMode) -> tuple[str, str]:
    """The names of a data set's two columns in table II: its score and its tokens."""
    field = one.scores.shown(field_of(one.scores, mode))
    return f"{one.run.dataset} {field}", f"{one.run.dataset} context_tokens"


def _cells(one: Scored, field: str) -> dict[str, tuple[Floats, Floats]]:
    """By method, in the paper's order: (percent, tokens of the evidence), (Q,) each."""
    named = _methods(one.arms)
    made = {}
    for name, arm in named.items():
        made[name] = 100 * one.scores.of(arm, field), one.scores.of(arm, "context_tokens")
    depths = _depths(one.arms)
    if len(depths) > 1:
        every = [*depths] == [*range(DEEPEST + 1)]
        name = ORACLE if every else f"{ORACLE} of k = {', '.join(map(str, depths))}"
        made[name] = _oracle(one.scores, [*depths.values()], field)
    return made


def _oracle(scores: TaskScores, arms: Sequence[str], field: str) -> tuple[Floats, Floats]:
    """Of each question the best depth's (percent, tokens), the shallowest of equal ones."""
    score_KQ = 100 * np.stack([scores.of(arm, field) for arm in arms])
    tokens_KQ = np.stack([scores.of(arm, "context_tokens") for arm in arms])
    best_Q = np.argmax(np.where(np.isnan(score_KQ), -np.inf, score_KQ), axis=0)
    at = best_Q, np.arange(best_Q.size)
    return score_KQ[at], tokens_KQ[at]


def _depths(arms: Sequence[Arm]) -> dict[int, str]:
    """The arms of retrieval order by k, up to the deepest; k = 0 shows no evidence."""
    made: dict[int, str] = {}
    for arm in arms:
        if arm["kind"] == NO_EVIDENCE:
            made[0] = str(arm["arm"])
        elif _plain(arm, "retriever") and arm["policy"]["top_m"] <= DEEPEST:
            made[arm["policy"]["top_m"]] = str(arm["arm"])
    return dict(sorted(made.items()))


def _methods(arms: Sequence[Arm]) -> dict[str, str]:
    """Arms by their names in the table: Vanilla-k, Rerank-k, AdaRank, then the other policies."""
    vanilla = {f"Vanilla-{k}": arm for k, arm in _depths(arms).items() if k in DEPTHS}
    rerank, adarank, others = {}, {}, {}
    for arm in arms:
        name = str(arm["arm"])
        if _plain(arm, "listwise"):
            if arm["policy"]["top_m"] in DEPTHS:
                rerank[f"Rerank-{arm['policy']['top_m']}"] = name
        elif _plain(arm, "adarank"):
            adarank[arm["policy"]["top_m"]] = name
        elif arm["kind"] == "policy" and not _plain(arm, "retriever") and not replays(arm):
            others[name] = name
    deepest = {"AdaRank": adarank[max(adarank)]} if adarank else {}
    return {**vanilla, **dict(sorted(rerank.items(), key=_depth)), **deepest, **others}


def _depth(item: tuple[str, str]) -> int:
    return int(item[0].rpartition("-")[2])


def _plain(arm: Arm, selector: str) -> bool:
    """Whether an arm is a selector's own, called by it and M alone: no gate, no token budget."""
    policy = arm["policy"]
    if arm["kind"] != "policy" or policy["selector"] != selector or not bare(policy):
        return False
    return str(arm["arm"]) == f"{selector} M{policy['top_m']}"


def roles(runs: Sequence[Finished], *, seed: int, samples: int) -> pl.DataFrame:
    """A row a data set, metric and generator, the weakest baseline first: the selection against
    retrieval order under the same M, what it saves, and the best fixed k of that generator.

    The selection is AdaRank's at its largest M, else the policy under test. Scores in percent, over
    the questions that all runs of the data set answered; `best_k` is the best of the depths on the
    same questions, which flatters it. No rows of a data set with one run, or with an arm of neither
    kind. InputError as in generators.frame.
    """
    by_dataset: dict[tuple[str, str], list[Scored]] = {}
    for one in read(runs):
        by_dataset.setdefault((one.run.dataset, one.scores.task), []).append(one)
    rows: list[dict[str, Any]] = []
    for own in by_dataset.values():
        if len(own) < 2:
            continue
        places = generators.shared([one.run for one in own])
        for field in COMPARED[own[0].scores.task]:
            made = [
                row
                for one, kept in zip(own, places, strict=True)
                for row in _role(one, field, kept, seed=seed, samples=samples)
            ]
            rows += sorted(made, key=lambda row: (row["metric"], row["baseline_score"] or 0.0))
    return pl.DataFrame(rows, schema=ROLES)


def _role(
    one: Scored, field: str, kept: Sequence[int], *, seed: int, samples: int
) -> Iterator[dict[str, Any]]:
    followed = _followed(one.arms)
    if followed is None:
        return
    arm, baseline = str(followed["arm"]), str(followed["baseline"])
    scores, name = one.scores, generators.name_of(one.run)
    depths = _depths(one.arms)
    score_KQ = np.stack(
        [100 * scores.of(a, field)[kept] for a in (arm, baseline, *depths.values())]
    )
    difference_Q = score_KQ[0] - score_KQ[1]
    how = {"seed": seed, "samples": samples}
    means = resampled.means([np.vstack([score_KQ, difference_Q])], **how)
    tokens, baseline_tokens = (mean(scores.of(a, "context_tokens")[kept]) for a in (arm, baseline))
    saved = 100 * (1 - tokens / baseline_tokens) if baseline_tokens else float("nan")
    depth, best = max(
        zip(depths, means[2:-1], strict=True),
        key=lambda pair: -np.inf if pair[1]["value"] is None else pair[1]["value"],
        default=(None, None),
    )
    yield {
        **{"dataset": one.run.dataset, "metric": scores.shown(field), "generator": name},
        **{"size": generators.size_of(name), "arm": arm, "baseline": baseline},
        **resampled.columns("score", means[0]),
        **resampled.columns("baseline_score", means[1]),
        **resampled.columns("minus_baseline", means[-1]),
        **{"context_tokens": tokens, "baseline_context_tokens": baseline_tokens},
        **{"saved_percent": resampled.plain(saved), "gives": gives(means[-1], saved)},
        **{"best_k": depth, **resampled.columns("best_k_score", best)},
    }


def gives(difference: Mapping[str, Any], saved: float) -> str | None:
    """What the selection is good for, as far as this run can tell."""
    if difference["low"] is None:
        return None
    told = verdict(difference["low"], difference["high"])
    kinds = ["quality"] * (told == HIGHER) + ["tokens"] * (saved > 0)
    return (" and ".join(kinds) or "nothing") + " at a loss of quality" * (told == LOWER)


def _followed(arms: Sequence[Arm]) -> Arm | None:
    own = [arm for arm in arms if _plain(arm, "adarank")]
    return max(own, key=lambda arm: arm["policy"]["top_m"]) if own else policy_under_test(arms)


ROLES: dict[str, Any] = {
    **dict.fromkeys(("dataset", "metric", "generator"), pl.String),
    "size": pl.Float64,
    **dict.fromkeys(("arm", "baseline"), pl.String),
    **resampled.schema("score", "baseline_score", "minus_baseline"),
    **dict.fromkeys(("context_tokens", "baseline_context_tokens", "saved_percent"), pl.Float64),
    **{"gives": pl.String, "best_k": pl.Int64},
    **resampled.schema("best_k_score"),
}
