"""Retrieve: the first-stage index's best passages for each question."""

from collections.abc import Mapping
from typing import Any

import pyarrow as pa

from pipeline import schema
from pipeline.config import RetrieverConfig
from pipeline.engines import indexes
from pipeline.engines.base import ModelNotFound, Retriever
from pipeline.engines.table import Engines
from pipeline.stages.stage import Stage, Transform, add_columns

ADDS = pa.schema([schema.CANDIDATES])


def stage(cfg: RetrieverConfig) -> Stage:
    """The stage over the indexes that `cfg` names, as they are now.

    ModelNotFound where one is missing; in a worker, where one has changed since.
    """
    searched = indexes.describe(cfg)

    def build(engines: Engines) -> Transform:
        retriever = unchanged(engines.retriever, cfg, searched)

        def retrieve(table: pa.Table) -> pa.Table:
            hits = retriever.search(table["question"].to_pylist(), n=cfg.n)
            rows = [[vars(hit) for hit in row] for row in hits]
            return add_columns(table, {schema.CANDIDATES: rows})

        return retrieve

    return Stage(
        name="retrieve",
        needs=("question",),
        adds=ADDS,
        depends_on={**searched, "n": cfg.n},
        build=build,
        pool="retriever",
        durable=True,
        counts=counts,
    )


def unchanged(retriever: Retriever, cfg: RetrieverConfig, searched: Mapping[str, Any]) -> Retriever:
    """The retriever itself; ModelNotFound unless its index is the one that was described."""
    if retriever.fingerprint != searched["index"]:
        places = ", ".join(cfg.indexes)
        raise ModelNotFound(f"{places}: the index changed while the run was under way")
    return retriever


def counts(table: pa.Table) -> dict[str, float]:
    """How many candidates a finished part holds."""
    return {"passages": len(table[schema.CANDIDATES.name].combine_chunks().flatten())}
