"""One arm's evidence in a finished run as rows for the writers: rankings, judgements, contexts."""

from collections.abc import Iterator
from typing import Any

import polars as pl

from pipeline.contexts import partitions
from pipeline.readers import InputError
from pipeline.report.finished import Finished
from pipeline.schema import CONTEXT

Row = dict[str, Any]
EVIDENCE: dict[str, tuple[pl.DataType, str, str]] = {
    "question_id": (pl.String(), "id of the question", "text"),
    "question": (pl.String(), "the question", "text"),
    "arm": (pl.String(), "the exported arm", "text"),
    "rank": (pl.Int64(), "place in the prompt, from 1", "rank"),
    "position": (pl.Int64(), "place in retrieval order, from 0", "position"),
    "passage_id": (pl.String(), "id of the passage", "text"),
    "title": (pl.String(), "its title", "text"),
    "retriever_score": (
        pl.Float64(),
        "score by which the retriever ranked it, not the arm's signal; empty: none was given",
        "the retriever's",
    ),
    "tokens": (pl.Int64(), "of the passage as the prompt shows it", "tokens"),
    "text": (pl.String(), "what the prompt shows of it", "text"),
}
"""The columns of `evidence`: type, meaning and unit."""


def check_arm(run: Finished, arm: str) -> None:
    """InputError unless the run's rows hold the evidence of such an arm.

    Those of the oracle's hold all its trials, one a candidate.
    """
    known = [str(a["arm"]) for a in run.arms if a["kind"] != "oracle"]
    if arm not in known:
        raise InputError(
            f"arm {arm!r}: {run.storage.root} keeps no evidence of it; allowed: {', '.join(known)}"
        )


def questions(run: Finished) -> Iterator[Row]:
    """Every question with its golden answers and metadata."""
    return _rows(run, ("question_id", "question", "golden_answers", "metadata"))


def contexts(run: Finished, arm: str) -> Iterator[tuple[str, str, list[Row]]]:
    """(question id, question, evidence in prompt order) of every question.

    A piece of evidence has position, tokens, passage_id, title, text and retrieval's score, and
    says whether it is a `sentence` of the passage.
    """
    for row in _rows(run, ("question_id", "question", "candidates", "arms")):
        (chosen,) = (made for made in row["arms"] if made["arm"] == arm)
        pieces = []
        for piece in chosen["evidence"]:
            candidate = row["candidates"][piece["position"]]
            sentence = piece["text"] is not None
            text = piece["text"] if sentence else candidate["text"]
            pieces.append({**candidate, **piece, "text": text, "sentence": sentence})
        yield row["question_id"], row["question"], pieces


def rendered(run: Finished, arm: str) -> Iterator[Row]:
    """The contexts as their partitions hold them; InputError where the run has none of the arm."""
    policy = str(run.arms[0]["arm"])
    if CONTEXT.name not in run.columns or arm != policy:
        known = f"; allowed: {policy}" if CONTEXT.name in run.columns else ""
        raise InputError(
            f"{run.storage.root}: holds no rendered contexts of arm {arm!r}, as runs of "
            f"jobs/precompute_contexts.py do of their policy{known}; without them: "
            "files=[questions,cache]"
        )
    for part in run.parts(("question_id", "question", CONTEXT.name)):
        yield from partitions.flat(part).to_pylist()


def rankings(run: Finished, arm: str) -> Iterator[tuple[str, list[tuple[str, float | None]]]]:
    """(question id, passages in prompt order, each at its first sentence where it has several).
    They have no score: the rank alone is the arm's."""
    for question_id, _, pieces in contexts(run, arm):
        yield question_id, [(name, None) for name in dict.fromkeys(p["passage_id"] for p in pieces)]


def judgements(run: Finished) -> Iterator[tuple[str, dict[str, int]]]:
    """(question id, grade by passage id) of the questions that are judged; labels are no grades.

    InputError where none is.
    """
    judged = False
    for row in _rows(run, ("question_id", "judgements")):
        grades = {
            judgement["passage_id"]: judgement["relevance"]
            for judgement in row["judgements"] or ()
            if judgement["relevance"] is not None
        }
        if grades:
            judged = True
            yield row["question_id"], grades
    if not judged:
        raise InputError(
            f"{run.storage.root}: no question has graded judgements, since the run had no "
            "input.qrels: give files without qrels (files=[run])"
        )


def evidence(run: Finished, arm: str) -> pl.DataFrame:
    """A row a passage of the arm's evidence; rank from 1, position from 0 in retrieval order."""
    rows = [
        {
            "question_id": question_id,
            "question": question,
            "arm": arm,
            "rank": rank,
            "retriever_score": piece["score"],
            **{name: piece[name] for name in ("position", "passage_id", "title", "tokens", "text")},
        }
        for question_id, question, pieces in contexts(run, arm)
        for rank, piece in enumerate(pieces, 1)
    ]
    return pl.DataFrame(rows, schema={name: kind for name, (kind, *_) in EVIDENCE.items()})


def _rows(run: Finished, columns: tuple[str, ...]) -> Iterator[Row]:
    for part in run.parts(columns):
        yield from part.to_pylist()
