"""The report's summary in words, made of the numbers: it says as plainly what did not help."""

from collections.abc import Iterator, Mapping
from typing import Any

import polars as pl

from pipeline.report.comparisons import BASELINE, COMPARISONS, FIRST, UNGATED
from pipeline.report.passages import HOLDS, IG, RETRIEVER, TRUE
from pipeline.report.task_scores import TaskScores

Row = Mapping[str, Any]
VERDICTS = ("higher", "lower", "not told apart")


def summary(
    arms: pl.DataFrame, tested: Mapping[str, str | None], signals: pl.DataFrame, costs: pl.DataFrame
) -> list[tuple[str, list[str]]]:
    """(data set, sentences about it) of every data set; `tested` names each one's policy."""
    made = []
    for dataset in arms["dataset"].unique(maintain_order=True):
        own = arms.filter(pl.col("dataset") == dataset)
        sentences = [
            *_tested(own, tested[dataset]),
            *_counted(own),
            *_cost(costs.filter(pl.col("dataset") == dataset), tested[dataset]),
            *_seen(signals.filter(pl.col("dataset") == dataset)),
        ]
        made.append((dataset, sentences))
    return made


def of_task(scores: TaskScores | None) -> list[str]:
    """What to know of a data set's other sentences where its answers are those of an ALCE task."""
    if scores is None:
        return []
    return [
        f"The ranking goes by {scores.metric}. What follows here is of F1, which takes the whole "
        "answer for a short one: table II and the arms on the ALCE tasks have the task's own score."
    ]


def cautions(arms: pl.DataFrame, ranked: pl.DataFrame, by_generator: pl.DataFrame) -> list[str]:
    """What holds for every number of the report, whose differences stand in these frames."""
    looked = _differences(arms, ranked, by_generator)
    return [
        f"{looked} differences in F1 (in the ranking, of a task's score) are shown without a "
        "correction for their number: about one in twenty 95% intervals leaves out 0 where nothing "
        "differs.",
        "An NTE above 1 says little alone, since any shortening of the prompt raises it; it also "
        "leaves out what the selection costs.",
        "Tp is not portable across models, templates, K, MT, dtypes and data sets.",
    ]


def _differences(arms: pl.DataFrame, ranked: pl.DataFrame, by_generator: pl.DataFrame) -> int:
    """How many there are, each once: a ranked row of one setting repeats those of its arm."""
    others = arms.filter(pl.col("arm").ne_missing(pl.col("baseline")))
    fitted = ranked.filter(pl.col("settings") > 1)
    shown = (
        (others, (*COMPARISONS, UNGATED)),
        (fitted, COMPARISONS),
        (ranked, (FIRST,)),
        (by_generator, (BASELINE,)),
    )
    return sum(int(frame[column].count()) for frame, columns in shown for column in columns)


def verdict(low: float, high: float) -> str:
    """What an interval of a difference says."""
    return VERDICTS[0] if low > 0 else VERDICTS[1] if high < 0 else VERDICTS[2]


def _tested(own: pl.DataFrame, name: str | None) -> Iterator[str]:
    if name is None:
        yield "No arm selects by anything but retrieval order."
        return
    (row,) = own.filter(pl.col("arm") == name).to_dicts()
    if row["f1"] is None:
        yield f"The policy under test, {name}: F1 is undefined, no question has golden answers."
        return
    yield (
        f"The policy under test, {name}: F1 {interval(row, 'f1')} over n = {row['f1_n']} at "
        f"{row['tk']:.0f} prompt tokens; {row['empty_share']:.0%} of its questions have no "
        "admitted passage."
    )
    for key, other in COMPARISONS.items():
        if row[key] is not None:
            told = verdict(row[f"{key}_low"], row[f"{key}_high"])
            of = "from" if told == "not told apart" else "than"
            yield f"Its F1 is {told} {of} that of {other}: {interval(row, key, '+.3f')}."


def _counted(own: pl.DataFrame) -> Iterator[str]:
    """How all pruning arms stand against each thing that they are compared with."""
    pruning = own.filter((pl.col("kind") == "policy") & pl.col("prunes"))
    for key, other in COMPARISONS.items():
        rows = pruning.filter(pl.col(key).is_not_null()).to_dicts()
        if len(rows) < 2:
            continue
        told = [verdict(row[f"{key}_low"], row[f"{key}_high"]) for row in rows]
        counts = ", ".join(f"{told.count(word)} {word}" for word in VERDICTS)
        lost = "" if "higher" in told else " Pruning did not beat it anywhere here."
        yield f"Of {len(rows)} arms that prune, against {other}: {counts}.{lost}"


def _cost(own: pl.DataFrame, name: str | None) -> Iterator[str]:
    rows = [] if name is None else own.filter(pl.col("arm") == name).to_dicts()
    if not rows or rows[0]["baseline_tk"] is None:
        return
    (row,) = rows
    saved, paid, uses = row["saved_tokens"], row["selection_tokens"], row["break_even_uses"]
    if uses == float("inf"):
        yield (
            f"Choosing its evidence takes {paid:.0f} model tokens a question and saves no prompt "
            "token."
        )
        return
    plainly = "More than it saves" if paid > saved else "Less than it saves"
    yield (
        f"Choosing its evidence takes {paid:.0f} model tokens a question and shortens the "
        f"prompt by {saved:.0f}. {plainly}: the context must be used {uses:.1f} times to repay it."
    )


def _seen(own: pl.DataFrame) -> Iterator[str]:
    rows = {(row["target"], row["signal"]): row for row in own.to_dicts()}
    for target in (HOLDS, TRUE):
        row = rows.get((target, IG))
        if row is None or row["auc"] is None:
            continue
        chance = (
            ""
            if row["auc_low"] is None or not row["auc_low"] <= 0.5 <= row["auc_high"]
            else (", which is not told apart from chance (0.5)")
        )
        beside = rows.get((target, RETRIEVER))
        against = (
            ""
            if beside is None or beside["auc"] is None
            else (f"; retrieval's own score has {interval(beside, 'auc')}")
        )
        aim = (
            "a golden answer in a passage"
            if target == HOLDS
            else "a correct passage from misinformation"
        )
        yield f"IG tells {aim} with AUC {interval(row, 'auc')}{chance}{against}."


def interval(row: Row, key: str, how: str = ".3f") -> str:
    """A mean of a row with its interval."""
    low, high = row[f"{key}_low"], row[f"{key}_high"]
    if low is None or high is None:
        return f"{row[key]:{how}}"
    return f"{row[key]:{how}} [{low:{how}}, {high:{how}}]"
