"""Every kind of index by its engine: described for fingerprints, built where it is missing."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

from pipeline.config import BuildIndexConfig, DatasetConfig, RetrieverConfig, SearchConfig
from pipeline.engines import bm25, dense, dense_index, fusion
from pipeline.engines.index_folder import MANIFEST, corpus_entry
from pipeline.readers import InputError
from pipeline.runs.fingerprint import digest

DESCRIBE: dict[str, Callable[[SearchConfig], dict[str, Any]]] = {
    "bm25": bm25.describe,
    "dense": dense.describe,
}


def describe(cfg: RetrieverConfig) -> dict[str, Any]:
    """What a retriever's hits depend on, `index` being the fingerprint of all that it searches.

    ModelNotFound where an index or its model is missing.
    """
    if cfg.engine != "fusion":
        return DESCRIBE[cfg.engine](cfg)
    members = [DESCRIBE[member.engine](member) for member in cfg.of]
    return {
        "engine": "fusion",
        "index": fusion.fingerprint([member["index"] for member in members]),
        "of": members,
        "rrf_k": cfg.rrf_k,
        "depth": cfg.depth,
    }


def place(cfg: RetrieverConfig, corpus: str, root: str) -> str:
    """The folder below `root` of the retriever's index over a corpus: by the contents of the corpus
    and by the model, so that none replaces another. InputError where the corpus is missing."""
    model = cfg.embedder and cfg.embedder.plain(exclude={"batch_size", "threads"})
    contents = corpus_entry(corpus, key="input.corpus")["sha256"]
    return f"{root}/indexes/{cfg.engine}-{digest([contents, model])}"


def of_dataset(cfg: DatasetConfig, root: str, *, dry_run: bool) -> str | None:
    """The folder of the index that a data set names none of, built there unless `dry_run`; None
    where it names one or searches nothing. Errors as `place` and `ensure`."""
    retriever, corpus = cfg.retriever, cfg.input.corpus
    if not cfg.builds_index or retriever is None or corpus is None:
        return None
    folder = place(retriever, corpus, root)
    return folder if dry_run else ensure(retriever, corpus, folder)


def is_there(folder: str) -> bool:
    """Whether a folder holds a finished index."""
    return Path(folder, MANIFEST).is_file()


def ensure(cfg: RetrieverConfig, corpus: str, folder: str) -> str:
    """An index of the retriever's engine over a corpus, in `folder`, built in this process unless
    it is there; the folder. For corpora that one process can encode: jobs/build_index.py uses
    a cluster. InputError for a fusion, which names its indexes itself.
    """
    if cfg.engine == "fusion":
        raise InputError("retriever.engine fusion: build its indexes with jobs/build_index.py")
    wanted = BuildIndexConfig(
        engine=cfg.engine, corpus=corpus, index=folder, threads=cfg.threads, embedder=cfg.embedder
    )
    if cfg.engine == "bm25":
        bm25.build_index(wanted, _silent)
    else:
        dense_index.build_index(wanted, _silent, dense_index.encode_here)
    return folder


def _silent(count: int) -> None:
    """No progress is shown."""
