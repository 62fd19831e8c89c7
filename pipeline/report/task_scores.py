"""The ALCE metrics of a run: read from its rows, and as the run's own numbers.

Shapes: A arms, Q questions.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from pipeline import schema
from pipeline.config import AnswerConfig, EvaluationConfig, OfflineIgpConfig
from pipeline.config.answer import SHORT_ANSWER, Task
from pipeline.report import resampled
from pipeline.report.finished import Finished
from pipeline.report.measured import Floats, Stored, by_arm
from pipeline.runs.storage import Storage
from pipeline.stages import build
from pipeline.stages import plan as plans
from pipeline.stages.evaluate_task import SCORE
from pipeline.stages.plan import Plan

TOKENS = ("prompt_tokens", "context_tokens")
COMPARED: Mapping[Task, tuple[str, ...]] = {
    "asqa": ("str_em",),
    "qampari": ("f1_alce", "f1_adarank"),
    "eli5": ("claim_recall",),
}
"""The numbers of each task by which arms are compared, in the paper's order of tasks here."""


@dataclass(frozen=True)
class TaskScores:
    """(A, Q) by name of schema.TASK_SCORES and TOKENS, NaN where undefined. `nli` names the model
    of entailment, None where none judged."""

    task: Task
    nli: str | None
    arms: tuple[str, ...]
    values: Mapping[str, Stored]

    @property
    def scores(self) -> tuple[str, ...]:
        """The names of the task's metrics."""
        return schema.TASK_SCORES[self.task]

    def of(self, arm: str, field: str) -> Floats:
        """An arm's (Q,) values of a field."""
        return np.asarray(self.values[field][self.arms.index(arm)], np.float64)

    @property
    def metric(self) -> str:
        """The name of the one number by which ways of choosing are ranked."""
        return self.shown(SCORE[self.task])

    def compared(self, arm: str) -> Floats:
        """An arm's (Q,) values of that number."""
        return self.of(arm, SCORE[self.task])

    def shown(self, field: str) -> str:
        """A metric's name in reports: that of claim recall carries its model."""
        return f"claim_recall[{self.nli or 'none'}]" if field == "claim_recall" else field


def column(task: Task) -> str:
    """The column of a run's rows that holds the metrics of its task."""
    return f"metrics_{task}"


def of_run(run: Finished) -> TaskScores | None:
    """The scores of a finished run; None where its answers are short ones."""
    config = run.manifest["config"]
    answer = AnswerConfig.model_validate(config["answer"])
    if answer.task == SHORT_ANSWER:
        return None
    names = [str(arm["arm"]) for arm in run.arms]
    evaluation = EvaluationConfig.model_validate(config["evaluation"])
    return read(run.parts([column(answer.task)]), names, answer.task, evaluation)


def read(
    parts: Iterable[pa.Table], arms: Sequence[str], task: Task, cfg: EvaluationConfig
) -> TaskScores:
    """The scores in parts that hold the task's column."""
    fields = (*schema.TASK_SCORES[task], *TOKENS)
    found = [by_arm(part[column(task)].combine_chunks(), arms, fields) for part in parts]
    joined = {
        f: np.concatenate([np.empty((len(arms), 0)), *(p[f] for p in found)], 1) for f in fields
    }
    return TaskScores(task, cfg.nli.name if cfg.nli else None, tuple(arms), joined)


def of_plan(plan: Plan, cfg: OfflineIgpConfig, storage: Storage) -> dict[str, Any]:
    """{task: `summarise`} of a plan with finished rows; {} where its answers are short ones."""
    task = cfg.answer.task
    if task == SHORT_ANSWER:
        return {}
    names = [arm.name for arm in build.arms_of(cfg)]
    parts = plans.contexts(plan, storage, [column(task)])
    found = read(parts, names, task, cfg.evaluation)
    return {"task": summarise(found, seed=cfg.run.seed, samples=cfg.evaluation.bootstrap_samples)}


def summarise(found: TaskScores, *, seed: int, samples: int) -> dict[str, Any]:
    """The scores for metrics.json: of each arm every metric's mean with its interval, and mean
    tokens of the evidence; NaN as None."""
    how = {"seed": seed, "samples": samples}
    means = {name: resampled.means([found.values[name]], **how) for name in found.scores}
    return {
        "name": found.task,
        "nli": found.nli,
        "arms": [
            {
                "arm": arm,
                **{found.shown(name): means[name][place] for name in found.scores},
                "context_tokens": resampled.plain(mean(found.of(arm, "context_tokens"))),
            }
            for place, arm in enumerate(found.arms)
        ],
    }


def lines(metrics: Mapping[str, Any]) -> Iterator[str]:
    """The task's numbers for the terminal, of each arm those by which arms are compared; none of a
    run whose answers are short ones."""
    if (task := metrics.get("task")) is None:
        return
    compared = COMPARED[task["name"]]
    for row in task["arms"]:
        shown = [
            f"{name} {_interval(value)}"
            for name, value in row.items()
            if name.partition("[")[0] in compared
        ]
        tokens = row["context_tokens"]
        shown.append(f"context tokens {'-' if tokens is None else format(tokens, '.1f')}")
        yield f"{task['name']}, {row['arm']}: {', '.join(shown)}"


def mean(values_Q: Floats) -> float:
    """Mean of the values that are not NaN; NaN where none is left."""
    defined = values_Q[~np.isnan(values_Q)]
    return float(defined.mean()) if defined.size else float("nan")


def _interval(value: Mapping[str, Any]) -> str:
    if value["value"] is None:
        return "-"
    return f"{value['value']:.3f} [{value['low']:.3f}, {value['high']:.3f}] (n {value['n']})"
