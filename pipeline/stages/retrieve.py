"""Retrieve: the first-stage index's best passages for each question."""

import pyarrow as pa

from pipeline import schema
from pipeline.config import RetrieverConfig
from pipeline.engines import indexes
from pipeline.engines.base import ModelNotFound
from pipeline.engines.table import Engines
from pipeline.stages.stage import Stage, Transform, add_columns

ADDS = pa.schema([schema.CANDIDATES])


def stage(cfg: RetrieverConfig) -> Stage:
    """The stage over the indexes that `cfg` names, as they are now.

    ModelNotFound where one is missing; in a worker, where one has changed since.
    """
    searched = indexes.describe(cfg)

    def build(engines: Engines) -> Transform:
        retriever = engines.retriever
        if retriever.fingerprint != searched["index"]:
            places = ", ".join(cfg.indexes)
            raise ModelNotFound(f"{places}: the index changed while the run was under way")

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
        counts=_counts,
    )


def _counts(table: pa.Table) -> dict[str, float]:
    return {"passages": len(table[schema.CANDIDATES.name].combine_chunks().flatten())}
