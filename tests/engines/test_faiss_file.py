"""Faiss files of other tools: searched where they lie, and refused where they do not fit."""

import json
import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from pipeline.config import EmbedderConfig, RetrieverConfig
from pipeline.engines import indexes
from pipeline.engines.base import ModelNotFound, Passage
from pipeline.engines.dense import DenseRetriever, describe
from pipeline.engines.embedder import Embedder, passage_text
from pipeline.engines.faiss_file import CorpusLines
from pipeline.readers import InputError

FAKE = EmbedderConfig(engine="fake", model="fake", normalize=True)
TEXTS = ("the keel of the hull", "bread and salt", "a moon and a star", "flour and yeast", "rope")
QUESTIONS = ["bread or flour", "the keel", "a star"]
Make = Callable[..., RetrieverConfig]


def write_corpus(path: Path, texts: Sequence[str] = TEXTS) -> str:
    """FlashRAG's corpus.jsonl, a blank line within."""
    lines = [json.dumps({"id": f"p{i}", "contents": f'"T{i}"\n{t}'}) for i, t in enumerate(texts)]
    path.write_text("\n\n".join([lines[0], "\n".join(lines[1:])]) + "\n")
    return str(path)


def vectors() -> Any:
    """(passages, D) of the corpus, as the encoder gives them."""
    return Embedder(FAKE).encode([passage_text(f"T{i}", t) for i, t in enumerate(TEXTS)], "passage")


@pytest.fixture
def make(tmp_path: Path) -> Make:
    """The config of a faiss file over the corpus, made as FlashRAG's index builder does it."""

    def made(kind: str = "Flat", metric: str = "METRIC_INNER_PRODUCT", **keys: Any) -> Any:
        import faiss

        index = faiss.index_factory(64, kind, getattr(faiss, metric))
        index.train(vectors())
        if kind.startswith("IDMap"):
            index.add_with_ids(vectors(), np.arange(len(TEXTS)) + 7)
        else:
            index.add(vectors())
        faiss.write_index(index, str(tmp_path / "fake.index"))
        whole = {
            "engine": "dense",
            "index": str(tmp_path / "fake.index"),
            "corpus": write_corpus(tmp_path / "corpus.jsonl"),
            "embedder": FAKE,
            **keys,
        }
        return RetrieverConfig.model_validate(whole)

    return made


def test_row_i_of_the_file_is_line_i_of_the_corpus(make: Make) -> None:
    scores = Embedder(FAKE).encode(QUESTIONS, "query") @ vectors().T
    for hits, wanted in zip(DenseRetriever(make()).search(QUESTIONS, n=9), scores, strict=True):
        order = np.argsort(-wanted)
        assert [hit.passage_id for hit in hits] == [f"p{i}" for i in order]
        assert [hit.score for hit in hits] == pytest.approx(wanted[order].tolist(), abs=1e-5)
        assert [(hit.title, hit.text) for hit in hits] == [(f"T{i}", TEXTS[i]) for i in order]


def test_under_l2_the_nearest_is_first_and_its_score_minus_the_squared_distance(make: Make) -> None:
    retriever = DenseRetriever(make(metric="METRIC_L2"))
    for question, hits in zip(QUESTIONS, retriever.search(QUESTIONS, n=3), strict=True):
        query = Embedder(FAKE).encode([question], "query")[0]
        distances = ((vectors() - query) ** 2).sum(axis=1)
        order = np.argsort(distances)[:3]
        assert [hit.passage_id for hit in hits] == [f"p{i}" for i in order]
        wanted = (-distances[order]).tolist()
        assert [hit.score for hit in hits] == pytest.approx(wanted, abs=1e-5)
        pool = [Passage(hit.passage_id, hit.title, hit.text) for hit in hits]
        assert retriever.score(question, pool) == pytest.approx(wanted, abs=1e-5)


@pytest.mark.parametrize(
    ("kind", "search", "counts"),
    [
        ("Flat", {}, None),
        ("IVF2,Flat", {"nprobe": 2}, "nprobe"),
        ("RR64,IVF2,Flat", {"nprobe": 2}, "nprobe"),
        ("HNSW8", {"ef_search": 16}, "ef_search"),
        ("RR64,HNSW8", {"ef_search": 16}, "ef_search"),
    ],
)
def test_every_kind_is_searched_with_the_settings_that_count_for_it(
    make: Make, kind: str, search: dict[str, int], counts: str | None
) -> None:
    def found(cfg: RetrieverConfig) -> list[list[str]]:
        hits = DenseRetriever(cfg).search(QUESTIONS, n=5)
        return [[hit.passage_id for hit in of_question] for of_question in hits]

    exact = found(make(metric="METRIC_L2"))
    cfg = make(kind, metric="METRIC_L2", **search)
    assert found(cfg) == exact
    assert {"nprobe", "ef_search"} & {*describe(cfg)} == ({counts} if counts else set())


def test_its_fingerprint_is_of_the_contents_and_the_retriever_s_own(
    make: Make, tmp_path: Path
) -> None:
    cfg = make()
    before = indexes.describe(cfg)
    assert before["index"] == DenseRetriever(cfg).fingerprint
    for name in ("fake.index", "corpus.jsonl"):
        os.utime(tmp_path / name, ns=(1, 1))
    assert indexes.describe(cfg) == before
    with (tmp_path / "corpus.jsonl").open("a") as file:
        file.write("\n")
    assert indexes.describe(cfg)["index"] != before["index"]
    prefixed = cfg.model_copy(update={"embedder": FAKE.model_copy(update={"query_prefix": "q "})})
    assert indexes.describe(prefixed)["embedder"] != before["embedder"]


def refusal(cfg: RetrieverConfig) -> str:
    """The message with which the driver and a worker refuse a config alike."""
    with pytest.raises(ModelNotFound) as on_driver:
        describe(cfg)
    with pytest.raises(ModelNotFound) as in_worker:
        DenseRetriever(cfg)
    assert str(on_driver.value) == str(in_worker.value)
    return str(on_driver.value)


def test_what_does_not_go_together_is_refused_with_its_numbers(make: Make, tmp_path: Path) -> None:
    cfg = make()
    write_corpus(tmp_path / "corpus.jsonl", TEXTS[:4])
    assert refusal(cfg) == (
        f"retriever.index '{tmp_path}/fake.index': holds 5 vectors, and retriever.corpus "
        f"'{tmp_path}/corpus.jsonl' 4 passages; allowed: one vector a line, in the same order"
    )
    assert "faiss metric 2; allowed: inner product (0) and L2 (1)" in refusal(
        make(metric="METRIC_L1")
    )
    assert "an IDMap numbers its rows itself" in refusal(make("IDMap,Flat"))
    (tmp_path / "fake.index").write_bytes(b"no index")
    assert "fake.index: not a faiss index that can be read" in refusal(cfg)


def test_an_encoder_of_other_dimensions_is_refused_before_its_weights_are_read(
    make: Make, tmp_path: Path
) -> None:
    (tmp_path / "model").mkdir()
    described = {"model_type": "bert", "hidden_size": 32, "num_attention_heads": 2}
    (tmp_path / "model" / "config.json").write_text(json.dumps(described))
    cfg = make(embedder=EmbedderConfig(model=str(tmp_path / "model")))
    assert refusal(cfg) == (
        f"retriever.index '{tmp_path}/fake.index': its vectors have 64 dimensions, those of "
        f"retriever.embedder.model '{tmp_path}/model' 32; allowed: the encoder that it was built "
        "with"
    )


def test_a_file_that_is_missing_is_named_with_its_key(make: Make, tmp_path: Path) -> None:
    gone = str(tmp_path / "gone")
    assert refusal(make(index=gone)) == f"retriever.index: {gone}: no such file"
    assert refusal(make(corpus=gone)) == f"retriever.corpus: {gone}: no such file"
    assert refusal(make(index=str(tmp_path))).startswith(f"retriever.index: {tmp_path}: a folder;")
    bare = make().model_copy(update={"corpus": None})
    assert "set retriever.corpus and retriever.embedder" in refusal(bare)


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"index": None}, "corpus goes with a faiss file: name it in `index`"),
        ({"embedder": None}, "and its encoder in `embedder`"),
        ({"corpus": "s3://bucket/corpus.jsonl"}, "must lie on a disk"),
        ({"corpus": "corpus.jsonl.gz"}, "must be JSON Lines that are not packed"),
    ],
)
def test_a_config_that_cannot_name_a_file_and_its_corpus_is_refused(
    make: Make, changes: dict[str, Any], said: str
) -> None:
    with pytest.raises(ValidationError, match=said):
        make(**changes)


@given(st.lists(st.tuples(st.sampled_from(["", "\n", "  \n", "\r\n"]), st.text(min_size=1))))
def test_lines_are_found_whatever_stands_between_them(
    tmp_path_factory: pytest.TempPathFactory, entries: list[tuple[str, str]]
) -> None:
    path = tmp_path_factory.mktemp("lines") / "corpus.jsonl"
    passages = [f"x{text}" for _, text in entries]
    lines = (
        blank + json.dumps({"id": i, "contents": f"T\n{text}"}, ensure_ascii=False) + "\n"
        for i, ((blank, _), text) in enumerate(zip(entries, passages, strict=True))
    )
    path.write_bytes("".join(lines).encode())
    found = CorpusLines(str(path))
    assert len(found) == len(entries)
    assert [found[i].text for i in range(len(found))] == [text.strip() for text in passages]


def test_a_line_that_is_no_passage_is_named_when_it_is_a_hit(tmp_path: Path) -> None:
    (tmp_path / "corpus.jsonl").write_text('{"id": 1, "contents": "a"}\n{"id": 2}')
    lines = CorpusLines(str(tmp_path / "corpus.jsonl"))
    assert lines[0] == ("1", "", "a")
    with pytest.raises(InputError, match=r"corpus\.jsonl: passage 1 from 0: text must be a text"):
        lines[1]
    with pytest.raises(IndexError, match="row 2; the corpus has 2"):
        lines[2]
