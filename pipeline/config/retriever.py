"""First-stage retrieval and its indexes."""

from typing import Any, Literal, Self

from pydantic import Field, model_validator

from pipeline.config.base import Frozen, Path
from pipeline.config.cluster import PoolConfig
from pipeline.config.models import EmbedderConfig


class SearchConfig(Frozen):
    """An index and how it is searched."""

    index: Path | None = Field(
        None,
        description="folder written by jobs/build_index.py; required unless input.candidates. "
        "dense: or the faiss file of another tool, with corpus and embedder",
    )
    corpus: Path | None = Field(
        None,
        description="dense, with a faiss file as index: the corpus.jsonl that it was built from, "
        "whose line i is row i of the index; an index folder holds its own passages",
    )
    k1: float = Field(0.9, ge=0, description="bm25: term saturation")
    b: float = Field(0.4, ge=0, le=1, description="bm25: length normalisation")
    embedder: EmbedderConfig | None = Field(
        None,
        description="dense: the index's own where null, another is refused; of a faiss file the "
        "encoder that it was built with",
    )
    nprobe: int = Field(16, ge=1, description="dense, ivf: lists searched per question")
    ef_search: int = Field(64, ge=1, description="dense, hnsw: nodes kept while searching")
    threads: int = Field(1, ge=1, description="search threads; does not change results")

    @model_validator(mode="after")
    def _faiss_file_is_whole(self) -> Self:
        if self.corpus is None:
            return self
        if self.index is None or self.embedder is None:
            raise ValueError(
                "corpus goes with a faiss file: name it in `index`, and its encoder in `embedder`"
            )
        if "://" in self.index + self.corpus:
            raise ValueError("a faiss file and its corpus must lie on a disk that all nodes share")
        if self.corpus.endswith((".gz", ".parquet", ".tsv")):
            raise ValueError(f"corpus {self.corpus!r}: must be JSON Lines that are not packed")
        return self


class MemberConfig(SearchConfig):
    """One retriever of a fusion."""

    engine: Literal["bm25", "dense"] = Field("bm25", description="retrieval engine")


class RetrieverConfig(SearchConfig):
    """First-stage retrieval."""

    engine: Literal["bm25", "dense", "fusion"] = Field("bm25", description="retrieval engine")
    n: int = Field(5, ge=1, description="candidates per question")
    of: tuple[MemberConfig, ...] = Field(
        (), description="fusion: its retrievers, each with the keys of this section above n"
    )
    rrf_k: int = Field(60, ge=1, description="fusion: k of reciprocal rank fusion")
    depth: int = Field(100, ge=1, description="fusion: passages taken from each retriever")

    @property
    def indexes(self) -> tuple[str, ...]:
        """The index folders that are searched; empty where none is named."""
        sections: tuple[SearchConfig, ...] = self.of if self.engine == "fusion" else (self,)
        return tuple(section.index for section in sections if section.index is not None)

    @model_validator(mode="after")
    def _fusion_is_whole(self) -> Self:
        if self.engine != "fusion":
            if self.of:
                raise ValueError(f"`of` is for engine fusion, not {self.engine}")
            return self
        if len(self.of) < 2:
            raise ValueError(f"a fusion needs two retrievers or more in `of`, got {len(self.of)}")
        if self.index is not None:
            raise ValueError("a fusion has no index of its own: name one in each entry of `of`")
        if lacking := [i for i, member in enumerate(self.of) if member.index is None]:
            raise ValueError(f"of.{lacking[0]}.index: missing")
        if self.depth < self.n:
            raise ValueError(f"depth {self.depth} is below n {self.n}")
        return self


class FaissConfig(Frozen):
    """The vector index over a corpus; the score is the inner product."""

    kind: Literal["flat", "ivf", "hnsw"] = Field("flat", description="exact, lists, or graph")
    index_shards: int = Field(
        1, ge=1, description="files that the index is cut into, each made and searched by itself"
    )
    nlist: int = Field(1024, ge=1, description="ivf: lists, trained once for all shards")
    train_passages: int = Field(
        100_000, ge=1, description="ivf: passages drawn to train the lists, at most"
    )
    links: int = Field(32, ge=2, description="hnsw: neighbours per node")
    ef_construction: int = Field(200, ge=1, description="hnsw: nodes kept while building")

    def of_kind(self) -> dict[str, Any]:
        """The settings that count for this kind, as strict JSON's types."""
        others = {
            "flat": {"nlist", "train_passages", "links", "ef_construction"},
            "ivf": {"links", "ef_construction"},
            "hnsw": {"nlist", "train_passages"},
        }
        return self.plain(exclude=others[self.kind])


class BuildIndexConfig(Frozen):
    """Everything jobs/build_index.py needs."""

    engine: Literal["bm25", "dense"] = Field("bm25", description="kind of index")
    corpus: Path = Field(
        description="corpus.jsonl (FlashRAG, BEIR), optionally gzipped; psgs_w100.tsv; .parquet"
    )
    index: Path = Field(description="folder to write")
    threads: int = Field(1, ge=1, description="indexing threads")
    embedder: EmbedderConfig | None = Field(None, description="dense: required")
    faiss: FaissConfig = Field(default_factory=FaissConfig, description="dense")
    passages_per_shard: int = Field(
        10_000, ge=1, description="dense: passages encoded and stored together"
    )
    pool: PoolConfig = Field(default_factory=PoolConfig, description="dense: encoding actors")
    watchdog_seconds: int = Field(
        1800, ge=1, description="dense: give up after this long without an encoded shard"
    )

    @model_validator(mode="after")
    def _engine_has_its_part(self) -> Self:
        if "://" in self.index:
            raise ValueError(f"index {self.index!r}: name a folder on a disk that all nodes share")
        if self.engine == "dense" and self.embedder is None:
            raise ValueError("engine dense needs the section embedder")
        return self
