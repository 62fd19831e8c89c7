"""Fusion over retrievers that answer from a table, and its place in a run's fingerprint."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest
from pydantic import ValidationError

from pipeline.config import (
    BuildIndexConfig,
    EmbedderConfig,
    MemberConfig,
    OfflineIgpConfig,
    RetrieverConfig,
)
from pipeline.engines import bm25, dense_index, indexes
from pipeline.engines.base import Hit, ModelNotFound, Passage, Refusal
from pipeline.engines.fusion import FusionRetriever
from pipeline.engines.table import RETRIEVERS
from pipeline.loading import ConfigError, load
from pipeline.stages import retrieve

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"


class Table:
    """A retriever that finds what it was told to."""

    def __init__(self, fingerprint: str, found: Mapping[str, Sequence[Hit]]) -> None:
        self.fingerprint, self._found = fingerprint, found

    def search(self, questions: Sequence[str], *, n: int) -> list[list[Hit]]:
        return [list(self._found[question])[:n] for question in questions]

    def score(self, question: str, passages: Sequence[Passage]) -> list[float]:
        known = {hit.passage_id: hit.score for hit in self._found[question]}
        if lacking := [p.passage_id for p in passages if p.passage_id not in known]:
            raise Refusal(f"passage {lacking[0]!r} is not in the index")
        return [known[passage.passage_id] for passage in passages]


def hits(*ids: str, text: str = "text") -> list[Hit]:
    return [Hit(passage_id, "title", text, 9.0 - i) for i, passage_id in enumerate(ids)]


def test_what_several_find_comes_first_with_the_fused_score() -> None:
    one = Table("1", {"q": hits("a", "b"), "r": []})
    two = Table("2", {"q": hits("c", "b"), "r": hits("d")})
    first, second = FusionRetriever([one, two], k=60, depth=10).search(["q", "r"], n=2)
    assert [hit.passage_id for hit in first] == ["b", "a"]
    assert [hit.score for hit in first] == pytest.approx([2 / 62, 1 / 61])
    assert [hit.passage_id for hit in second] == ["d"]


def test_members_are_asked_for_depth_and_not_for_n() -> None:
    one = Table("1", {"q": hits("a", "b", "x")})
    two = Table("2", {"q": hits("c", "d", "x")})
    deep, shallow = (FusionRetriever([one, two], k=60, depth=depth) for depth in (3, 2))
    assert [hit.passage_id for hit in deep.search(["q"], n=1)[0]] == ["x"]
    assert [hit.passage_id for hit in shallow.search(["q"], n=1)[0]] == ["a"]


def given(*ids: str) -> list[Passage]:
    return [Passage(passage_id, "title", "text") for passage_id in ids]


def test_given_passages_are_fused_by_their_ranks_among_each_other() -> None:
    one = Table("1", {"q": hits("x", "a", "y", "b", "c")})
    two = Table("2", {"q": hits("c", "b", "x", "y", "a")})
    scores = FusionRetriever([one, two], k=60, depth=2).score("q", given("c", "a", "b"))
    # Ranks of c, a, b: 3, 1, 2 and 1, 3, 2.
    assert scores == pytest.approx([1 / 63 + 1 / 61, 1 / 61 + 1 / 63, 2 / 62])
    assert scores[0] == scores[1]


def test_a_pool_of_all_hits_has_the_fused_scores_of_the_search() -> None:
    one = Table("1", {"q": hits("a", "b", "c", "d")})
    two = Table("2", {"q": hits("d", "b", "a", "c")})
    fused = FusionRetriever([one, two], k=60, depth=4)
    found = fused.search(["q"], n=4)[0]
    scores = fused.score("q", given(*(hit.passage_id for hit in found)))
    assert scores == [hit.score for hit in found]


def test_passages_that_a_member_cannot_tell_apart_share_their_rank() -> None:
    level = [Hit(passage_id, "title", "text", 0.0) for passage_id in "abc"]
    one, two = Table("1", {"q": level}), Table("2", {"q": hits("b", "c", "a")})
    scores = FusionRetriever([one, two], k=60, depth=3).score("q", given("a", "b", "c"))
    assert scores == pytest.approx([1 / 61 + 1 / 63, 2 / 61, 1 / 61 + 1 / 62])


def test_a_passage_that_a_member_refuses_is_refused() -> None:
    one, two = Table("1", {"q": hits("a", "b")}), Table("2", {"q": hits("a")})
    with pytest.raises(Refusal, match="passage 'b' is not in the index"):
        FusionRetriever([one, two], k=60, depth=3).score("q", given("a", "b"))


def test_one_id_with_two_texts_is_refused() -> None:
    one = Table("1", {"q": hits("a", text="this")})
    two = Table("2", {"q": hits("a", text="that")})
    with pytest.raises(ModelNotFound, match="passage 'a' has two texts"):
        FusionRetriever([one, two], k=60, depth=5).search(["q"], n=1)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"of": (MemberConfig(index="a"),)}, "needs two retrievers or more"),
        ({"of": (MemberConfig(index="a"), MemberConfig())}, r"of\.1\.index: missing"),
        ({"index": "c"}, "no index of its own"),
        ({"n": 9, "depth": 8}, "depth 8 is below n 9"),
        ({"engine": "bm25"}, "`of` is for engine fusion, not bm25"),
    ],
)
def test_a_fusion_that_is_not_whole_is_refused(changes: dict[str, object], message: str) -> None:
    whole = {"engine": "fusion", "of": (MemberConfig(index="a"), MemberConfig(index="b"))}
    RetrieverConfig.model_validate(whole)
    with pytest.raises(ValidationError, match=message):
        RetrieverConfig.model_validate({**whole, **changes})


def test_a_fusion_is_written_as_a_list_whose_misspelt_keys_are_named() -> None:
    demo = str(EXAMPLES.parent / "conf" / "offline_igp" / "demo.yaml")
    fusion = ["retriever.engine=fusion", "retriever.index=null"]
    of = "retriever.of=[{index: /a}, {engine: dense, index: /b}]"
    cfg = load(OfflineIgpConfig, demo, [*fusion, of]).retriever
    assert cfg is not None
    assert cfg.indexes == ("/a", "/b")
    with pytest.raises(ConfigError, match="retriever.of.1.indx: unknown key; .* 'index'"):
        load(OfflineIgpConfig, demo, [*fusion, of.replace("index: /b", "indx: /b")])


@pytest.mark.engine
def test_bm25_and_dense_are_fused_and_the_stage_depends_on_both_indexes(tmp_path: Path) -> None:
    corpus = EXAMPLES / "corpus.jsonl"
    sparse, vectors = tmp_path / "bm25", tmp_path / "dense"
    fake = EmbedderConfig(engine="fake", model="fake", normalize=True)
    bm25.build_index(BuildIndexConfig(corpus=str(corpus), index=str(sparse)), lambda n: None)

    def build_dense(source: Path) -> None:
        wanted = BuildIndexConfig(
            engine="dense", corpus=str(source), index=str(vectors), embedder=fake
        )
        dense_index.build_index(wanted, lambda n: None, dense_index.encode_here)

    build_dense(corpus)
    members = (
        MemberConfig(index=str(sparse)),
        MemberConfig(engine="dense", index=str(vectors)),
    )
    cfg = RetrieverConfig(engine="fusion", of=members, n=3, depth=20)
    retriever = RETRIEVERS["fusion"](cfg)
    rows = [json.loads(line) for line in corpus.open(encoding="utf-8")][:20]
    found = retriever.search([row["contents"] for row in rows], n=3)
    for row, best in zip(rows, found, strict=True):  # near-duplicates may take the first place
        assert row["id"] in [hit.passage_id for hit in best]
    planned = retrieve.stage(cfg)
    assert planned.depends_on["index"] == retriever.fingerprint
    build_dense(_shorter(corpus, tmp_path / "other.jsonl"))
    assert retrieve.stage(cfg).depends_on["index"] != retriever.fingerprint
    assert indexes.describe(cfg)["of"][0] == planned.depends_on["of"][0]


def _shorter(corpus: Path, target: Path) -> Path:
    target.write_text("".join(corpus.read_text().splitlines(keepends=True)[:-1]))
    return target
