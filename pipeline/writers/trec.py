"""TREC runs "qid Q0 docid rank score tag" and qrels "qid 0 docid rel".

Evaluation tools order a run by its scores, in single precision and with their own rule for ties.
So that they see our order, the written scores fall strictly in float32: one that is not below
its predecessor becomes the next number below it.
"""

from collections.abc import Iterable, Mapping, Sequence

import numpy as np

from pipeline.writers.text import remove, write_text

_LARGEST = float(np.finfo(np.float32).max)

Ranking = Sequence[tuple[str, float | None]]
"""(passage id, score), best first. All scores None: rank alone is known."""


def write_run(path: str, rankings: Iterable[tuple[str, Ranking]], *, tag: str = "winnow") -> None:
    """Writes a run of (question id, ranking), ranks from 1.

    Questions without passages, which a run cannot hold, go to `<path>.empty`, one id a line; the
    file is there only if there are some. ValueError for a score that is not finite or above its
    predecessor, an id that is empty or holds white space, or an id that stands twice.
    """
    lines: list[str] = []
    empty: list[str] = []
    seen: set[str] = set()
    for question_id, ranking in rankings:
        _check_new("question", question_id, seen)
        if not ranking:
            empty.append(f"{question_id}\n")
        lines += _ranked(question_id, ranking, _column("tag", tag))
    write_text(path, "".join(lines))
    if empty:
        write_text(f"{path}.empty", "".join(empty))
    else:
        remove(f"{path}.empty")


def write_qrels(path: str, judged: Iterable[tuple[str, Mapping[str, int]]]) -> None:
    """Writes judgements of (question id, relevance by passage id); ValueError as for runs."""
    lines: list[str] = []
    seen: set[str] = set()
    for question_id, grades in judged:
        _check_new("question", question_id, seen)
        for passage_id, relevance in grades.items():
            lines.append(f"{question_id} 0 {_column('passage', passage_id)} {relevance:d}\n")
    write_text(path, "".join(lines))


def falling(scores: Sequence[float | None]) -> list[np.float32]:
    """Scores that fall strictly in float32, from scores that never rise; without any, minus the
    rank. ValueError for one that is not finite, rises, or is missing among others."""
    if all(score is None for score in scores):
        return [np.float32(-rank) for rank in range(1, len(scores) + 1)]
    made: list[np.float32] = []
    before = np.inf
    for score in scores:
        if score is None or not abs(score) <= _LARGEST:
            raise ValueError(f"score must be a finite number of 32 bits, got {score!r}")
        if score > before:
            raise ValueError(f"scores must not rise down a ranking: {score!r} is after {before!r}")
        before, kept = score, np.float32(score)
        lower = np.nextafter(made[-1], np.float32(-np.inf)) if made else kept
        made.append(min(kept, lower))
    return made


def _ranked(question_id: str, ranking: Ranking, tag: str) -> Iterable[str]:
    seen: set[str] = set()
    scores = falling([score for _, score in ranking])
    for rank, ((passage_id, _), score) in enumerate(zip(ranking, scores, strict=True), 1):
        _check_new("passage", passage_id, seen)
        yield f"{question_id} Q0 {passage_id} {rank} {score!s} {tag}\n"


def _check_new(kind: str, name: str, seen: set[str]) -> None:
    if _column(kind, name) in seen:
        raise ValueError(f"{kind} {name!r} stands twice")
    seen.add(name)


def _column(kind: str, name: str) -> str:
    if len(name.split()) != 1 or name != name.strip():
        raise ValueError(f"{kind} {name!r} cannot stand in a TREC file: empty or with white space")
    return name
