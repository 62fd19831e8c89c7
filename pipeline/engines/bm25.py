"""BM25 over a Lucene index (Anserini, through pyserini).

The index stores every passage's raw JSON, so a hit carries its own text. Anserini's default
English analysis serves both sides: what the index was built with is what analyses a question.
"""

import json
import re
import shutil
import subprocess
from collections.abc import Callable, Sequence
from importlib import metadata
from pathlib import Path
from typing import Any

from pipeline import readers
from pipeline.config import BuildIndexConfig, SearchConfig
from pipeline.engines.base import Hit, ModelNotFound, Passage, Refusal, split_contents
from pipeline.engines.index_folder import (
    MANIFEST,
    corpus_entry,
    current_manifest,
    read_manifest,
)
from pipeline.engines.java import anserini_jar, java_home, start_jvm
from pipeline.runs.fingerprint import digest
from pipeline.runs.folders import sole_writer, whole_folder

_SCORE_DIGITS = 4
"""Decimal places that Anserini keeps of a hit's score."""


class Bm25Retriever:
    """See engines.base.Retriever. Each process holds one JVM."""

    def __init__(self, cfg: SearchConfig) -> None:
        if cfg.index is None:
            raise ModelNotFound("retriever.index: missing")
        self.fingerprint = str(read_manifest(cfg.index, "bm25")["fingerprint"])
        start_jvm()
        from pyserini.search.lucene import LuceneSearcher

        self._searcher: Any = LuceneSearcher(str(Path(cfg.index).expanduser() / "lucene"))
        self._searcher.set_bm25(cfg.k1, cfg.b)
        self._threads = cfg.threads

    def search(self, questions: Sequence[str], *, n: int) -> list[list[Hit]]:
        """At most n passages each; a question without an indexed word finds none."""
        keys = [str(i) for i in range(len(questions))]
        found = self._searcher.batch_search(list(questions), keys, k=n, threads=self._threads)
        return [[_hit(hit) for hit in found.get(key, [])] for key in keys]

    def score(self, question: str, passages: Sequence[Passage]) -> list[float]:
        """See engines.base.Retriever: as `search` scores them, 0 for one that shares no word.

        Refusal for a passage that the index lacks, or holds with another text.
        """
        return [self._score(question, passage) for passage in passages]

    def _score(self, question: str, passage: Passage) -> float:
        document = self._searcher.doc(passage.passage_id)
        if document is None:
            raise Refusal(f"passage {passage.passage_id!r} is not in the index")
        if split_contents(json.loads(document.raw())["contents"]) != (passage.title, passage.text):
            raise Refusal(f"passage {passage.passage_id!r} has another text in the index")
        score = self._searcher.index_reader.compute_query_document_score(
            passage.passage_id, question, self._searcher.get_similarity()
        )
        return round(float(score), _SCORE_DIGITS)


def describe(cfg: SearchConfig) -> dict[str, Any]:
    """What the hits depend on; ModelNotFound where there is no index."""
    if cfg.index is None:
        raise ModelNotFound("retriever.index: missing")
    manifest = read_manifest(cfg.index, "bm25")
    return {"engine": "bm25", "index": manifest["fingerprint"], "k1": cfg.k1, "b": cfg.b}


def build_index(cfg: BuildIndexConfig, progress: Callable[[int], None]) -> dict[str, Any]:
    """Indexes a FlashRAG corpus into the folder `cfg.index` and returns its manifest.

    An index of the same corpus and versions is left as it is. `progress` is called with the
    number of passages read. InputError on a bad line, LeaseHeld while another process builds
    there; the folder appears whole or not at all.
    """
    corpus = corpus_entry(cfg.corpus)
    versions = {name: metadata.version(name) for name in ("pyserini",)}
    fingerprint = digest({"corpus": corpus["sha256"], "engine": "bm25", **versions})
    if manifest := _finished(cfg.index, fingerprint):
        return manifest
    with sole_writer(Path(cfg.index)):
        if manifest := _finished(cfg.index, fingerprint):  # by who held the lease until now
            return manifest
        return _build(cfg, corpus, fingerprint, versions, progress)


def _finished(index: str, fingerprint: str) -> dict[str, Any] | None:
    """The manifest, where this very index is there; InputError where something else is."""
    manifest = current_manifest(index, "bm25")
    return manifest if manifest is not None and manifest["fingerprint"] == fingerprint else None


def _build(
    cfg: BuildIndexConfig,
    corpus: dict[str, Any],
    fingerprint: str,
    versions: dict[str, str],
    progress: Callable[[int], None],
) -> dict[str, Any]:
    with whole_folder(Path(cfg.index)) as scratch:
        count = _write_collection(cfg.corpus, scratch / "collection", progress)
        indexed = _run_anserini(scratch / "collection", scratch / "lucene", cfg.threads)
        if indexed != count:
            raise readers.InputError(f"{cfg.corpus}: {count} passages, but {indexed} were indexed")
        shutil.rmtree(scratch / "collection")
        manifest = {
            "engine": "bm25",
            "fingerprint": fingerprint,
            "passages": count,
            "corpus": corpus,
            "versions": versions,
        }
        (scratch / MANIFEST).write_text(json.dumps(manifest, indent=2) + "\n", encoding="utf-8")
    return manifest


def _write_collection(corpus: str, folder: Path, progress: Callable[[int], None]) -> int:
    """The corpus as Anserini's JsonCollection; how many passages."""
    folder.mkdir()
    count = 0
    with (folder / "passages.jsonl").open("w", encoding="utf-8") as file:
        for row in readers.passages(corpus):
            line = {"id": row["passage_id"], "contents": row["contents"]}
            file.write(json.dumps(line, ensure_ascii=False) + "\n")
            count += 1
            if count % 1000 == 0:
                progress(count)
    if count == 0:
        raise readers.InputError(f"{corpus}: holds no passage")
    progress(count)
    return count


def _run_anserini(collection: Path, index: Path, threads: int) -> int:
    """Builds the index; how many passages Anserini says are in it."""
    command = [
        str(java_home() / "bin" / "java"),
        "-cp",
        str(anserini_jar()),
        "io.anserini.index.IndexCollection",
        *("-collection", "JsonCollection"),
        *("-generator", "DefaultLuceneDocumentGenerator"),
        *("-input", str(collection)),
        *("-index", str(index)),
        *("-threads", str(threads)),
        "-storeRaw",
    ]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    said = re.search(r"Total ([\d,]+) documents indexed", done.stdout + done.stderr)
    if done.returncode != 0 or said is None:
        last = (done.stdout + done.stderr).strip().splitlines()[-1:]
        raise readers.InputError(f"Anserini could not index the corpus ({done.returncode}): {last}")
    return int(said[1].replace(",", ""))


def _hit(hit: Any) -> Hit:
    raw = json.loads(hit.lucene_document.get("raw"))
    title, text = split_contents(raw["contents"])
    return Hit(str(hit.docid), title, text, float(hit.score))
