"""A faiss file that another tool wrote, such as FlashRAG: its row i is line i of a corpus.

Both stay where they are. One pass over the corpus finds where its lines start, 8 bytes of memory
each; a hit's line is read when it is needed, so only then is it known to be a passage, and that an
id stands twice is never known.
"""

import os
from array import array
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from pipeline import readers
from pipeline.config import EmbedderConfig, SearchConfig
from pipeline.engines.base import ModelNotFound, Passage, split_contents
from pipeline.engines.embedder import FAKE_DIMENSIONS
from pipeline.engines.tokenizer import model_config
from pipeline.runs.fingerprint import digest, file_digest


class CorpusLines:
    """The passages of an unpacked JSON Lines file by line, from 0; blank lines do not count."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._bounds_N1 = _bounds(path, *_stamp(path))
        self._file: Any = pa.memory_map(path)

    def __len__(self) -> int:
        return len(self._bounds_N1) - 1

    def __getitem__(self, row: int) -> Passage:
        """IndexError outside 0 <= row < len; InputError where the line is no passage."""
        if not 0 <= row < len(self):
            raise IndexError(f"row {row}; the corpus has {len(self)}")
        start, stop = map(int, self._bounds_N1[row : row + 2])
        try:
            found = readers.passage(self._file.read_at(stop - start, start))
        except ValueError as error:
            raise readers.InputError(f"{self._path}: passage {row} from 0: {error}") from None
        return Passage(found["passage_id"], *split_contents(found["contents"]))


class FaissFile(NamedTuple):
    """An index with the passages of its rows; `kind` as in FaissConfig, whatever encodes them."""

    index: Any
    kind: str
    passages: CorpusLines


def load(cfg: SearchConfig) -> FaissFile:
    """The index and the corpus that a config names; ModelNotFound where they do not go together,
    or the index not with the embedder."""
    if cfg.index is None or cfg.corpus is None or cfg.embedder is None:
        raise ValueError("a faiss file needs retriever.index, .corpus and .embedder")
    _check_files(cfg.index, cfg.corpus)
    index = read(Path(cfg.index), cfg)
    passages = CorpusLines(cfg.corpus)
    where = f"retriever.index {cfg.index!r}"
    _check_rows(where, index)
    if index.ntotal != len(passages):
        raise ModelNotFound(
            f"{where}: holds {index.ntotal} vectors, and retriever.corpus {cfg.corpus!r} "
            f"{len(passages)} passages; allowed: one vector a line, in the same order"
        )
    if index.d != (dimensions := _dimensions(cfg.embedder)):
        raise ModelNotFound(
            f"{where}: its vectors have {index.d} dimensions, those of retriever.embedder.model "
            f"{cfg.embedder.model!r} {dimensions}; allowed: the encoder that it was built with"
        )
    return FaissFile(index, _kind(index), passages)


def fingerprint(cfg: SearchConfig) -> str:
    """Of the contents of index and corpus, each read once a process unless it changes."""
    paths = [path for path in (cfg.index, cfg.corpus) if path is not None]
    return digest([_sha256(path, *_stamp(path)) for path in paths])


def read(path: Path, cfg: SearchConfig) -> Any:
    """A faiss index, memory-mapped, with its search settings; ModelNotFound when damaged."""
    import faiss

    faiss.omp_set_num_threads(cfg.threads)
    try:
        index = faiss.read_index(str(path), faiss.IO_FLAG_MMAP_IFC | faiss.IO_FLAG_READ_ONLY)
    except RuntimeError as error:
        raise ModelNotFound(f"{path}: not a faiss index that can be read: {error}") from None
    if (lists := faiss.try_extract_index_ivf(index)) is not None:
        lists.nprobe = cfg.nprobe
    if isinstance(graph := _searched(index), faiss.IndexHNSW):
        graph.hnsw.efSearch = cfg.ef_search
    return index


def by_distance(index: Any) -> bool:
    """Whether an index gives squared distances, lower is better, and not inner products."""
    import faiss

    return bool(index.metric_type == faiss.METRIC_L2)


def _check_files(index: str, corpus: str) -> None:
    for key, path in (("index", index), ("corpus", corpus)):
        if not Path(path).exists():
            raise ModelNotFound(f"retriever.{key}: {path}: no such file")
        if not Path(path).is_file():
            raise ModelNotFound(
                f"retriever.{key}: {path}: a folder; retriever.corpus goes with the faiss file of "
                "another tool, and a folder of jobs/build_index.py holds its own passages"
            )


def _check_rows(where: str, index: Any) -> None:
    """ModelNotFound on a metric other than ours, or numbers of passages other than their rows."""
    import faiss

    if index.metric_type not in (faiss.METRIC_INNER_PRODUCT, faiss.METRIC_L2):
        raise ModelNotFound(
            f"{where}: faiss metric {index.metric_type}; allowed: inner product "
            f"({faiss.METRIC_INNER_PRODUCT}) and L2 ({faiss.METRIC_L2})"
        )
    if isinstance(index, faiss.IndexIDMap):
        raise ModelNotFound(f"{where}: an IDMap numbers its rows itself; allowed: row i is line i")


def _kind(index: Any) -> str:
    import faiss

    if faiss.try_extract_index_ivf(index) is not None:
        return "ivf"
    return "hnsw" if isinstance(_searched(index), faiss.IndexHNSW) else "flat"


def _searched(index: Any) -> Any:
    """The index behind the transforms of its vectors."""
    import faiss

    while isinstance(index, faiss.IndexPreTransform):
        index = faiss.downcast_index(index.index)
    return index


def _dimensions(cfg: EmbedderConfig) -> int:
    """Of an embedder's vectors, without its weights."""
    if cfg.engine == "fake":
        return FAKE_DIMENSIONS
    key = "retriever.embedder.model"
    return int(model_config(cfg.model, cfg.revision, key=key).hidden_size)


def _stamp(path: str) -> tuple[int, int]:
    """Size and time of the last change, by which what was read of a file is remembered."""
    found = os.stat(path)
    return found.st_size, found.st_mtime_ns


@lru_cache(maxsize=8)
def _sha256(path: str, size: int, changed_ns: int) -> str:
    return file_digest(path)[1]


@lru_cache(maxsize=1)
def _bounds(path: str, size: int, changed_ns: int) -> NDArray[np.int64]:
    """Where each line that is not blank starts, and the file's end."""
    starts, at = array("q"), 0
    with open(path, "rb") as file:
        for line in file:
            if not line.isspace():
                starts.append(at)
            at += len(line)
    starts.append(at)
    return np.frombuffer(starts, dtype=np.int64)
