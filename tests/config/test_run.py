"""Tests of pipeline.config.run: what the formats of an input ask of its other settings."""

from typing import Any

import pytest
from pydantic import ValidationError

from pipeline.config import InputConfig


def given(**settings: Any) -> InputConfig:
    """An input with these settings."""
    return InputConfig(**{"questions": "/data/q.jsonl", **settings})


@pytest.mark.parametrize(
    ("settings", "has", "needs"),
    [
        ({}, False, False),
        ({"corpus": "/p.jsonl"}, False, False),
        ({"candidates": "/c.jsonl"}, True, True),
        ({"candidates": "/a.run"}, True, True),
        ({"candidates": "/cache.json"}, True, False),
        ({"candidates": "/cache.json.gz"}, True, False),
        ({"candidates": "/t.parquet"}, True, False),
        ({"candidates": "s3://bucket/runs/a-0.5/contexts"}, True, False),
        ({"candidates": "hf://org/log/test"}, True, False),
        ({"format": "beir", "candidates": "/a.run"}, True, True),
        ({"format": "parquet"}, False, False),
        ({"format": "dpr"}, True, False),
        ({"format": "alce"}, True, False),
    ],
)
def test_whether_candidates_are_given_and_need_a_corpus(
    settings: dict[str, Any], has: bool, needs: bool
) -> None:
    cfg = given(**settings)
    assert (cfg.has_candidates, cfg.needs_corpus) == (has, needs)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"format": "msmarco"}, "'flashrag', 'beir', 'dpr', 'alce', 'parquet' or 'huggingface'"),
        ({"format": "huggingface"}, "goes with hf://organisation/name/split"),
        ({"questions": "hf://org/log/test"}, "format huggingface, and no other"),
        ({"format": "dpr", "candidates": "/c.jsonl"}, "format dpr brings its own; must be null"),
        ({"format": "alce", "candidates": "/c.jsonl"}, "format alce brings its own"),
        ({"max_candidates": 3}, "cuts given candidates; retrieved ones are cut by retriever.n"),
        ({"candidates": "/c.jsonl", "max_candidates": 0}, "greater than or equal to 1"),
        ({"order": "random"}, "orders given candidates; .* must be 'given'"),
        ({"order": "retriever", "corpus": "/p.jsonl"}, "orders given candidates"),
        ({"candidates": "/c.jsonl", "order": "rank"}, "'given', 'random' or 'retriever'"),
        ({"qrels": "nosuch://qrels"}, "unknown scheme 'nosuch'"),
    ],
)
def test_settings_that_do_not_go_together_are_refused(
    settings: dict[str, Any], message: str
) -> None:
    with pytest.raises(ValidationError, match=message):
        given(**settings)


def test_a_pool_is_what_the_retriever_ranks() -> None:
    for order in ("given", "random", "retriever"):
        cfg = given(candidates="/c.jsonl", order=order)
        assert cfg.has_candidates and cfg.ranks_pool == (order == "retriever")
    assert given(format="dpr", order="retriever", max_candidates=2).ranks_pool
    assert given(format="alce").order == "given"


def test_embedded_candidates_may_be_cut_and_a_hub_name_stays_as_it_is() -> None:
    assert given(format="dpr", max_candidates=3).max_candidates == 3
    hub = given(format="huggingface", questions="hf://org/log/test")
    assert hub.questions == "hf://org/log/test"
