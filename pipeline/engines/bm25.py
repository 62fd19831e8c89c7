"""BM25 over a Lucene index (Anserini, through pyserini).

The index stores every passage's raw JSON, so a hit carries its own text. Anserini's default
English analysis serves both sides: what the index was built with is what analyses a question.
"""

import json
import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Sequence
from importlib import metadata
from pathlib import Path
from typing import Any

from pipeline import readers
from pipeline.config import BuildIndexConfig, RetrieverConfig
from pipeline.engines.base import Hit, ModelNotFound, split_contents
from pipeline.engines.java import anserini_jar, java_home, start_jvm
from pipeline.runs.fingerprint import digest, file_digest

MANIFEST = "winnow.json"


class Bm25Retriever:
    """See engines.base.Retriever. Each process holds one JVM."""

    def __init__(self, cfg: RetrieverConfig) -> None:
        if cfg.index is None:
            raise ModelNotFound("retriever.index: missing")
        self.fingerprint = str(read_manifest(cfg.index)["fingerprint"])
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


def build_index(cfg: BuildIndexConfig, progress: Callable[[int], None]) -> dict[str, Any]:
    """Indexes a FlashRAG corpus into the folder `cfg.index` and returns its manifest.

    An index of the same corpus and versions is left as it is. `progress` is called with the
    number of passages read. InputError on a bad line; the folder appears whole or not at all.
    """
    size, sha256 = _corpus_digest(cfg.corpus)
    versions = {name: metadata.version(name) for name in ("pyserini",)}
    fingerprint = digest({"corpus": sha256, "engine": "bm25", **versions})
    target = Path(cfg.index).expanduser().absolute()
    if (target / MANIFEST).is_file():
        manifest = read_manifest(cfg.index)
        if manifest["fingerprint"] == fingerprint:
            return manifest
    elif target.exists() and (not target.is_dir() or any(target.iterdir())):
        raise readers.InputError(
            f"index {cfg.index!r}: something else is there; name an empty or a new folder"
        )
    target.parent.mkdir(parents=True, exist_ok=True)
    scratch = Path(tempfile.mkdtemp(prefix=f".{target.name}-", dir=target.parent))
    try:
        count = _write_collection(cfg.corpus, scratch / "collection", progress)
        indexed = _run_anserini(scratch / "collection", scratch / "lucene", cfg.threads)
        if indexed != count:
            raise readers.InputError(f"{cfg.corpus}: {count} passages, but {indexed} were indexed")
        shutil.rmtree(scratch / "collection")
        manifest = {
            "fingerprint": fingerprint,
            "passages": count,
            "corpus": {"path": cfg.corpus, "bytes": size, "sha256": sha256},
            "versions": versions,
        }
        (scratch / MANIFEST).write_text(json.dumps(manifest, indent=2) + "\n", encoding="utf-8")
        os.chmod(scratch, 0o755)
        if target.exists():
            shutil.rmtree(target)
        os.rename(scratch, target)
    except BaseException:
        shutil.rmtree(scratch, ignore_errors=True)
        raise
    return manifest


def read_manifest(index: str) -> dict[str, Any]:
    """The manifest of an index folder; ModelNotFound where there is none."""
    path = Path(index).expanduser() / MANIFEST
    if not path.is_file():
        raise ModelNotFound(
            f"retriever.index {index!r}: no index there; "
            "build one with jobs/build_index.py (corpus=... index=...)"
        )
    try:
        manifest: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise ModelNotFound(f"{path}: not a manifest of ours: {error}") from None
    return manifest


def _corpus_digest(corpus: str) -> tuple[int, str]:
    try:
        return file_digest(corpus)
    except FileNotFoundError:
        raise readers.InputError(f"{corpus}: no such file") from None


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
