"""Ray resources."""

from pydantic import Field

from pipeline.config.base import Frozen


class PoolConfig(Frozen):
    """One pool of Ray actors."""

    size: int = Field(1, ge=1, description="actors")
    num_cpus: float = Field(0.5, ge=0, description="CPUs reserved per actor")
    num_gpus: float = Field(0, ge=0, description="GPUs reserved per actor")
    shards_in_flight: int = Field(2, ge=1, description="shards worked on at once per actor")
    max_restarts: int = Field(20, ge=0, description="lost actors replaced before the run fails")


class RetrieverPoolConfig(PoolConfig):
    """The pool of the index, lighter than a model's."""

    num_cpus: float = Field(0.25, ge=0, description="CPUs reserved per actor")
    shards_in_flight: int = Field(1, ge=1, description="shards worked on at once per actor")


class ScorerPoolConfig(PoolConfig):
    """The pool of one scorer's model, so light that all pools of a run fit two CPUs."""

    num_cpus: float = Field(0.1, ge=0, description="CPUs reserved per actor")


class ClusterConfig(Frozen):
    """Ray resources."""

    retriever: RetrieverPoolConfig = Field(
        default_factory=RetrieverPoolConfig, description="actors that hold the index"
    )
    generator: PoolConfig = Field(
        default_factory=PoolConfig, description="actors that hold the model"
    )
    embedder: ScorerPoolConfig = Field(
        default_factory=ScorerPoolConfig, description="actors that hold the bi-encoder"
    )
    cross_encoder: ScorerPoolConfig = Field(
        default_factory=ScorerPoolConfig, description="actors that hold the cross-encoder"
    )
    likelihood: ScorerPoolConfig = Field(
        default_factory=ScorerPoolConfig, description="actors that hold the likelihood's model"
    )
    ranker: ScorerPoolConfig = Field(
        default_factory=ScorerPoolConfig, description="actors that hold the model listwise.ranker"
    )
    extractor: ScorerPoolConfig = Field(
        default_factory=ScorerPoolConfig,
        description="actors that hold the model clues.extractor.model",
    )
    truncator: ScorerPoolConfig = Field(
        default_factory=ScorerPoolConfig,
        description="actors that hold the model clues.truncator.model",
    )
    nli: ScorerPoolConfig = Field(
        default_factory=ScorerPoolConfig, description="actors that hold the model evaluation.nli"
    )
    watchdog_seconds: int = Field(
        1800,
        ge=1,
        description="give up after this long without a shard; a shard, and a model's load or "
        "download, must take less",
    )
