"""The sections on arms over clues: compression, the cascade of errors, unreliable retrieval."""

from collections.abc import Iterator, Sequence

import polars as pl

from pipeline.report import clue_scores
from pipeline.report.finished import Finished
from pipeline.report.html import Section
from pipeline.report.sheets import Sheet, count, mean, number
from pipeline.report.tables import ARM, DATASET, filled

SHARE = "share, 0 to 1"


def of_clues(runs: Sequence[Finished], *, seed: int, samples: int) -> Iterator[Section]:
    """Nothing where no run has an arm over clues."""
    found = [(run, scores) for run in runs if (scores := clue_scores.of_run(run)) is not None]
    if not found:
        return
    how = {"seed": seed, "samples": samples}
    frames = [
        pl.concat([make(run, scores, **how) for run, scores in found])
        for make in (clue_scores.compression, clue_scores.cascades, clue_scores.unreliable)
    ]
    sheets = [*filled([compression(frames[0]), cascade(frames[1])]), unreliable(frames[2])]
    yield Section("clues", "Clues: compression, cascade and unreliable retrieval", sheets)


def compression(frame: pl.DataFrame) -> Sheet:
    """CompSelect's main table, a row an arm."""
    return Sheet(
        name="compression",
        title="Compression",
        note="CR: tokens of all the question's candidates over those of the arm's evidence, mean "
        "over the questions that have evidence, by the generator's tokenizer; undefined for "
        "the oracle, since rows do not keep which passage was its best; retrieval order at "
        "the largest M is the full content. Selection seconds: what the arm's own stages took, a "
        "question, in this run's batches: a share of throughput and no one's latency. A part that "
        "other runs made counts with the seconds of its making.",
        columns=[
            DATASET,
            ARM,
            mean("SubEM", "sub_em"),
            mean("F1", "f1"),
            mean("CR", "cr", ".2f"),
            number("selection seconds", "selection_seconds", ".4f"),
            count("n", "cr_n", "cr_undefined"),
        ],
        frame=frame,
        meanings={
            "cr": ("tokens of all candidates over those of the evidence", "ratio"),
            "selection_seconds": ("of the arm's durable stages, a question", "seconds"),
        },
    )


def cascade(frame: pl.DataFrame) -> Sheet:
    """CompSelect's table 6."""
    return Sheet(
        name="cascade",
        title="Cascade of errors",
        note="Over the questions of which a passage that was split holds a golden answer as whole "
        "words. Recall-1: a sentence of the extractor's list holds it; Hit-2@1: the first of the "
        "ordered list does; Recall-3: one that is left after the cut and Tp, before the budget. "
        "Recall-1 of an arm without extractor is below 1 where an answer runs over two sentences.",
        columns=[
            DATASET,
            ARM,
            mean("Recall-1", "recall_1"),
            mean("Hit-2@1", "hit_2_at_1"),
            mean("Recall-3", "recall_3"),
            count("n", "recall_1_n"),
        ],
        frame=frame,
        meanings={
            "recall_1": ("the extractor's list holds a golden answer", SHARE),
            "hit_2_at_1": ("the first of the ordered list holds one", SHARE),
            "recall_3": ("what is left after the cut holds one", SHARE),
        },
    )


def unreliable(frame: pl.DataFrame) -> Sheet:
    """CompSelect's table 7; without rows it says why."""
    none = " No question qualifies: of each with golden answers a passage holds one."
    return Sheet(
        name="unreliable",
        title="Unreliable retrieval",
        note="SubEM and F1 over the questions of which no passage that was split holds a golden "
        "answer, and F1 over the others. What an arm shows there can only mislead, so an arm that "
        "keeps nothing should do no worse than no evidence." + none * frame.is_empty(),
        columns=[
            DATASET,
            ARM,
            mean("SubEM", "sub_em"),
            mean("F1", "f1"),
            mean("F1, reliable", "f1_reliable"),
            count("n", "f1_n"),
            count("n, reliable", "f1_reliable_n"),
        ],
        frame=frame,
        meanings={"f1_reliable": ("F1 where a passage holds a golden answer", SHARE)},
    )
