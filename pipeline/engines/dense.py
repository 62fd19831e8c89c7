"""Dense retrieval: a bi-encoder's vectors in faiss, searched by inner product.

An index may be cut into shards, each a faiss file of its own that is memory-mapped: they are
searched one after the other and their best passages merged, which equals one whole index but for
which of the passages that tie at the cut are taken: faiss promises nothing about them.
Q questions, N passages asked for, P passages given, D dimensions.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pipeline.config import EmbedderConfig, SearchConfig
from pipeline.engines import embedder
from pipeline.engines.base import Floats, Hit, ModelNotFound, Passage
from pipeline.engines.index_folder import read_manifest
from pipeline.engines.passages import Passages

Rows = NDArray[np.int64]
_ABSENT = -1
"""The row that faiss gives where an approximate search found fewer passages than asked for."""


class DenseRetriever:
    """See engines.base.Retriever."""

    def __init__(self, cfg: SearchConfig) -> None:
        if cfg.index is None:
            raise ModelNotFound("retriever.index: missing")
        manifest = read_manifest(cfg.index, "dense")
        self.fingerprint = str(manifest["fingerprint"])
        self._embedder = embedder.Embedder(_embedder_config(cfg, manifest)[0])
        self._passages = Passages(f"{cfg.index}/{manifest['files']['passages']}")
        self._parts = [
            (int(part["start"]), _open(Path(cfg.index, part["file"]), cfg))
            for part in manifest["files"]["shards"]
        ]

    def search(self, questions: Sequence[str], *, n: int) -> list[list[Hit]]:
        """See engines.base.Retriever; which of the passages that tie at the cut are found is not
        defined, as in faiss."""
        if not questions:
            return []
        vectors_QD = self._embedder.encode(questions, "query")
        scores_QN, rows_QN = self.nearest(vectors_QD, n=n)
        return [self._hits(scores, rows) for scores, rows in zip(scores_QN, rows_QN, strict=True)]

    def score(self, question: str, passages: Sequence[Passage]) -> list[float]:
        """See engines.base.Retriever: the passages' own texts are encoded, in the index or not."""
        texts = [embedder.passage_text(passage.title, passage.text) for passage in passages]
        vectors_PD = self._embedder.encode(texts, "passage")
        query_D = self._embedder.encode([question], "query")[0]
        return [float(score) for score in vectors_PD @ query_D]

    def nearest(self, vectors_QD: Floats, *, n: int) -> tuple[Floats, Rows]:
        """Scores and corpus rows (Q, min(n, passages)), best first; -inf and -1 where an
        approximate index found too few."""
        n = min(n, len(self._passages))
        scores_QN = np.empty((len(vectors_QD), 0), dtype=np.float32)
        rows_QN = np.empty((len(vectors_QD), 0), dtype=np.int64)
        for start, index in self._parts:
            scores, rows = index.search(vectors_QD, min(n, index.ntotal))
            scores_QN = np.hstack([scores_QN, np.where(rows == _ABSENT, -np.inf, scores)])
            rows_QN = np.hstack([rows_QN, np.where(rows == _ABSENT, _ABSENT, rows + start)])
            order = np.lexsort((rows_QN, -scores_QN), axis=1)[:, :n]
            scores_QN = np.take_along_axis(scores_QN, order, axis=1)
            rows_QN = np.take_along_axis(rows_QN, order, axis=1)
        return scores_QN, rows_QN

    def _hits(self, scores_N: Floats, rows_N: Rows) -> list[Hit]:
        found = [
            Hit(*self._passages[int(row)], float(score))
            for score, row in zip(scores_N, rows_N, strict=True)
            if row != _ABSENT
        ]
        return sorted(found, key=lambda hit: (-hit.score, hit.passage_id))


def describe(cfg: SearchConfig) -> dict[str, Any]:
    """What the hits depend on: the index, its embedder on the side of questions, the search.

    ModelNotFound where the index, its model, or the model that it was built with is missing.
    """
    if cfg.index is None:
        raise ModelNotFound("retriever.index: missing")
    manifest = read_manifest(cfg.index, "dense")
    kind = manifest["faiss"]["kind"]
    search = {"ivf": {"nprobe": cfg.nprobe}, "hnsw": {"ef_search": cfg.ef_search}}.get(kind, {})
    return {
        "engine": "dense",
        "index": manifest["fingerprint"],
        "embedder": _embedder_config(cfg, manifest)[1],
        **search,
    }


_OF_QUESTIONS = {"query_prefix", "max_tokens", "dtype"}
"""Settings that the question's side may change without parting from the passages' vectors."""


def _embedder_config(
    cfg: SearchConfig, manifest: dict[str, Any]
) -> tuple[EmbedderConfig, dict[str, Any]]:
    """The embedder for questions, pinned, with its description: the index's own unless `cfg`
    has one. ModelNotFound where it is not the model of the passages."""
    of_index = manifest["embedder"]
    given = cfg.embedder or EmbedderConfig.model_validate(of_index["config"])
    pinned = embedder.pin(given)
    found = embedder.describe(pinned)
    here, there = _passage_side(found), _passage_side(of_index["description"])
    if differing := sorted(key for key in {*here, *there} if here.get(key) != there.get(key)):
        raise ModelNotFound(
            f"retriever.embedder: {', '.join(differing)} differ from the embedder that "
            f"{cfg.index} was built with: {of_index['config']['model']!r}"
        )
    return pinned, found


def _passage_side(description: dict[str, Any]) -> dict[str, Any]:
    settings = {k: v for k, v in description["settings"].items() if k not in _OF_QUESTIONS}
    return {**settings, "model": description.get("model")}


def _open(path: Path, cfg: SearchConfig) -> Any:
    """A faiss index, memory-mapped, with its search settings; ModelNotFound when damaged."""
    import faiss

    faiss.omp_set_num_threads(cfg.threads)
    try:
        index = faiss.read_index(str(path), faiss.IO_FLAG_MMAP_IFC | faiss.IO_FLAG_READ_ONLY)
    except RuntimeError as error:
        raise ModelNotFound(f"{path}: not a faiss index that can be read: {error}") from None
    if isinstance(index, faiss.IndexIVF):
        index.nprobe = cfg.nprobe
    if isinstance(index, faiss.IndexHNSW):
        index.hnsw.efSearch = cfg.ef_search
    return index
