"""The rows of an input, joined from its files: questions, given candidates with their texts, and
judgements.

A judgement joins what is said of a passage in two places: its grade in the qrels, and in a
labelled pool its label and the answer that it supports. Questions stream; what is looked up by
id, the lists, the texts that they name and the qrels, is held in memory.
"""

import hashlib
import heapq
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from pipeline import readers, schema
from pipeline.config import InputConfig
from pipeline.engines.base import split_contents
from pipeline.readers import BadLine, InputError

STAGE = "input"
_DEAD, _CANDIDATES, _JUDGEMENTS = schema.DEAD.name, schema.CANDIDATES.name, schema.JUDGEMENTS.name

Row = dict[str, Any]
Grades = Mapping[str, Mapping[str, int]]  # question id -> passage id -> relevance


def files(cfg: InputConfig) -> dict[str, list[str]]:
    """Every file that is read, by its part in the input."""
    given: dict[str, list[str]] = {
        "questions": readers.question_files(cfg.questions, cfg.format),
        "candidates": [] if cfg.candidates is None else readers.candidate_files(cfg.candidates),
        "corpus": [cfg.corpus] if cfg.needs_corpus and cfg.corpus is not None else [],
        "qrels": [] if cfg.qrels is None else [cfg.qrels],
    }
    return {part: paths for part, paths in given.items() if paths}


def rows(cfg: InputConfig, seed: int) -> Iterator[Row]:
    """Rows of the source schema with judgements, `candidates` where given, and `dead`.

    In the file's order. Candidates that the retriever is to rank stand in `pool`, whole; others
    are ordered and cut as `cfg` says. InputError where a question has no list, a candidate no
    text, or the qrels judge no question.
    """
    grades = None if cfg.qrels is None else _grades(cfg.qrels)
    found = _questions(cfg, grades)
    if cfg.sample is not None:
        found = _sampled(found, seed, cfg.sample)
    contents: Mapping[str, str] = {}
    if cfg.candidates is not None:
        held = list(found)
        lists = _lists(held, cfg.candidates)
        found = ({**row, _CANDIDATES: lists.get(row["question_id"])} for row in held)
        if cfg.needs_corpus and cfg.corpus is not None:
            kept = (_cut(entries, id, cfg, seed) for id, entries in lists.items())
            contents = _contents(kept, cfg.corpus, cfg.candidates)
    for row in found:
        yield row if row[_DEAD] is not None else _complete(row, cfg, seed, grades or {}, contents)


def _questions(cfg: InputConfig, grades: Grades | None) -> Iterator[Row]:
    """The questions that the split and, of BEIR, the qrels keep, and malformed lines as dead."""
    bad: list[BadLine] = []
    on_bad = bad.append if cfg.on_bad_row == "dead_letter" else readers.refuse
    judged = seen = 0
    for row in readers.questions(cfg.questions, on_bad, format=cfg.format):
        yield from map(_dead_row, bad)
        bad.clear()
        graded = grades is None or row["question_id"] in grades
        seen, judged = seen + 1, judged + graded
        if (graded or cfg.format != "beir") and _kept(row, cfg):
            metadata = json.dumps(row["metadata"], ensure_ascii=False)
            yield {**row, "metadata": metadata, _DEAD: None}
    yield from map(_dead_row, bad)
    if seen and not judged:
        raise InputError(f"{cfg.qrels}: judges no question of {cfg.questions}")


def _kept(row: Row, cfg: InputConfig) -> bool:
    """Whether the split and the fold keep a question."""
    if cfg.split is not None and row["metadata"].get("split") != cfg.split:
        return False
    if cfg.fold is None:
        return True
    part, parts = cfg.fold
    digest = hashlib.sha256(f"fold:{row['question_id']}".encode()).digest()
    return int.from_bytes(digest[:8], "big") % parts == part - 1


def _dead_row(bad: BadLine) -> Row:
    """A malformed line as a row that no stage will see; its id is its place."""
    return {
        "question_id": bad.place,
        "question": None,
        "golden_answers": None,
        "metadata": None,
        _DEAD: {"stage": STAGE, "reason": str(bad)},
    }


def _sampled(found: Iterator[Row], seed: int, size: int) -> Iterator[Row]:
    """A seeded sample of the good rows, and every dead one, in the file's order."""
    dead: list[tuple[int, Row]] = []

    def keyed() -> Iterator[tuple[bytes, int, Row]]:
        for i, row in enumerate(found):
            if row[_DEAD] is None:
                yield _key(seed, row["question_id"]), i, row
            else:
                dead.append((i, row))

    chosen = heapq.nsmallest(size, keyed(), key=lambda entry: entry[:2])
    kept = [*((i, row) for _, i, row in chosen), *dead]
    return (row for _, row in sorted(kept, key=lambda entry: entry[0]))


def _key(seed: int, *ids: str) -> bytes:
    return hashlib.sha256(":".join([str(seed), *ids]).encode()).digest()


def _grades(path: str) -> Grades:
    found: dict[str, dict[str, int]] = {}
    for row in readers.qrels(path):
        found.setdefault(row["question_id"], {})[row["passage_id"]] = row["relevance"]
    return found


def _lists(held: Sequence[Row], path: str) -> Mapping[str, list[Row]]:
    """The given candidates by question id; InputError where a living question has none.

    FlashRAG's cache knows questions by their text, the other files by their id.
    """
    living = [row for row in held if row[_DEAD] is None]
    ids = {row["question_id"] for row in living}
    texts = {row["question"] for row in living}
    by_id: dict[str, list[Row]] = {}
    by_text: dict[str, list[Row]] = {}
    for row in readers.candidates(path):
        if "question_id" in row and row["question_id"] in ids:
            by_id[row["question_id"]] = row["candidates"]
        elif "question_id" not in row and row["question"] in texts:
            by_text[row["question"]] = row["candidates"]
    for row in living:
        if row["question"] in by_text:
            by_id[row["question_id"]] = by_text[row["question"]]
    if missing := sorted(ids - by_id.keys()):
        raise InputError(f"{path}: has no line for question {missing[0]!r}")
    return by_id


def _cut(entries: Sequence[Row], question_id: str, cfg: InputConfig, seed: int) -> Sequence[Row]:
    """The given candidates that a row keeps, in order; a pool for the retriever stays whole."""
    if cfg.ranks_pool:
        return entries
    if cfg.order == "random":  # by passage id: nothing of the file's order is left
        entries = sorted(entries, key=lambda e: _key(seed, question_id, e["passage_id"]))
    return entries[: cfg.max_candidates]


def _contents(lists: Iterable[Sequence[Row]], corpus: str, candidates: str) -> Mapping[str, str]:
    """Texts of the candidates that are kept; InputError where the corpus lacks one."""
    needed = {entry["passage_id"] for entries in lists for entry in entries}
    found = {
        row["passage_id"]: row["contents"]
        for row in readers.passages(corpus)
        if row["passage_id"] in needed
    }
    if absent := sorted(needed - found.keys()):
        raise InputError(f"{corpus}: has no passage {absent[0]!r}, named in {candidates}")
    return found


def _complete(
    row: Row, cfg: InputConfig, seed: int, grades: Grades, contents: Mapping[str, str]
) -> Row:
    """A living row with candidates or pool as passages, and judgements of all that was given."""
    entries: Sequence[Row] = row.get(_CANDIDATES) or []
    of_question = grades.get(row["question_id"], {})
    judgements = _judgements(row.get(_JUDGEMENTS) or [], entries, of_question)
    made = {**row, _JUDGEMENTS: judgements or None}
    if cfg.has_candidates:
        kept = _cut(entries, row["question_id"], cfg, seed)
        column = schema.POOL.name if cfg.ranks_pool else _CANDIDATES
        made[column] = [_candidate(entry, contents) for entry in kept]
    return made


def _judgements(
    given: Sequence[Row], entries: Sequence[Row], grades: Mapping[str, int]
) -> list[Row]:
    """One judgement for each passage of which something is known: those that the input brings,
    then labelled candidates, then the qrels; a later word on a passage replaces an earlier."""
    found: dict[str, Row] = {}

    def add(passage_id: str, **known: Any) -> None:
        blank = {"passage_id": passage_id, "relevance": None, "label": None, "answer": None}
        said = {key: value for key, value in known.items() if value is not None}
        found[passage_id] = found.get(passage_id, blank) | said

    for row in given:
        add(**row)
    for entry in entries:
        if entry["label"] is not None or entry["answer"] is not None:
            add(entry["passage_id"], label=entry["label"], answer=entry["answer"])
    for passage_id, relevance in grades.items():
        add(passage_id, relevance=relevance)
    return list(found.values())


def _candidate(entry: Row, contents: Mapping[str, str]) -> Row:
    passage_id = entry["passage_id"]
    whole = contents[passage_id] if entry["contents"] is None else entry["contents"]
    title, text = split_contents(whole)
    return {"passage_id": passage_id, "title": title, "text": text, "score": entry["score"]}
