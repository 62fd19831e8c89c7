"""First-stage retrieval and its indexes."""

from typing import Literal

from pydantic import Field

from pipeline.config.base import Frozen, Path


class RetrieverConfig(Frozen):
    """First-stage retrieval."""

    engine: Literal["bm25"] = Field("bm25", description="retrieval engine")
    index: Path | None = Field(
        None, description="folder written by jobs/build_index.py; required unless input.candidates"
    )
    n: int = Field(5, ge=1, description="candidates per question")
    k1: float = Field(0.9, ge=0, description="BM25 term saturation")
    b: float = Field(0.4, ge=0, le=1, description="BM25 length normalisation")
    threads: int = Field(1, ge=1, description="search threads; does not change results")


class BuildIndexConfig(Frozen):
    """Everything jobs/build_index.py needs."""

    corpus: Path = Field(description="FlashRAG corpus.jsonl, optionally gzipped")
    index: Path = Field(description="folder to write")
    threads: int = Field(1, ge=1, description="indexing threads")
