"""Source: the input files read once, checked line by line, and cut into shards.

The shards are a snapshot in `<root>/stages/source-<fingerprint>/`; the fingerprint covers the
contents of every input file, how they are read, the filter, the sample, the candidates' order and
the shard size, so changed input or another cut is another directory.
"""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import islice
from typing import Any, NamedTuple

import pyarrow as pa

from pipeline import schema
from pipeline.config import InputConfig, RunConfig
from pipeline.config.run import HUB
from pipeline.readers import InputError, huggingface
from pipeline.runs import layout, lease
from pipeline.runs.fingerprint import digest, file_digest
from pipeline.runs.storage import Storage
from pipeline.stages import inputs

_DONE = "_DONE.json"


@dataclass(frozen=True)
class InputFile:
    """An input file as it was read."""

    path: str
    bytes: int
    sha256: str


@dataclass(frozen=True)
class Source:
    """The snapshot of a run's input. `dead` counts malformed lines kept as dead rows.

    `unjudged` is the fingerprint of the same rows without the qrels' judgements: what depends on
    it alone serves the same questions with and without qrels.
    """

    folder: str
    fingerprint: str
    unjudged: str
    files: tuple[InputFile, ...]
    rows: int
    dead: int
    shards: int


def columns(cfg: InputConfig) -> pa.Schema:
    """The columns that the source gives the plan."""
    column = schema.POOL if cfg.ranks_pool else schema.CANDIDATES
    return pa.schema([*schema.SOURCE, schema.JUDGEMENTS, *([column] if cfg.has_candidates else [])])


def count(run: RunConfig, cfg: InputConfig) -> Source:
    """What `prepare` would write, without writing it; the same errors."""
    identity = _identify(run, cfg)
    rows = dead = 0
    for row in inputs.rows(cfg, run.seed):
        rows, dead = rows + 1, dead + (row[schema.DEAD.name] is not None)
    return _source(run, cfg, identity, rows, dead)


def prepare(run: RunConfig, cfg: InputConfig, storage: Storage) -> Source:
    """The snapshot of the input, written unless it is already there whole.

    InputError on a bad line (unless `on_bad_row: dead_letter`), a missing file, or no question;
    LeaseHeld while another driver writes the same snapshot.
    """
    identity = _identify(run, cfg)
    folder = layout.stage_dir("source", identity.fingerprint)
    if (found := _stored(run, cfg, identity, storage)) is not None:
        return found
    with lease.hold(storage, [folder]):
        storage.sweep(folder)
        all_rows = inputs.rows(cfg, run.seed)
        rows = dead = shard = 0
        while batch := list(islice(all_rows, run.rows_per_shard)):
            storage.write_table(layout.part(folder, shard), _table(batch, shard, cfg))
            rows, shard = rows + len(batch), shard + 1
            dead += sum(row[schema.DEAD.name] is not None for row in batch)
        source = _source(run, cfg, identity, rows, dead)
        check_unchanged(source)  # else the snapshot would stand under the hash of other contents
        storage.write_json(f"{folder}/{_DONE}", {"rows": rows, "dead": dead})
    return source


def find(run: RunConfig, cfg: InputConfig, storage: Storage) -> Source:
    """The snapshot of the input that is there; InputError where there is none."""
    if (found := _stored(run, cfg, _identify(run, cfg), storage)) is None:
        raise InputError(f"{storage.root}: no run here has read this input ({cfg.questions})")
    return found


def check_unchanged(source: Source) -> None:
    """InputError that names the first input file that differs from what was read."""
    for file in source.files:
        try:
            found = _digest(file.path)
        except FileNotFoundError:
            raise InputError(f"{file.path}: removed while the run was under way") from None
        if found != (file.bytes, file.sha256):
            raise InputError(f"{file.path}: changed while the run was under way")


class _Identity(NamedTuple):
    files: tuple[InputFile, ...]
    fingerprint: str
    unjudged: str


def _stored(
    run: RunConfig, cfg: InputConfig, identity: _Identity, storage: Storage
) -> Source | None:
    """The snapshot where it is there whole: a part that was lost or cut short since is not."""
    path = f"{layout.stage_dir('source', identity.fingerprint)}/{_DONE}"
    if not storage.exists(path):
        return None
    done = storage.read_json(path)
    source = _source(run, cfg, identity, done["rows"], done["dead"])
    complete = layout.shards_done(storage, source.folder) >= set(range(source.shards))
    return source if complete and not layout.damaged_parts(storage, [source.folder]) else None


def _identify(run: RunConfig, cfg: InputConfig) -> _Identity:
    parts = inputs.files(cfg)
    read = {part: [_input_file(part, path) for path in paths] for part, paths in parts.items()}
    hashes = {part: [file.sha256 for file in files] for part, files in read.items()}
    settings = {
        "format": cfg.format,
        "max_candidates": None if cfg.ranks_pool else cfg.max_candidates,
        "order": cfg.order,
        "split": cfg.split,
        "fold": cfg.fold,
        "sample": cfg.sample,
        "seed": run.seed if cfg.sample or cfg.order == "random" else None,
        "on_bad_row": cfg.on_bad_row,
        "rows_per_shard": run.rows_per_shard,
    }
    whole = digest({"files": hashes, **settings})
    if cfg.format != "beir":  # there the qrels choose the questions
        hashes = {part: found for part, found in hashes.items() if part != "qrels"}
    every = tuple(file for files in read.values() for file in files)
    return _Identity(every, whole, digest({"files": hashes, **settings}))


def _input_file(part: str, path: str) -> InputFile:
    """A file as it is now; InputError that names the key of the config where it cannot be read."""
    try:
        return InputFile(path, *_digest(path))
    except FileNotFoundError:
        raise InputError(f"input.{part}: {path}: no such file") from None
    except OSError as error:
        raise InputError(f"input.{part}: {path}: cannot be read: {error}") from None


def _digest(path: str) -> tuple[int, str]:
    return huggingface.digest(path) if path.startswith(HUB) else file_digest(path)


def _source(run: RunConfig, cfg: InputConfig, identity: _Identity, rows: int, dead: int) -> Source:
    if rows == dead:
        kept = f" with metadata.split {cfg.split!r}" if cfg.split is not None else ""
        kept += f" in fold {list(cfg.fold)}" if cfg.fold is not None else ""
        bad = f", and {dead} malformed lines" if dead else ""
        raise InputError(f"{cfg.questions}: holds no question{kept}{bad}")
    files, fingerprint, unjudged = identity
    folder, shards = layout.stage_dir("source", fingerprint), -(-rows // run.rows_per_shard)
    return Source(folder, fingerprint, unjudged, files, rows, dead, shards)


def _table(rows: Sequence[Mapping[str, Any]], shard: int, cfg: InputConfig) -> pa.Table:
    kept = pa.schema([*columns(cfg), schema.DEAD])
    table = pa.Table.from_pylist(list(rows), schema=kept)
    return table.append_column(schema.SHARD, pa.array([shard] * len(rows), pa.int64()))


def manifest(source: Source) -> dict[str, Any]:
    """The source as the run manifest records it."""
    return asdict(source)
