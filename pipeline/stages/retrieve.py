"""Retrieve: the first-stage index's best passages for each question."""

from collections.abc import Mapping
from typing import Any

import pyarrow as pa

from pipeline import schema
from pipeline.config import RetrieverConfig
from pipeline.engines.base import ModelNotFound
from pipeline.engines.table import Engines
from pipeline.stages.stage import Stage, Transform, add_columns

ADDS = pa.schema([schema.CANDIDATES])


def stage(cfg: RetrieverConfig, index: Mapping[str, Any]) -> Stage:
    """The stage over an index whose manifest is `index`."""

    def build(engines: Engines) -> Transform:
        retriever = engines.retriever
        if retriever.fingerprint != index["fingerprint"]:
            raise ModelNotFound(f"{cfg.index}: the index changed while the run was under way")

        def retrieve(table: pa.Table) -> pa.Table:
            hits = retriever.search(table["question"].to_pylist(), n=cfg.n)
            rows = [[vars(hit) for hit in row] for row in hits]
            return add_columns(table, {schema.CANDIDATES: rows})

        return retrieve

    return Stage(
        name="retrieve",
        needs=("question",),
        adds=ADDS,
        depends_on={
            "index": index["fingerprint"],
            **cfg.plain(exclude={"index", "threads"}),
        },
        build=build,
        pool="retriever",
        durable=True,
        counts=_counts,
    )


def _counts(table: pa.Table) -> dict[str, float]:
    return {"passages": len(table[schema.CANDIDATES.name].combine_chunks().flatten())}
