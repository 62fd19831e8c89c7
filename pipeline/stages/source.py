"""Source: the input files read once, checked line by line, and cut into shards.

The shards are a snapshot in `<root>/stages/source-<fingerprint>/`; the fingerprint covers the
contents of every input file, the filter, the sample and the shard size, so changed input or
another cut is another directory.
"""

import hashlib
import heapq
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import islice
from typing import Any

import pyarrow as pa

from pipeline import readers, schema
from pipeline.config import InputConfig, RunConfig
from pipeline.engines.base import split_contents
from pipeline.readers import BadLine, InputError
from pipeline.runs import layout, lease
from pipeline.runs.fingerprint import digest, file_digest
from pipeline.runs.storage import Storage

STAGE = "input"
_DONE = "_DONE.json"


@dataclass(frozen=True)
class InputFile:
    """An input file as it was read."""

    path: str
    bytes: int
    sha256: str


@dataclass(frozen=True)
class Source:
    """The snapshot of a run's input. `dead` counts malformed lines kept as dead rows."""

    folder: str
    fingerprint: str
    files: tuple[InputFile, ...]
    rows: int
    dead: int
    shards: int


def columns(cfg: InputConfig) -> pa.Schema:
    """The columns that the source gives the plan."""
    given = [schema.CANDIDATES] if cfg.candidates is not None else []
    return pa.schema([*schema.SOURCE, *given])


def count(run: RunConfig, cfg: InputConfig) -> Source:
    """What `prepare` would write, without writing it; the same errors."""
    files, fingerprint = _identify(run, cfg)
    rows = dead = 0
    for row in _rows(run, cfg):
        rows, dead = rows + 1, dead + (row[schema.DEAD.name] is not None)
    return _source(run, cfg, files, fingerprint, rows, dead)


def prepare(run: RunConfig, cfg: InputConfig, storage: Storage) -> Source:
    """The snapshot of the input, written unless it is already there whole.

    InputError on a bad line (unless `on_bad_row: dead_letter`), a missing file, or no question;
    LeaseHeld while another driver writes the same snapshot.
    """
    files, fingerprint = _identify(run, cfg)
    folder = layout.stage_dir("source", fingerprint)
    if storage.exists(f"{folder}/{_DONE}"):
        done = storage.read_json(f"{folder}/{_DONE}")
        return _source(run, cfg, files, fingerprint, done["rows"], done["dead"])
    with lease.hold(storage, [folder]):
        storage.sweep(folder)
        all_rows = _rows(run, cfg)
        rows = dead = shard = 0
        while batch := list(islice(all_rows, run.rows_per_shard)):
            storage.write_table(layout.part(folder, shard), _table(batch, shard, cfg))
            rows, shard = rows + len(batch), shard + 1
            dead += sum(row[schema.DEAD.name] is not None for row in batch)
        source = _source(run, cfg, files, fingerprint, rows, dead)
        check_unchanged(source)  # else the snapshot would stand under the hash of other contents
        storage.write_json(f"{folder}/{_DONE}", {"rows": rows, "dead": dead})
    return source


def check_unchanged(source: Source) -> None:
    """InputError that names the first input file that differs from what was read."""
    for file in source.files:
        try:
            found = file_digest(file.path)
        except FileNotFoundError:
            raise InputError(f"{file.path}: removed while the run was under way") from None
        if found != (file.bytes, file.sha256):
            raise InputError(f"{file.path}: changed while the run was under way")


def _identify(run: RunConfig, cfg: InputConfig) -> tuple[tuple[InputFile, ...], str]:
    paths = [cfg.questions]
    if cfg.candidates is not None and cfg.corpus is not None:
        paths += [cfg.candidates, cfg.corpus]
    files = []
    for path in paths:
        try:
            files.append(InputFile(path, *file_digest(path)))
        except FileNotFoundError:
            raise InputError(f"{path}: no such file") from None
        except OSError as error:
            raise InputError(f"{path}: cannot be read: {error}") from None
    identity = {
        "files": [file.sha256 for file in files],
        "split": cfg.split,
        "sample": cfg.sample,
        "seed": run.seed if cfg.sample else None,
        "on_bad_row": cfg.on_bad_row,
        "rows_per_shard": run.rows_per_shard,
    }
    return tuple(files), digest(identity)


def _source(
    run: RunConfig,
    cfg: InputConfig,
    files: tuple[InputFile, ...],
    fingerprint: str,
    rows: int,
    dead: int,
) -> Source:
    if rows == dead:
        kept = f" with metadata.split {cfg.split!r}" if cfg.split is not None else ""
        bad = f", and {dead} malformed lines" if dead else ""
        raise InputError(f"{cfg.questions}: holds no question{kept}{bad}")
    folder = layout.stage_dir("source", fingerprint)
    return Source(folder, fingerprint, files, rows, dead, -(-rows // run.rows_per_shard))


def _rows(run: RunConfig, cfg: InputConfig) -> Iterator[dict[str, Any]]:
    """Rows of the source schema, `candidates` where given, and `dead`; in the file's order."""
    rows = _questions(cfg)
    if cfg.sample is not None:
        rows = _sampled(rows, run.seed, cfg.sample)
    if cfg.candidates is not None and cfg.corpus is not None:
        rows = _with_candidates(list(rows), cfg.candidates, cfg.corpus)
    return rows


def _sampled(rows: Iterator[dict[str, Any]], seed: int, size: int) -> Iterator[dict[str, Any]]:
    """A seeded sample of the good rows, and every dead one, in the file's order."""
    dead: list[tuple[int, dict[str, Any]]] = []

    def keyed() -> Iterator[tuple[bytes, int, dict[str, Any]]]:
        for i, row in enumerate(rows):
            if row[schema.DEAD.name] is None:
                yield _key(seed, row["question_id"]), i, row
            else:
                dead.append((i, row))

    chosen = heapq.nsmallest(size, keyed(), key=lambda entry: entry[:2])
    kept = [*((i, row) for _, i, row in chosen), *dead]
    return (row for _, row in sorted(kept, key=lambda entry: entry[0]))


def _questions(cfg: InputConfig) -> Iterator[dict[str, Any]]:
    bad: list[BadLine] = []
    on_bad = bad.append if cfg.on_bad_row == "dead_letter" else readers.refuse
    for row in readers.questions(cfg.questions, on_bad):
        yield from map(_dead_row, bad)
        bad.clear()
        if cfg.split is None or row["metadata"].get("split") == cfg.split:
            metadata = json.dumps(row["metadata"], ensure_ascii=False)
            yield {**row, "metadata": metadata, schema.DEAD.name: None}
    yield from map(_dead_row, bad)


def _dead_row(bad: BadLine) -> dict[str, Any]:
    """A malformed line as a row that no stage will see; its id is its place."""
    return {
        "question_id": f"line {bad.line}",
        "question": None,
        "golden_answers": None,
        "metadata": None,
        schema.DEAD.name: {"stage": STAGE, "reason": str(bad)},
    }


def _key(seed: int, question_id: str) -> bytes:
    return hashlib.sha256(f"{seed}:{question_id}".encode()).digest()


def _with_candidates(
    rows: Sequence[dict[str, Any]], candidates: str, corpus: str
) -> Iterator[dict[str, Any]]:
    """The rows with their candidates' texts; InputError where one has no list or no text."""
    wanted = {row["question_id"] for row in rows if row[schema.DEAD.name] is None}
    lists = {
        row["question_id"]: row["candidates"]
        for row in readers.candidates(candidates)
        if row["question_id"] in wanted
    }
    if missing := sorted(wanted - lists.keys()):
        raise InputError(f"{candidates}: has no line for question {missing[0]!r}")
    needed = {entry["passage_id"] for entries in lists.values() for entry in entries}
    contents = {
        row["passage_id"]: row["contents"]
        for row in readers.passages(corpus)
        if row["passage_id"] in needed
    }
    if absent := sorted(needed - contents.keys()):
        raise InputError(f"{corpus}: has no passage {absent[0]!r}, named in {candidates}")
    for row in rows:
        entries = lists[row["question_id"]] if row[schema.DEAD.name] is None else None
        made = None if entries is None else [_candidate(entry, contents) for entry in entries]
        yield {**row, schema.CANDIDATES.name: made}


def _candidate(entry: Mapping[str, Any], contents: Mapping[str, str]) -> dict[str, Any]:
    title, text = split_contents(contents[entry["passage_id"]])
    return {**entry, "title": title, "text": text}


def _table(rows: Sequence[Mapping[str, Any]], shard: int, cfg: InputConfig) -> pa.Table:
    kept = pa.schema([*columns(cfg), schema.DEAD])
    table = pa.Table.from_pylist(list(rows), schema=kept)
    return table.append_column(schema.SHARD, pa.array([shard] * len(rows), pa.int64()))


def manifest(source: Source) -> dict[str, Any]:
    """The source as the run manifest records it."""
    return asdict(source)
