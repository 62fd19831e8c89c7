"""TREC runs "qid Q0 docid rank score tag", and judgements: TREC qrels "qid 0 docid rel" or BEIR's
tab-separated file with the header query-id, corpus-id, score.

A run cannot name a question for which nothing was found, so such questions stand one a line in a
list beside it, `<run>.empty`.
"""

import math
from collections.abc import Callable, Iterator

import pyarrow.fs as pafs

from pipeline.paths import locate
from pipeline.readers.lines import InputError, Place, Row, checked, decoded, lines, refuse

_BEIR = "query-id\tcorpus-id\tscore"


def side_list(path: str) -> str:
    """The name of the list of a run's questions without passages."""
    return f"{path}.empty"


def files(path: str) -> list[str]:
    """A run's file, and its side list where there is one."""
    filesystem, name = locate(side_list(path))
    there = filesystem.get_file_info(name).type != pafs.FileType.NotFound
    return [path, side_list(path)] if there else [path]


def run(path: str) -> Iterator[Row]:
    """Rows {question_id, candidates} in the order of their scores, ties in that of their ranks.

    Questions come in the file's order, those of the side list after them. InputError where a
    passage stands twice for a question, or a question of the side list has passages.
    """
    lists: dict[str, list[Row]] = {}
    for row in checked(lines(path), _ranked, "pair", refuse):
        lists.setdefault(row["pair"][0], []).append(row)
    for question_id, rows in lists.items():
        ranked = sorted(rows, key=lambda row: (-row["score"], row["rank"]))
        yield {"question_id": question_id, "candidates": [_candidate(row) for row in ranked]}
    for file in files(path)[1:]:
        for row in checked(lines(file), _sole, "question_id", refuse):
            if row["question_id"] in lists:
                raise InputError(f"{file}: names {row['question_id']!r}, which has passages")
            yield {**row, "candidates": []}


def qrels(path: str) -> Iterator[Row]:
    """Rows {question_id, passage_id, relevance: int}, in the file's order; a pair stands once."""
    for row in checked(*_judgements(path), "pair", refuse):
        question_id, passage_id = row["pair"]
        relevance = row["relevance"]
        yield {"question_id": question_id, "passage_id": passage_id, "relevance": relevance}


def _judgements(path: str) -> tuple[Iterator[tuple[Place, bytes]], Callable[[bytes], Row]]:
    """The lines that hold judgements, and how to read them, by the file's first line."""
    found = lines(path)
    place, first = next(found, (Place(path, 1), b""))
    if first.strip() == _BEIR.encode():
        return found, _beir_judgement
    if len(first.split()) == 4:
        return lines(path), _trec_judgement
    raise InputError(
        f"{path}:{place.line}: expected BEIR's header (query-id, corpus-id, score with tabs "
        f"between) or TREC's four columns (qid 0 docid rel), got {first[:80]!r}"
    )


def _ranked(raw: bytes) -> Row:
    question_id, _, passage_id, rank, score, _ = _columns(raw, "qid Q0 docid rank score tag")
    return {
        "pair": (question_id, passage_id),
        "rank": _whole(rank, "rank"),
        "score": _number(score),
    }


def _trec_judgement(raw: bytes) -> Row:
    question_id, _, passage_id, relevance = _columns(raw, "qid 0 docid rel")
    return {"pair": (question_id, passage_id), "relevance": _whole(relevance, "relevance")}


def _beir_judgement(raw: bytes) -> Row:
    cells = decoded(raw).strip("\r\n").split("\t")
    if len(cells) != 3 or not all(cell.strip() for cell in cells):
        raise ValueError(f"expected query-id, corpus-id, score with tabs between, got {cells!r}")
    return {"pair": (cells[0], cells[1]), "relevance": _whole(cells[2], "score")}


def _sole(raw: bytes) -> Row:
    (question_id,) = _columns(raw, "qid")
    return {"question_id": question_id}


def _columns(raw: bytes, names: str) -> list[str]:
    cells = decoded(raw).split()
    if len(cells) != len(names.split()):
        raise ValueError(f"expected the columns {names}, got {len(cells)} of them")
    return cells


def _whole(cell: str, name: str) -> int:
    try:
        return int(cell)
    except ValueError:
        raise ValueError(f"{name} must be a whole number, got {cell!r}") from None


def _number(cell: str) -> float:
    try:
        found = float(cell)
    except ValueError:
        found = math.nan
    if not math.isfinite(found):
        raise ValueError(f"score must be a number, got {cell!r}")
    return found


def _candidate(row: Row) -> Row:
    return {
        "passage_id": row["pair"][1],
        "score": row["score"],
        "label": None,
        "answer": None,
        "contents": None,
    }
