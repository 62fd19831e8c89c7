"""Every setting of every job: frozen sections with types, defaults and meanings, one root a job.

`pipeline.loading` makes them from YAML files and `a.b=value` overrides.
"""

from pipeline.config.base import SCHEMES, Frozen, Path
from pipeline.config.cluster import ClusterConfig, PoolConfig, RetrieverPoolConfig
from pipeline.config.jobs import OfflineIgpConfig
from pipeline.config.models import GeneratorConfig, RuntimeConfig
from pipeline.config.policy import AnswerConfig, EvaluationConfig, ProbeConfig, SelectionConfig
from pipeline.config.retriever import BuildIndexConfig, RetrieverConfig
from pipeline.config.run import InputConfig, RunConfig

__all__ = [
    "SCHEMES",
    "AnswerConfig",
    "BuildIndexConfig",
    "ClusterConfig",
    "EvaluationConfig",
    "Frozen",
    "GeneratorConfig",
    "InputConfig",
    "OfflineIgpConfig",
    "Path",
    "PoolConfig",
    "ProbeConfig",
    "RetrieverConfig",
    "RetrieverPoolConfig",
    "RunConfig",
    "RuntimeConfig",
    "SelectionConfig",
]
