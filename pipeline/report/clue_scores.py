"""What CompSelect's tables ask of a run with arms over clues: compression, the errors that each
part passes on to the next, and answers where retrieval failed.

Retrieval is reliable where a passage that was split into sentences holds a golden answer as whole
words. Shapes: A arms, C arms over clues, Q questions.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import polars as pl
import pyarrow as pa
from numpy.typing import NDArray

from pipeline import schema
from pipeline.config import SelectionConfig
from pipeline.core import cost
from pipeline.core.answers import holds_answer
from pipeline.report import measured, resampled
from pipeline.report.finished import Arm, Finished
from pipeline.stages import clues

Floats = NDArray[np.float64]
CASCADE = ("recall_1", "hit_2_at_1", "recall_3")
"""Of the extractor, the reranker and the truncator, by the names of CompSelect's table 6."""
QUALITY = ("sub_em", "f1")
_READ = (
    *("question_id", "golden_answers", "candidates.list.element.text"),
    *(schema.SENTENCES.name, schema.SENTENCE_SCORES.name, "clues.named", "metrics"),
    *("arms.list.element.arm", "arms.list.element.evidence", schema.CANDIDATE_TOKENS.name),
)


@dataclass(frozen=True)
class ClueScores:
    """Of one run: `reliable_Q` is 1 or 0, NaN without golden answers; `quality` holds (A, Q) by
    QUALITY; `cascade` holds (C, Q) by CASCADE, NaN where retrieval is not reliable."""

    arms: tuple[str, ...]
    over_clues: tuple[str, ...]
    reliable_Q: Floats
    cr_AQ: Floats
    quality: Mapping[str, Floats]
    cascade: Mapping[str, Floats]


def of_run(run: Finished) -> ClueScores | None:
    """The scores of a run; None where it split no passage into sentences."""
    if schema.SENTENCES.name not in run.columns:
        return None
    names = [str(arm["arm"]) for arm in run.arms]
    policies = _policies(run.arms)
    seed = int(run.manifest["config"]["run"]["seed"])
    nested = [f"{name}.keep" for name in run.columns if name.startswith("cut_")]
    nested += [f"{name}.gains" for name in run.columns if name.startswith("gains_")]
    parts = [
        _part(part, names, policies, seed) for part in run.parts([*_READ, *nested]) if len(part)
    ]
    joined = {name: np.concatenate([part[name] for part in parts], axis=-1) for name in parts[0]}
    return ClueScores(
        arms=tuple(names),
        over_clues=tuple(policies),
        reliable_Q=joined["reliable"],
        cr_AQ=joined["cr"],
        quality={name: joined[name] for name in QUALITY},
        cascade={name: joined[name] for name in CASCADE},
    )


def _part(
    part: pa.Table, arms: Sequence[str], policies: Mapping[str, SelectionConfig], seed: int
) -> dict[str, Floats]:
    """The arrays of ClueScores over one shard's rows."""
    found = measured.by_arm(part["metrics"].combine_chunks(), arms, QUALITY)
    rows = [_row(row, arms, policies, seed) for row in part.drop(["metrics"]).to_pylist()]
    made = {name: np.array([row[name] for row in rows], np.float64).T for name in rows[0]}
    return made | {name: np.asarray(found[name], np.float64) for name in QUALITY}


def _policies(arms: Sequence[Arm]) -> dict[str, SelectionConfig]:
    """The policies over clues that differ in more than the budget, by the first arm of each."""
    made: dict[str, SelectionConfig] = {}
    for arm in arms:
        policy = arm["policy"]
        if arm["kind"] == "policy" and policy["selector"] == "clues":
            free = SelectionConfig.model_validate({**policy, "top_m": 1, "token_guard": None})
            if free not in made.values():
                made[str(arm["arm"])] = free
    return made


def _row(
    row: Mapping[str, Any],
    arms: Sequence[str],
    policies: Mapping[str, SelectionConfig],
    seed: int,
) -> dict[str, Any]:
    golds, sentences = row["golden_answers"], row["sentences"]
    shown = {sentence["position"] for sentence in sentences}
    held = [holds_answer(row["candidates"][position]["text"], golds) for position in shown]
    reliable = max(held, default=0.0 if golds else math.nan)
    holds = [holds_answer(sentence["text"], golds) == 1 for sentence in sentences]
    steps = [
        cascade(row, holds, policy, seed=seed) if reliable == 1 else [math.nan] * len(CASCADE)
        for policy in policies.values()
    ]
    by_step = zip(*steps, strict=True) if steps else [()] * len(CASCADE)
    return {
        "reliable": reliable,
        "cr": _compression(row, arms),
        **dict(zip(CASCADE, map(list, by_step), strict=True)),
    }


def cascade(
    row: Mapping[str, Any], holds: Sequence[bool], policy: SelectionConfig, *, seed: int
) -> list[float]:
    """CASCADE of one question: whether the list of a policy holds an answer, whether the first of
    its order does, whether what is left after the cut and Tp does. `holds` is by sentence."""
    own = clues.ordered(policy)
    listed = clues.listed(row, own.of)
    first = [place for place, _ in clues.in_order(row, own)][:1]
    kept = clues.kept(row, policy, seed=seed)
    return [float(any(holds[place] for place in places)) for places in (listed, first, kept)]


def _compression(row: Mapping[str, Any], arms: Sequence[str]) -> list[float]:
    """CR of every arm: the tokens of all candidates over those of its evidence. NaN for an arm that
    the row does not hold, as the oracle, whose trials it holds."""
    original = sum(row[schema.CANDIDATE_TOKENS.name])
    tokens = {a["arm"]: sum(piece["tokens"] for piece in a["evidence"]) for a in row["arms"]}
    return [
        cost.compression_ratio(original, tokens[arm]) if arm in tokens else math.nan for arm in arms
    ]


def compression(run: Finished, found: ClueScores, *, seed: int, samples: int) -> pl.DataFrame:
    """A row an arm: SubEM, F1, CR, and the seconds a question that its own stages took.

    CR is undefined where the evidence is empty. Seconds are those of the ledger over its rows.
    """
    how = {"seed": seed, "samples": samples}
    tables = {**found.quality, "cr": found.cr_AQ}
    columns = {name: resampled.means([table], **how) for name, table in tables.items()}
    ledger = run.metrics.get("ledger", {})
    rows = []
    for place, arm in enumerate(run.arms):
        spent = [ledger[stage] for stage in arm["stages"] if stage in ledger]
        seconds = sum(one["seconds"] / one["rows"] for one in spent if one["rows"])
        row: dict[str, Any] = {"dataset": run.dataset, "arm": arm["arm"]}
        row["selection_seconds"] = seconds if len(spent) == len(arm["stages"]) else None
        for name, means in columns.items():
            row |= resampled.columns(name, means[place])
        rows.append(row)
    return pl.DataFrame(rows, schema=_schema(*tables) | {"selection_seconds": pl.Float64()})


def cascades(run: Finished, found: ClueScores, *, seed: int, samples: int) -> pl.DataFrame:
    """A row a policy over clues: CASCADE over the questions whose passages hold an answer."""
    if not found.over_clues:
        return pl.DataFrame(schema=_schema(*CASCADE))
    means = {
        name: resampled.means([table], seed=seed, samples=samples)
        for name, table in found.cascade.items()
    }
    rows = []
    for place, arm in enumerate(found.over_clues):
        row: dict[str, Any] = {"dataset": run.dataset, "arm": arm}
        for name in CASCADE:
            row |= resampled.columns(name, means[name][place])
        rows.append(row)
    return pl.DataFrame(rows, schema=_schema(*CASCADE))


def unreliable(run: Finished, found: ClueScores, *, seed: int, samples: int) -> pl.DataFrame:
    """A row an arm: SubEM and F1 over the questions whose passages hold no golden answer, and F1
    over the others; none where retrieval never failed."""
    failed_Q = found.reliable_Q == 0
    shape = _schema(*QUALITY, "f1_reliable")
    if not failed_Q.any():
        return pl.DataFrame(schema=shape)
    tables = {name: np.where(failed_Q, table, np.nan) for name, table in found.quality.items()}
    tables["f1_reliable"] = np.where(found.reliable_Q == 1, found.quality["f1"], np.nan)
    means = {n: resampled.means([t], seed=seed, samples=samples) for n, t in tables.items()}
    rows = []
    for place, arm in enumerate(found.arms):
        row: dict[str, Any] = {"dataset": run.dataset, "arm": arm}
        for name, own in means.items():
            row |= resampled.columns(name, own[place])
        rows.append(row)
    return pl.DataFrame(rows, schema=shape)


def _schema(*means: str) -> dict[str, Any]:
    texts: dict[str, Any] = dict.fromkeys(("dataset", "arm"), pl.String())
    return texts | resampled.schema(*means)
