"""Dense search against brute force, cut into shards, approximate, and refused where it must be."""

import json
import shutil
import threading
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pipeline.config import BuildIndexConfig, EmbedderConfig, FaissConfig, RetrieverConfig
from pipeline.engines import dense_index
from pipeline.engines.base import Floats, ModelNotFound, Passage
from pipeline.engines.dense import DenseRetriever, describe
from pipeline.engines.embedder import Embedder, passage_text
from pipeline.engines.index_folder import read_manifest
from pipeline.engines.indexes import ensure
from pipeline.engines.passages import BATCH_ROWS, Passages, write
from pipeline.readers import InputError

FAKE = EmbedderConfig(engine="fake", model="fake", normalize=True)
WORDS = ("keel", "hull", "mast", "sail", "rope", "bread", "flour", "yeast", "salt", "moon", "star")
COUNT = 400
Build = Callable[..., DenseRetriever]


def rows(count: int) -> list[dict[str, str]]:
    """Passages of a few words each, every one with a word of its own."""
    draw = np.random.default_rng(7)
    return [
        {"id": f"p{i:04d}", "contents": f"Title {i}\n{' '.join(draw.choice(WORDS, 5))} own{i}"}
        for i in range(count)
    ]


def write_corpus(path: Path, count: int = COUNT) -> Path:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows(count)))
    return path


def config(folder: Path, **changes: object) -> BuildIndexConfig:
    corpus = folder / "corpus.jsonl"
    if not corpus.exists():
        write_corpus(corpus)
    base: dict[str, object] = {
        "engine": "dense",
        "corpus": str(corpus),
        "index": str(folder / "index"),
        "embedder": FAKE,
        "passages_per_shard": 64,
    }
    return BuildIndexConfig.model_validate({**base, **changes})


def build(cfg: BuildIndexConfig) -> dict[str, object]:
    return dense_index.build_index(cfg, lambda n: None, dense_index.encode_here)


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Build:
    """A retriever over the corpus by faiss settings; every index is built once."""
    folder = tmp_path_factory.mktemp("dense")
    known: dict[str, str] = {}

    def make(faiss: dict[str, object] | None = None, **search: object) -> DenseRetriever:
        key = json.dumps(faiss or {})
        if key not in known:
            known[key] = str(folder / f"index-{len(known)}")
            build(config(folder, index=known[key], faiss=FaissConfig.model_validate(faiss or {})))
        cfg = {"engine": "dense", "index": known[key], **search}
        return DenseRetriever(RetrieverConfig.model_validate(cfg))

    return make


def passages_matrix() -> Floats:
    texts = [passage_text(*row["contents"].split("\n")) for row in rows(COUNT)]
    return Embedder(FAKE).encode(texts, "passage")


QUESTIONS = ["Who laid the keel of the hull?", "bread and salt", "own17", "a comet in orbit own3"]


def test_flat_search_equals_brute_force(made: Build) -> None:
    scores = Embedder(FAKE).encode(QUESTIONS, "query") @ passages_matrix().T
    for hits, wanted in zip(made().search(QUESTIONS, n=10), scores, strict=True):
        order = sorted(range(COUNT), key=lambda i: (-wanted[i], i))[:10]
        assert [hit.score for hit in hits] == pytest.approx([wanted[i] for i in order], abs=1e-5)
        assert hits[0].passage_id == f"p{order[0]:04d}"


def test_hits_carry_the_texts_of_their_lines(made: Build) -> None:
    by_id = {row["id"]: row["contents"] for row in rows(COUNT)}
    for hits in made().search(QUESTIONS, n=5):
        assert len(hits) == 5
        for hit in hits:
            assert f"{hit.title}\n{hit.text}" == by_id[hit.passage_id]


def test_a_given_passage_has_the_score_of_its_hit(made: Build) -> None:
    for question, hits in zip(QUESTIONS, made().search(QUESTIONS, n=10), strict=True):
        pool = [Passage(hit.passage_id, hit.title, hit.text) for hit in hits[::-1]]
        wanted = [hit.score for hit in hits[::-1]]
        assert made().score(question, pool) == pytest.approx(wanted, abs=1e-5)
    assert made().score("keel", []) == []


def test_a_given_passage_is_scored_by_its_own_text(made: Build) -> None:
    there, elsewhere = made().score(
        "bread and salt", [Passage("p0000", "", "a comet"), Passage("none", "", "bread and salt")]
    )
    assert elsewhere == pytest.approx(1, abs=1e-5)
    assert there < 0.9


@settings(max_examples=25)
@given(shards=st.integers(2, 5), n=st.integers(1, COUNT + 5), seed=st.integers(0, 99))
def test_shards_searched_one_by_one_equal_the_whole(
    made: Build, shards: int, n: int, seed: int
) -> None:
    vectors = np.random.default_rng(seed).standard_normal((3, 64)).astype(np.float32)
    whole_scores, whole_rows = made().nearest(vectors, n=n)
    scores, found = made({"index_shards": shards}).nearest(vectors, n=n)
    assert found.shape == (3, min(n, COUNT))
    np.testing.assert_allclose(scores, whole_scores, atol=1e-5)
    assert found.tolist() == whole_rows.tolist()


def test_lists_in_shards_equal_lists_in_one_file(made: Build) -> None:
    ivf: dict[str, object] = {"kind": "ivf", "nlist": 8}
    vectors = np.random.default_rng(3).standard_normal((20, 64)).astype(np.float32)
    _, whole = made(ivf, nprobe=2).nearest(vectors, n=7)
    _, cut = made({**ivf, "index_shards": 3}, nprobe=2).nearest(vectors, n=7)
    assert cut.tolist() == whole.tolist()


@pytest.mark.parametrize(
    ("faiss", "search", "floor"),
    [
        ({"kind": "ivf", "nlist": 8}, {"nprobe": 8}, 1.0),
        ({"kind": "ivf", "nlist": 8}, {"nprobe": 4}, 0.6),
        ({"kind": "hnsw", "links": 16}, {"ef_search": 64}, 0.9),
        ({"kind": "hnsw", "links": 16, "index_shards": 2}, {"ef_search": 64}, 0.9),
    ],
)
def test_approximate_search_finds_most_of_the_exact_ten(
    made: Build, faiss: dict[str, object], search: dict[str, object], floor: float
) -> None:
    vectors = Embedder(FAKE).encode([f"{a} {b}" for a in WORDS[:5] for b in WORDS[5:]], "query")
    _, exact = made().nearest(vectors, n=10)
    _, found = made(faiss, **search).nearest(vectors, n=10)
    pairs = zip(exact.tolist(), found.tolist(), strict=True)
    recall = np.mean([len(set(a) & set(b)) / 10 for a, b in pairs])
    assert recall >= floor


def test_more_lists_searched_find_no_less(made: Build) -> None:
    vectors = Embedder(FAKE).encode(WORDS, "query")
    ivf: dict[str, object] = {"kind": "ivf", "nlist": 8}
    best = [made(ivf, nprobe=n).nearest(vectors, n=10)[0].sum() for n in (1, 2, 4, 8)]
    assert best == sorted(best)
    assert best[0] < best[-1]


def test_too_few_found_by_lists_are_left_out_and_not_made_up(made: Build) -> None:
    retriever = made({"kind": "ivf", "nlist": 8}, nprobe=1)
    (hits,) = retriever.search(["keel"], n=COUNT)
    assert 0 < len(hits) < COUNT
    assert len({hit.passage_id for hit in hits}) == len(hits)


def test_equal_passages_stand_in_the_order_of_their_ids(tmp_path: Path) -> None:
    lines = [{"id": key, "contents": "T\nthe keel"} for key in ("c", "a", "b")]
    (tmp_path / "corpus.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    build(config(tmp_path))
    retriever = DenseRetriever(RetrieverConfig(engine="dense", index=str(tmp_path / "index")))
    (hits,) = retriever.search(["keel"], n=5)
    assert [hit.passage_id for hit in hits] == ["a", "b", "c"]
    assert retriever.search([], n=5) == []


def test_the_faiss_file_of_one_shard_holds_line_i_as_row_i(made: Build, tmp_path: Path) -> None:
    import faiss

    cfg = config(tmp_path)
    manifest = build(cfg)
    assert manifest["passages"] == COUNT and manifest["dimensions"] == 64
    (path,) = Path(cfg.index).glob("faiss-*/shard-0000.faiss")
    index = faiss.read_index(str(path))
    assert index.metric_type == faiss.METRIC_INNER_PRODUCT
    np.testing.assert_allclose(index.reconstruct_n(0, COUNT), passages_matrix(), atol=1e-6)


def test_another_faiss_kind_finds_the_vectors_and_another_embedder_does_not(
    tmp_path: Path,
) -> None:
    def stamps() -> dict[str, int]:
        parts = Path(cfg.index).glob("vectors-*/part-*.npy")
        return {str(path): path.stat().st_mtime_ns for path in parts}

    cfg = config(tmp_path)
    first, before = build(cfg), stamps()
    assert len(before) == 7  # 400 passages, 64 a shard
    assert build(cfg) == first
    other = build(config(tmp_path, faiss=FaissConfig(kind="hnsw")))
    assert other["fingerprint"] != first["fingerprint"] and stamps() == before
    assert len(list(Path(cfg.index).glob("faiss-*"))) == 1
    build(config(tmp_path, embedder=FAKE.model_copy(update={"passage_prefix": "keel "})))
    assert not stamps().keys() & before.keys()
    assert not (Path(cfg.index) / "building.json").exists()
    assert not (Path(cfg.index) / "lease.json").exists()


def test_a_prefix_of_questions_makes_another_index_and_encodes_nothing(tmp_path: Path) -> None:
    cfg = config(tmp_path)
    first = build(cfg)
    vectors = {path.name for path in Path(cfg.index).glob("vectors-*")}
    second = build(config(tmp_path, embedder=FAKE.model_copy(update={"query_prefix": "find "})))
    assert second["fingerprint"] != first["fingerprint"]
    assert {path.name for path in Path(cfg.index).glob("vectors-*")} == vectors


def test_a_build_that_stopped_encodes_only_what_is_missing(tmp_path: Path) -> None:
    cfg = config(tmp_path)
    made_shards: list[int] = []

    def half(build: dense_index.Build, shards: Sequence[int], lost: threading.Event) -> None:
        dense_index.encode_here(build, shards[:3], lost)
        raise KeyboardInterrupt

    def rest(build: dense_index.Build, shards: Sequence[int], lost: threading.Event) -> None:
        made_shards.extend(shards)
        dense_index.encode_here(build, shards, lost)

    with pytest.raises(KeyboardInterrupt):
        dense_index.build_index(cfg, lambda n: None, half)
    with pytest.raises(ModelNotFound, match="no index there"):
        read_manifest(cfg.index)
    (damaged,) = Path(cfg.index).glob("vectors-*/part-000001.npy")
    damaged.write_bytes(damaged.read_bytes()[:-10])
    resumed = dense_index.build_index(cfg, lambda n: None, rest)
    assert made_shards == [1, 3, 4, 5, 6]
    assert resumed == build(config(tmp_path, index=str(tmp_path / "undisturbed"))) | {
        "files": resumed["files"]
    }
    one, other = (
        sorted(Path(folder).glob("vectors-*/part-*.npy"))
        for folder in (cfg.index, tmp_path / "undisturbed")
    )
    assert [path.read_bytes() for path in one] == [path.read_bytes() for path in other]


def test_settings_of_another_kind_leave_the_index_as_it_is(tmp_path: Path) -> None:
    first = build(config(tmp_path))
    assert build(config(tmp_path, faiss=FaissConfig(nlist=5, links=5))) == first


@pytest.mark.parametrize(
    ("faiss", "message"),
    [
        ({"kind": "ivf", "nlist": COUNT + 1}, f"faiss.nlist {COUNT + 1} exceeds the corpus"),
        ({"index_shards": COUNT + 1}, f"faiss.index_shards {COUNT + 1} exceeds the corpus"),
    ],
)
def test_more_lists_or_shards_than_passages_are_refused(
    faiss: dict[str, object], message: str, tmp_path: Path
) -> None:
    with pytest.raises(InputError, match=message):
        build(config(tmp_path, faiss=FaissConfig.model_validate(faiss)))


def test_a_folder_of_something_else_is_left_alone(tmp_path: Path) -> None:
    index = tmp_path / "index"
    index.mkdir()
    (index / "keep.txt").write_text("keep")
    with pytest.raises(InputError, match="something else is there"):
        build(config(tmp_path))
    (index / "winnow.json").write_text('{"fingerprint": "f"}')  # as BM25's were at first
    with pytest.raises(InputError, match="holds an index of engine bm25"):
        build(config(tmp_path))
    with pytest.raises(ModelNotFound, match="holds an index of engine bm25, not dense"):
        describe(RetrieverConfig(engine="dense", index=str(index)))
    assert (index / "keep.txt").read_text() == "keep"


def test_the_embedder_of_the_questions_must_be_that_of_the_passages(tmp_path: Path) -> None:
    build(config(tmp_path))

    def search(**changes: object) -> RetrieverConfig:
        given = FAKE.model_copy(update=changes)
        return RetrieverConfig(engine="dense", index=str(tmp_path / "index"), embedder=given)

    same = RetrieverConfig(engine="dense", index=str(tmp_path / "index"))
    assert describe(search(batch_size=3)) == describe(same)
    assert describe(search(query_prefix="find ")) != describe(same)
    with pytest.raises(ModelNotFound, match="normalize, pooling differ from the embedder"):
        describe(search(normalize=False, pooling="cls"))
    with pytest.raises(ModelNotFound, match="passage_prefix differ"):
        DenseRetriever(search(passage_prefix="p "))


@pytest.mark.engine
def test_a_model_that_was_replaced_since_is_refused(minilm_folder: Path, tmp_path: Path) -> None:
    model = tmp_path / "model"
    shutil.copytree(minilm_folder, model)
    write_corpus(tmp_path / "corpus.jsonl", count=5)
    mine = EmbedderConfig(model=str(model), max_tokens=32)
    build(config(tmp_path, embedder=mine))
    cfg = RetrieverConfig(engine="dense", index=str(tmp_path / "index"))
    (hits,) = DenseRetriever(cfg).search(["own3"], n=1)
    assert hits[0].passage_id == "p0003"
    (model / "config.json").write_text((model / "config.json").read_text() + "\n")
    with pytest.raises(ModelNotFound, match="model differ from the embedder"):
        describe(cfg)


def test_search_settings_count_only_for_their_kind(tmp_path: Path) -> None:
    def found(kind: str, **search: object) -> dict[str, object]:
        faiss = FaissConfig.model_validate({"kind": kind, "nlist": 4})
        build(config(tmp_path, faiss=faiss))
        cfg = {"engine": "dense", "index": str(tmp_path / "index"), **search}
        return describe(RetrieverConfig.model_validate(cfg))

    assert found("flat", nprobe=1) == found("flat", nprobe=2)
    assert found("ivf", nprobe=1) != found("ivf", nprobe=2)
    assert found("hnsw", ef_search=10, k1=1) == found("hnsw", ef_search=10, k1=2)
    assert found("hnsw", ef_search=10) != found("hnsw", ef_search=20)


def test_a_faiss_file_cut_short_is_named(tmp_path: Path) -> None:
    build(config(tmp_path))
    (path,) = (tmp_path / "index").glob("faiss-*/*.faiss")
    path.write_bytes(path.read_bytes()[:200])
    with pytest.raises(ModelNotFound, match="shard-0000.faiss: not a faiss index"):
        DenseRetriever(RetrieverConfig(engine="dense", index=str(tmp_path / "index")))


def test_an_index_is_ensured_once(tmp_path: Path) -> None:
    corpus = str(write_corpus(tmp_path / "corpus.jsonl", count=9))
    cfg = RetrieverConfig(engine="dense", embedder=FAKE)
    folder = ensure(cfg, corpus, str(tmp_path / "index"))
    stamp = (tmp_path / "index" / "winnow.json").stat().st_mtime_ns
    assert ensure(cfg, corpus, folder) == folder
    assert (tmp_path / "index" / "winnow.json").stat().st_mtime_ns == stamp


@pytest.mark.parametrize("count", [1, BATCH_ROWS, BATCH_ROWS + 1])
def test_passages_are_read_by_row_across_batches(count: int, tmp_path: Path) -> None:
    corpus = tmp_path / "corpus.jsonl"
    lines = (json.dumps({"id": i, "contents": f'"T{i}"\ntext {i}'}) for i in range(count))
    corpus.write_text("\n".join(lines))
    assert write(str(corpus), tmp_path / "p.arrow", lambda n: None) == count
    passages = Passages(str(tmp_path / "p.arrow"))
    assert len(passages) == count
    for row in {0, count // 2, count - 1}:
        assert passages[row] == (str(row), f"T{row}", f"text {row}")
    assert passages.between(count - 1, count) == [passages[count - 1]]
    with pytest.raises(IndexError, match=f"row {count}"):
        passages[count]


@pytest.mark.parametrize(
    ("text", "message"),
    [("\n", "holds no passage"), ('{"id": 1, "contents": "a"}\n{"id": 1}\n', "corpus.jsonl:2")],
)
def test_a_bad_corpus_leaves_no_passages_behind(text: str, message: str, tmp_path: Path) -> None:
    (tmp_path / "corpus.jsonl").write_text(text)
    with pytest.raises(InputError, match=message):
        write(str(tmp_path / "corpus.jsonl"), tmp_path / "p.arrow", lambda n: None)
    assert [path.name for path in tmp_path.iterdir()] == ["corpus.jsonl"]
