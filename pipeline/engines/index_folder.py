"""What every index folder has: a manifest that says what it holds, and a place of its own."""

import json
from pathlib import Path
from typing import Any

from pipeline import readers
from pipeline.engines.base import ModelNotFound
from pipeline.runs.fingerprint import file_digest

MANIFEST = "winnow.json"


def read_manifest(index: str, engine: str | None = None) -> dict[str, Any]:
    """The manifest of an index folder; ModelNotFound where there is none, or one of another
    engine than is asked for."""
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
    found = engine_of(manifest)
    if engine is not None and found != engine:
        raise ModelNotFound(
            f"retriever.index {index!r}: holds an index of engine {found}, not {engine}"
        )
    return manifest


def engine_of(manifest: dict[str, Any]) -> str:
    """The engine that an index is for; older manifests name none and are BM25's."""
    return str(manifest.get("engine", "bm25"))


def corpus_entry(corpus: str, *, key: str = "corpus") -> dict[str, Any]:
    """Path, size and hash of a corpus, as a manifest holds them; InputError, naming the config's
    `key`, when it is absent."""
    try:
        size, sha256 = file_digest(corpus)
    except FileNotFoundError:
        raise readers.InputError(f"{key}: {corpus}: no such file") from None
    return {"path": corpus, "bytes": size, "sha256": sha256}


def current_manifest(
    index: str, engine: str, unfinished: str | None = None
) -> dict[str, Any] | None:
    """The manifest of an index that may be replaced; None where the place is free.

    InputError where something else is there: a file, an index of another engine, or a folder
    with contents that the file `unfinished` does not mark as an index of this engine under way.
    """
    target = Path(index)
    if (target / MANIFEST).is_file():
        manifest = read_manifest(index)
        if engine_of(manifest) != engine:
            raise readers.InputError(
                f"index {index!r}: holds an index of engine {engine_of(manifest)}; "
                "name another folder"
            )
        return manifest
    ours = unfinished is not None and (target / unfinished).exists()
    if target.exists() and not ours and (not target.is_dir() or any(target.iterdir())):
        raise readers.InputError(
            f"index {index!r}: something else is there; name an empty or a new folder"
        )
    return None
