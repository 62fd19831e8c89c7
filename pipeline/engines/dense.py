"""Dense retrieval: a bi-encoder's vectors in faiss, in a folder of ours or another tool's file.

The score is the inner product; in a file of another metric, minus the squared distance. An index
may be cut into shards, each a faiss file of its own that is memory-mapped: they are searched one
after the other and their best passages merged, which equals one whole index but for which of the
passages that tie at the cut are taken: faiss promises nothing about them.
Q questions, N passages asked for, P passages given, D dimensions.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from pipeline.config import EmbedderConfig, SearchConfig
from pipeline.engines import embedder, faiss_file, models
from pipeline.engines.base import Floats, Hit, ModelNotFound, Passage
from pipeline.engines.index_folder import read_manifest
from pipeline.engines.passages import Passages

Rows = NDArray[np.int64]
_SECTION = "retriever.embedder"
_ABSENT = -1
"""The row that faiss gives where an approximate search found fewer passages than asked for."""


class DenseRetriever:
    """See engines.base.Retriever."""

    def __init__(self, cfg: SearchConfig) -> None:
        opened = _of_file(cfg) if _is_file(cfg) else _of_folder(cfg)
        self.fingerprint = opened.fingerprint
        self._embedder = embedder.Embedder(opened.embedder)
        self._passages, self._parts = opened.passages, opened.parts
        self._by_distance = faiss_file.by_distance(self._parts[0][1])

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
        if self._by_distance:
            return [-float(np.square(vector_D - query_D).sum()) for vector_D in vectors_PD]
        return [float(score) for score in vectors_PD @ query_D]

    def nearest(self, vectors_QD: Floats, *, n: int) -> tuple[Floats, Rows]:
        """Scores and corpus rows (Q, min(n, passages)), best first; -inf and -1 where an
        approximate index found too few."""
        n = min(n, len(self._passages))
        scores_QN = np.empty((len(vectors_QD), 0), dtype=np.float32)
        rows_QN = np.empty((len(vectors_QD), 0), dtype=np.int64)
        for start, index in self._parts:
            found, rows = index.search(vectors_QD, min(n, index.ntotal))
            scores = -found if self._by_distance else found
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


class _Opened(NamedTuple):
    """What is searched, as it was found; `parts` are faiss indexes with their first rows."""

    fingerprint: str
    embedder: EmbedderConfig
    passages: Passages | faiss_file.CorpusLines
    parts: list[tuple[int, Any]]


def _is_file(cfg: SearchConfig) -> bool:
    """Whether another tool's file is named, with its corpus; ModelNotFound where without."""
    if cfg.corpus is None and cfg.index is not None and Path(cfg.index).is_file():
        raise ModelNotFound(
            f"retriever.index {cfg.index!r}: a file; set retriever.corpus and retriever.embedder "
            "to what it was built from, or name a folder of jobs/build_index.py"
        )
    return cfg.corpus is not None


def _of_file(cfg: SearchConfig) -> _Opened:
    if cfg.embedder is None:
        raise ModelNotFound("retriever.embedder: missing")
    found, pinned = faiss_file.load(cfg), models.pin(cfg.embedder, section=_SECTION)
    return _Opened(faiss_file.fingerprint(cfg), pinned, found.passages, [(0, found.index)])


def _of_folder(cfg: SearchConfig) -> _Opened:
    if cfg.index is None:
        raise ModelNotFound("retriever.index: missing")
    manifest = read_manifest(cfg.index, "dense")
    files = manifest["files"]
    return _Opened(
        fingerprint=str(manifest["fingerprint"]),
        embedder=_embedder_config(cfg, manifest)[0],
        passages=Passages(f"{cfg.index}/{files['passages']}"),
        parts=[
            (int(part["start"]), faiss_file.read(Path(cfg.index, part["file"]), cfg))
            for part in files["shards"]
        ],
    )


def describe(cfg: SearchConfig) -> dict[str, Any]:
    """What the hits depend on: the index, its embedder on the side of questions, the search.

    ModelNotFound where the index, its model, or the model that it was built with is missing, or
    where a faiss file does not go with its corpus and embedder.
    """
    if _is_file(cfg) and cfg.embedder is not None:
        kind, index = faiss_file.load(cfg).kind, faiss_file.fingerprint(cfg)
        pinned = models.pin(cfg.embedder, section=_SECTION)
        encoder = models.describe_encoder(pinned, section=_SECTION)
    elif cfg.index is not None:
        manifest = read_manifest(cfg.index, "dense")
        kind, index = manifest["faiss"]["kind"], manifest["fingerprint"]
        encoder = _embedder_config(cfg, manifest)[1]
    else:
        raise ModelNotFound("retriever.index: missing")
    search = {"ivf": {"nprobe": cfg.nprobe}, "hnsw": {"ef_search": cfg.ef_search}}.get(kind, {})
    return {"engine": "dense", "index": index, "embedder": encoder, **search}


_OF_QUESTIONS = {"query_prefix", "max_tokens", "dtype"}
"""Settings that the question's side may change without parting from the passages' vectors."""


def _embedder_config(
    cfg: SearchConfig, manifest: dict[str, Any]
) -> tuple[EmbedderConfig, dict[str, Any]]:
    """The embedder for questions, pinned, with its description: the index's own unless `cfg`
    has one. ModelNotFound where it is not the model of the passages."""
    of_index = manifest["embedder"]
    given = cfg.embedder or EmbedderConfig.model_validate(of_index["config"])
    pinned = models.pin(given, section=_SECTION)
    found = models.describe_encoder(pinned, section=_SECTION)
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
