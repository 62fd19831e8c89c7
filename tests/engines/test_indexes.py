"""Tests of pipeline.engines.indexes: where the index over a corpus lies."""

from pathlib import Path

import pytest

from pipeline.config import EmbedderConfig, RetrieverConfig
from pipeline.engines import indexes
from pipeline.engines.index_folder import MANIFEST
from pipeline.readers import InputError


def corpus(folder: Path, text: str) -> str:
    """A corpus of one passage, always under one name."""
    path = folder / "corpus.jsonl"
    path.write_text(f'{{"id": "a", "contents": "{text}"}}\n', encoding="utf-8")
    return str(path)


def test_the_place_of_an_index_is_that_of_its_corpus_engine_and_model(tmp_path: Path) -> None:
    def place(text: str, **settings: object) -> str:
        cfg = RetrieverConfig.model_validate(settings)
        return indexes.place(cfg, corpus(tmp_path, text), "/out")

    def dense(**settings: object) -> str:
        embedder = EmbedderConfig.model_validate({"engine": "fake", "model": "fake", **settings})
        return place("one", engine="dense", embedder=embedder)

    first = place("one")
    assert first.startswith("/out/indexes/bm25-")
    assert first == place("one", n=9, k1=1.2, threads=2) != place("two")
    assert dense() == dense(batch_size=7, threads=3) != dense(pooling="cls")
    assert len({first, dense(), dense(model="other")}) == 3


def test_a_corpus_that_is_missing_has_no_place_for_its_index() -> None:
    with pytest.raises(InputError, match=r"input\.corpus: /gone/corpus\.jsonl: no such file"):
        indexes.place(RetrieverConfig(), "/gone/corpus.jsonl", "/out")


def test_an_index_is_there_once_its_manifest_is(tmp_path: Path) -> None:
    assert not indexes.is_there(str(tmp_path))
    (tmp_path / MANIFEST).write_text("{}", encoding="utf-8")
    assert indexes.is_there(str(tmp_path))
