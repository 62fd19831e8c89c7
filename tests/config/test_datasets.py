"""Tests of pipeline.config.jobs: indexes that must be built for data sets, and their templates."""

import pytest
from pydantic import ValidationError

from tests.config.test_jobs import QUESTIONS, dataset, evaluate


def test_a_dense_index_that_must_be_built_needs_its_embedder() -> None:
    corpus = QUESTIONS | {"corpus": "p.jsonl"}
    dense = {"name": "one", "input": corpus, "retriever": {"engine": "dense"}}
    with pytest.raises(ValidationError, match=r"retriever\.embedder: missing"):
        evaluate(dense)
    embedder = {"engine": "fake", "model": "fake"}
    built = {**dense, "retriever": {"engine": "dense", "embedder": embedder}}
    assert evaluate(built).datasets[0].builds_index
    assert evaluate({**dense, "retriever": {"engine": "dense", "index": "i"}}).datasets


def test_no_index_can_be_built_below_a_root_that_is_a_uri() -> None:
    searched = {"name": "two", "input": QUESTIONS | {"corpus": "p.jsonl"}, "retriever": {}}
    far = {"root": "s3://bucket/out"}
    with pytest.raises(ValidationError, match=r"datasets\.1\.retriever\.index: missing; none can"):
        evaluate(dataset(), searched, run=far)
    assert evaluate(dataset(), {**searched, "retriever": {"index": "i"}}, run=far).run.root
    assert evaluate(dataset(), searched).datasets


def test_a_data_set_may_stand_twice_under_two_templates() -> None:
    cfg = evaluate(dataset("plain"), dataset("literal", template="literal"))
    templates = [cfg.run_of(one, None).probe.template for one in cfg.datasets]
    assert templates == ["chat", "literal"]
    names = [cfg.run_of(one, None).run.name for one in cfg.datasets]
    assert names == ["run-plain", "run-literal"]
