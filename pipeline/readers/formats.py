"""Which reader reads what: questions by the data set's format, everything else by its file.

Every function takes a local path or a URI, yields rows as they are read, and refuses what it
cannot use with InputError.
"""

from collections.abc import Callable, Iterator

from pipeline.config.run import DataFormat, is_cache, is_table
from pipeline.readers import alce, beir, dpr, fields, flashrag, lists, tables, trec
from pipeline.readers.lines import (
    OnBad,
    Row,
    checked,
    first_byte,
    lines,
    of_json,
    refuse,
)

QUESTIONS: dict[DataFormat, Callable[[str, OnBad], Iterator[Row]]] = {
    "flashrag": flashrag.questions,
    "beir": beir.questions,
    "dpr": dpr.questions,
    "alce": alce.questions,
    "parquet": tables.questions,
    "huggingface": tables.questions,
}


def questions(
    path: str, on_bad: OnBad = refuse, *, format: DataFormat = "flashrag"
) -> Iterator[Row]:
    """Rows {question_id, question, golden_answers, metadata: dict}; ids are unique.

    DPR and ALCE add `candidates`, tables `judgements` where they have them.
    """
    return QUESTIONS[format](path, on_bad)


def question_files(path: str, format: DataFormat) -> list[str]:
    """The files that `questions` reads."""
    if format == "beir":
        return [beir.queries_file(path)]
    return tables.files(path) if format == "parquet" else [path]


def passages(path: str) -> Iterator[Row]:
    """Rows {passage_id, contents} of a corpus; ids are unique.

    JSON Lines of FlashRAG {id, contents | text} or BEIR {_id, title, text}, psgs_w100.tsv, or a
    table in Parquet.
    """
    if path.removesuffix(".gz").endswith(".tsv"):
        return dpr.passages(path)
    if path.endswith(".parquet"):
        return tables.passages(path)
    return checked(lines(path), passage, "passage_id", refuse)


def passage(line: bytes) -> Row:
    """The row of a line of JSON Lines as `passages` reads it; ValueError where it is none."""
    return of_json(_passage)(line)


def candidates(path: str) -> Iterator[Row]:
    """Rows {candidates: [{passage_id, score, label, answer, contents}]} with `question_id`, or
    with `question` where the file knows questions by their text.

    By the name a table (`is_table`) or FlashRAG's retrieval cache (`is_cache`), else by its first
    byte our candidates.jsonl or a TREC run, which both know passages by id alone.
    """
    if is_table(path):
        return tables.candidates(path)
    if is_cache(path):
        return flashrag.cache(path)
    return lists.candidates(path) if first_byte(path) == b"{" else trec.run(path)


def candidate_files(path: str) -> list[str]:
    """The files that `candidates` reads."""
    return tables.files(path) if is_table(path) else trec.files(path)


def _passage(value: fields.Value) -> Row:
    return beir.passage(value) if "_id" in value else flashrag.passage(value)
