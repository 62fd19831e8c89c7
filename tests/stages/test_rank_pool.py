"""Tests of pipeline.stages.rank_pool: over a retriever that answers from a table, and over BM25."""

import asyncio
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeline import schema
from pipeline.config import BuildIndexConfig, OfflineIgpConfig, RetrieverConfig
from pipeline.engines import bm25
from pipeline.engines.base import Hit, ModelNotFound, Passage, Refusal
from pipeline.engines.table import Engines
from pipeline.runs.storage import Storage
from pipeline.stages import rank_pool
from pipeline.stages.rank_pool import rank
from pipeline.stages.stage import Stage, run_stage
from tests.stages import tables
from tests.stages.plans import EXAMPLES, N, config, finished, prepared, run

INPUTS = ["question_id", "question", "pool"]


class Scores:
    """A retriever with a score for each passage; a passage without one is refused."""

    fingerprint = "0"

    def __init__(self, known: Mapping[str, float]) -> None:
        self._known = known

    def search(self, questions: Sequence[str], *, n: int) -> list[list[Hit]]:
        raise AssertionError("a given pool is not searched for")

    def score(self, question: str, passages: Sequence[Passage]) -> list[float]:
        if lacking := [p.passage_id for p in passages if p.passage_id not in self._known]:
            raise Refusal(f"passage {lacking[0]!r} is not in the index")
        return [self._known[p.passage_id] for p in passages]


def block(*pools: str) -> pa.Table:
    """A row for each pool, whose passages have a letter each."""
    rows = [
        {
            "question_id": f"q{i}",
            "question": "Who?",
            "pool": [tables.candidate(one, f"text {one}") | {"score": 7.0} for one in pool],
        }
        for i, pool in enumerate(pools)
    ]
    return tables.table(rows, INPUTS)


def ids(table: pa.Table) -> list[str | None]:
    """The passages of every row's candidates as a word."""
    rows = table["candidates"].to_pylist()
    return [None if row is None else "".join(c["passage_id"] for c in row) for row in rows]


def test_candidates_are_the_pool_by_the_retriever_s_score() -> None:
    made = rank(block("abcd", "dcba", ""), Scores({"a": 1, "b": 2, "c": 0, "d": 1.5}), None)
    assert ids(made) == ["bdac", "bdac", ""]
    first = made["candidates"].to_pylist()[0]
    assert [c["score"] for c in first] == [2, 1.5, 1, 0]
    assert first[0] == {"passage_id": "b", "title": "", "text": "text b", "score": 2}
    assert made["pool"].equals(block("abcd", "dcba", "")["pool"])


def test_the_given_order_says_nothing_even_between_equal_scores() -> None:
    equal = Scores(dict.fromkeys("abcdefgh", 1))
    assert ids(rank(block("abcdefgh"), equal, None)) == ids(rank(block("hgfedcba"), equal, None))


def test_the_cut_keeps_the_best_and_not_the_first() -> None:
    made = rank(block("abcd", "a"), Scores({"a": 1, "b": 4, "c": 2, "d": 3}), 2)
    assert ids(made) == ["bd", "a"]


@given(
    scores=st.lists(st.integers(0, 4), max_size=8),
    size=st.none() | st.integers(1, 9),
)
def test_a_cut_is_a_prefix_of_the_whole_order(scores: list[int], size: int | None) -> None:
    letters = "abcdefgh"[: len(scores)]
    retriever = Scores(dict(zip(letters, scores, strict=True)))
    (whole,), (cut,) = (ids(rank(block(letters), retriever, n)) for n in (None, size))
    assert whole is not None and cut == whole[:size]
    assert sorted(whole) == list(letters)


def test_a_row_with_a_passage_that_cannot_be_scored_dies_alone_with_the_reason(
    tmp_path: Path,
) -> None:
    retriever = Scores({"a": 1, "b": 2, "n": math.nan})
    given = block("ab", "azb", "an").append_column(schema.DEAD, pa.nulls(3, schema.DEAD.type))
    part = asyncio.run(run_stage(planned(tmp_path), lambda t: rank(t, retriever, None), given))
    assert ids(part) == ["ba", None, None]
    reasons = [dead and (dead["stage"], dead["reason"]) for dead in part["dead"].to_pylist()]
    assert reasons == [
        None,
        ("rank_pool", "passage 'z' is not in the index"),
        ("rank_pool", "the retriever's score of passage 'n' is nan"),
    ]


def index_of(folder: Path, corpus: Path = EXAMPLES / "corpus.jsonl") -> str:
    """A BM25 index over a corpus."""
    place = str(folder / "index")
    bm25.build_index(BuildIndexConfig(corpus=str(corpus), index=place), lambda n: None)
    return place


def planned(folder: Path, max_candidates: int | None = None) -> Stage:
    """The stage over an index of which there is nothing but its manifest."""
    (folder / "winnow.json").write_text('{"fingerprint": "0"}', encoding="utf-8")
    return rank_pool.stage(RetrieverConfig(index=str(folder)), max_candidates=max_candidates)


def test_the_stage_depends_on_the_index_its_settings_and_the_cut(tmp_path: Path) -> None:
    assert dict(planned(tmp_path, 3).depends_on) == {
        **{"engine": "bm25", "index": "0", "k1": 0.9, "b": 0.4},
        "max_candidates": 3,
    }
    assert planned(tmp_path).depends_on != planned(tmp_path, 3).depends_on


def pooled(folder: Path, index: str, **given: Any) -> OfflineIgpConfig:
    """The run over the example candidates, ranked by an index."""
    return config(folder, input={"order": "retriever", **given}, retriever={"index": index})


@pytest.mark.engine
def test_a_run_over_pools_asks_for_the_retriever_s_order(tmp_path: Path) -> None:
    index = index_of(tmp_path)
    plan, counts = run(pooled(tmp_path, index, max_candidates=2))
    rows = finished(plan).to_pylist()
    assert counts.sums["rank_pool"]["passages"] == 2 * len(rows) == 100
    retriever = bm25.Bm25Retriever(RetrieverConfig(index=index))
    found = retriever.search([row["question"] for row in rows], n=200)
    pools = prepared(config(tmp_path))
    parts = [f"{pools.source.folder}/part-{i:06d}.parquet" for i in range(pools.source.shards)]
    listed = [
        {c["passage_id"] for c in row}
        for part in parts
        for row in Storage(pools.root).read_table(part)["candidates"].to_pylist()
    ]
    for row, hits, pool in zip(rows, found, listed, strict=True):
        assert len(pool) == N
        wanted = [hit for hit in hits if hit.passage_id in pool][:2]
        got = [c for c in row["candidates"] if c["score"] > 0]
        assert [c["passage_id"] for c in got] == [hit.passage_id for hit in wanted]
        assert [c["score"] for c in got] == pytest.approx([h.score for h in wanted], abs=1e-5)
        assert "pool" not in row
    whole, _ = run(pooled(tmp_path, index))
    assert whole.source == plan.source
    assert [len(row["candidates"]) for row in finished(whole).to_pylist()] == [N] * 50


@pytest.mark.engine
def test_pools_are_not_ranked_by_an_index_that_was_rebuilt(tmp_path: Path) -> None:
    cfg = pooled(tmp_path, index_of(tmp_path))
    assert cfg.retriever is not None
    made = rank_pool.stage(cfg.retriever, max_candidates=None)
    corpus = tmp_path / "other.jsonl"
    corpus.write_text('{"id": "a", "contents": "text"}\n', encoding="utf-8")
    index_of(tmp_path, corpus)
    with pytest.raises(ModelNotFound, match="the index changed while the run was under way"):
        made.build(Engines(cfg))
