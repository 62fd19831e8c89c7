"""Building a dense index: passages, vectors by shard, faiss files, and a manifest last.

    <index>/winnow.json                        the finished index, by the names of its files
    <index>/building.json                      while it is unfinished
    <index>/passages-<hash>.arrow              row i = line i of the corpus
    <index>/vectors-<hash>/part-000000.npy     float32 (passages of the shard, D)
    <index>/faiss-<hash>/shard-0000.faiss

A name carries the hash of all that the file depends on, so nothing is mixed: a build that is
started again finds what is there, another faiss kind finds the vectors, and an index in use stays
whole until its successor's manifest replaces its own. Files appear whole or not at all.
"""

import io
import os
import shutil
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from importlib import metadata
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np

from pipeline.config import BuildIndexConfig, EmbedderConfig, FaissConfig
from pipeline.engines import embedder, models, passages
from pipeline.engines.base import Floats
from pipeline.engines.index_folder import MANIFEST, corpus_entry, current_manifest
from pipeline.readers import InputError
from pipeline.runs import lease
from pipeline.runs.fingerprint import digest
from pipeline.runs.storage import Storage

UNFINISHED = "building.json"
_SECTION = "embedder"
_SEED = 1


@dataclass(frozen=True)
class Build:
    """What an index is made from; `fingerprint` covers all of it."""

    folder: str
    corpus: dict[str, Any]
    embedder: EmbedderConfig  # pinned
    description: dict[str, Any]
    faiss: FaissConfig
    per_shard: int

    @property
    def passages(self) -> str:
        """Name of the passages' file."""
        return f"passages-{digest(self.corpus['sha256'])}.arrow"

    @property
    def vectors(self) -> str:
        """Name of the vectors' folder."""
        settings = {**self.description["settings"], "query_prefix": None}  # of questions alone
        made_from = [self.corpus["sha256"], {**self.description, "settings": settings}]
        made_from.append(self.per_shard)
        return f"vectors-{digest(made_from)}"

    @property
    def fingerprint(self) -> str:
        """Of the whole index."""
        versions = metadata.version("faiss-cpu")
        return digest([self.vectors, self.description, self.faiss.of_kind(), versions])

    def part(self, shard: int) -> str:
        """Name of a shard's vectors."""
        return f"{self.vectors}/part-{shard:06d}.npy"

    def rows(self, shard: int, passage_count: int) -> tuple[int, int]:
        """First row of a shard, and the row after its last."""
        start = shard * self.per_shard
        return start, min(start + self.per_shard, passage_count)


Encode = Callable[[Build, Sequence[int], threading.Event], None]
"""Encodes shards of a build; the event is set when the lease is lost, and it must stop then."""


def build_index(
    cfg: BuildIndexConfig, progress: Callable[[int], None], encode: Encode
) -> dict[str, Any]:
    """Makes what is missing of the index in `cfg.index` and returns its manifest.

    `progress` is called with the number of passages read. InputError on a bad line of the corpus
    or a folder that holds something else; LeaseHeld while another process builds there.
    """
    build = plan(cfg)
    if manifest := finished(build):
        return manifest
    with lease.hold(Storage(build.folder), ["."]) as lost:
        count = prepare(build, progress)
        encode(build, missing(build, count), lost)
        if left := missing(build, count):
            raise RuntimeError(f"{build.folder}: shards {left} have no vectors after encoding")
        return finish(build, count, build_faiss(build, count, threads=cfg.threads))


def encode_here(build: Build, shards: Sequence[int], lost: threading.Event) -> None:
    """Encodes shards one after the other in this process."""
    if not shards:
        return
    encoder = ShardEncoder(build)
    for shard in shards:
        if lost.is_set():
            return
        encoder(shard)


def plan(cfg: BuildIndexConfig) -> Build:
    """What `cfg` asks for; InputError or ModelNotFound where corpus or model is missing."""
    if cfg.embedder is None:
        raise ValueError("engine dense needs the section embedder")
    pinned = models.pin(cfg.embedder, section=_SECTION)
    corpus = corpus_entry(cfg.corpus)
    description = models.describe_encoder(pinned, section=_SECTION)
    return Build(cfg.index, corpus, pinned, description, cfg.faiss, cfg.passages_per_shard)


def finished(build: Build) -> dict[str, Any] | None:
    """The manifest, where this very index is there; InputError where something else is."""
    manifest = current_manifest(build.folder, "dense", UNFINISHED)
    same = manifest is not None and manifest["fingerprint"] == build.fingerprint
    return manifest if same else None


def prepare(build: Build, progress: Callable[[int], None]) -> int:
    """Writes the passages unless they are there; how many. The caller holds the lease."""
    storage = Storage(build.folder)
    storage.write_json(UNFINISHED, {"fingerprint": build.fingerprint})
    storage.sweep(".")
    storage.sweep(build.vectors)
    path = Path(build.folder, build.passages)
    if path.is_file():
        return len(passages.Passages(str(path)))
    return passages.write(build.corpus["path"], path, progress)


def missing(build: Build, passage_count: int) -> list[int]:
    """The shards without vectors; a damaged file is deleted and counts as missing."""
    storage = Storage(build.folder)
    shards = range(-(-passage_count // build.per_shard))
    there = set(storage.names(build.vectors))
    wanted = []
    for shard in shards:
        if Path(build.part(shard)).name in there:
            start, stop = build.rows(shard, passage_count)
            if _length(build, shard) == stop - start:
                continue
            storage.delete(build.part(shard))
        wanted.append(shard)
    return wanted


def count_done(build: Build) -> int:
    """How many shards have their vectors."""
    return len(Storage(build.folder).names(build.vectors))


def _length(build: Build, shard: int) -> int:
    """Rows of a shard's vectors; -1 where the file is damaged."""
    try:
        return len(_vectors(build, shard))
    except (ValueError, EOFError, OSError):
        return -1


def _vectors(build: Build, shard: int) -> Floats:
    """float32 (passages of the shard, D), memory-mapped."""
    mapped: Floats = np.load(Path(build.folder, build.part(shard)), mmap_mode="r")
    return mapped


class ShardEncoder:
    """Encodes shards of the corpus into their files; holds the model."""

    def __init__(self, build: Build) -> None:
        self._build = build
        self._embedder = embedder.Embedder(build.embedder)
        self._passages = passages.Passages(f"{build.folder}/{build.passages}")

    def __call__(self, shard: int) -> int:
        """Writes a shard's vectors; how many."""
        rows = self._passages.between(*self._build.rows(shard, len(self._passages)))
        texts = [embedder.passage_text(row.title, row.text) for row in rows]
        buffer = io.BytesIO()
        np.save(buffer, self._embedder.encode(texts, "passage"))
        Storage(self._build.folder).write_bytes(self._build.part(shard), buffer.getvalue())
        return len(rows)


def build_faiss(build: Build, passage_count: int, *, threads: int) -> list[dict[str, Any]]:
    """Makes the faiss files that are missing; all of them as {file, start, passages}.

    InputError where the corpus is too small for the lists or shards asked for.
    """
    import faiss

    faiss.omp_set_num_threads(threads)
    shards = build.faiss.index_shards
    for key, value in (("index_shards", shards), ("nlist", build.faiss.nlist)):
        if (key == "index_shards" or build.faiss.kind == "ivf") and value > passage_count:
            raise InputError(f"faiss.{key} {value} exceeds the corpus of {passage_count} passages")
    folder = f"faiss-{build.fingerprint}"
    Path(build.folder, folder).mkdir(exist_ok=True)
    bounds = [i * passage_count // shards for i in range(shards + 1)]
    parts, empty = [], None
    for i, (start, stop) in enumerate(pairwise(bounds)):
        name = f"{folder}/shard-{i:04d}.faiss"
        path = Path(build.folder, name)
        if not path.is_file():
            empty = empty or _empty(build, passage_count)
            index = faiss.clone_index(empty)
            for vectors in _between(build, start, stop):
                index.add(np.ascontiguousarray(vectors))
            scratch = path.with_name(f".{path.name}.tmp")
            faiss.write_index(index, str(scratch))
            os.replace(scratch, path)
        parts.append({"file": name, "start": start, "passages": stop - start})
    return parts


def _empty(build: Build, passage_count: int) -> Any:
    """An index without passages, trained where its kind asks for it: one for all shards, so that
    their lists are the same."""
    import faiss

    cfg, dimensions = build.faiss, _vectors(build, 0).shape[1]
    if cfg.kind == "flat":
        return faiss.IndexFlatIP(dimensions)
    if cfg.kind == "hnsw":
        graph = faiss.IndexHNSWFlat(dimensions, cfg.links, faiss.METRIC_INNER_PRODUCT)
        graph.hnsw.efConstruction = cfg.ef_construction
        return graph
    coarse = faiss.IndexFlatIP(dimensions)
    lists = faiss.IndexIVFFlat(coarse, dimensions, cfg.nlist, faiss.METRIC_INNER_PRODUCT)
    lists.cp.seed = _SEED
    lists.train(_sample(build, passage_count))
    return lists


def _sample(build: Build, passage_count: int) -> Floats:
    """At most `train_passages` vectors, drawn without replacement."""
    count = min(build.faiss.train_passages, passage_count)
    rows = np.random.default_rng(_SEED).choice(passage_count, count, replace=False)
    by_shard, kept = np.sort(rows) // build.per_shard, np.sort(rows) % build.per_shard
    parts = [_vectors(build, s)[kept[by_shard == s]] for s in np.unique(by_shard)]
    return np.ascontiguousarray(np.concatenate(parts), dtype=np.float32)


def _between(build: Build, start: int, stop: int) -> Iterator[Floats]:
    """The vectors of rows start, ..., stop - 1, shard by shard."""
    for shard in range(start // build.per_shard, -(-stop // build.per_shard)):
        first = shard * build.per_shard
        yield _vectors(build, shard)[max(start - first, 0) : stop - first]


def finish(build: Build, passage_count: int, parts: list[dict[str, Any]]) -> dict[str, Any]:
    """Writes the manifest and returns it; then removes what belongs to another corpus, embedder or
    faiss index. The vectors stay, for another faiss index over them."""
    storage = Storage(build.folder)
    manifest = {
        "engine": "dense",
        "fingerprint": build.fingerprint,
        "passages": passage_count,
        "dimensions": int(_vectors(build, 0).shape[1]),
        "corpus": build.corpus,
        "embedder": {"config": build.embedder.plain(), "description": build.description},
        "faiss": build.faiss.of_kind(),
        "files": {"passages": build.passages, "vectors": build.vectors, "shards": parts},
        "versions": {name: metadata.version(name) for name in ("faiss-cpu", "pyarrow")},
    }
    storage.write_json(MANIFEST, manifest)
    kept = {MANIFEST, build.passages, build.vectors, f"faiss-{build.fingerprint}"}
    for name in storage.names("."):
        if name.startswith(("passages-", "vectors-", "faiss-")) and name not in kept:
            path = Path(build.folder, name)
            shutil.rmtree(path) if path.is_dir() else path.unlink()
    storage.delete(UNFINISHED)
    return manifest
