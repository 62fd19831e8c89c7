"""Every setting of every job: frozen sections with types, defaults and meanings, one root a job.

`pipeline.loading` makes them from YAML files and `a.b=value` overrides.
"""

from pipeline.config.answer import AnswerConfig, EvaluationConfig
from pipeline.config.audit import AuditConfig, CompositionConfig, LimitsConfig
from pipeline.config.base import SCHEMES, Frozen, Path
from pipeline.config.calibrate import CalibrateConfig
from pipeline.config.clues import ClueModelConfig, ClueOptions, CluesConfig, ExtractorConfig
from pipeline.config.cluster import ClusterConfig, PoolConfig, RetrieverPoolConfig
from pipeline.config.datasets import DatasetConfig
from pipeline.config.endpoint import EndpointConfig
from pipeline.config.export import ExportConfig
from pipeline.config.jobs import (
    EvaluateConfig,
    OfflineIgpConfig,
    PipelineConfig,
    SweepConfig,
)
from pipeline.config.listwise import ListwiseConfig
from pipeline.config.models import EmbedderConfig, GeneratorConfig, RuntimeConfig
from pipeline.config.monitoring import DriftConfig, DriftLimits
from pipeline.config.nightly import (
    DriftCheckConfig,
    GateConfig,
    MlflowConfig,
    NightlyConfig,
    PushgatewayConfig,
    SinkConfig,
    SinksConfig,
    TolerancesConfig,
    WebhookConfig,
)
from pipeline.config.nli import NliConfig
from pipeline.config.policy import (
    ArmsConfig,
    GridEntry,
    PolicyFile,
    PolicyOptions,
    ProbeConfig,
    SelectionConfig,
)
from pipeline.config.precompute import PrecomputeConfig
from pipeline.config.retriever import (
    BuildIndexConfig,
    FaissConfig,
    MemberConfig,
    RetrieverConfig,
    SearchConfig,
)
from pipeline.config.run import InputConfig, RunConfig
from pipeline.config.scorers import CrossEncoderConfig, LikelihoodConfig, ScorersConfig

__all__ = [
    "SCHEMES",
    "AnswerConfig",
    "ArmsConfig",
    "AuditConfig",
    "BuildIndexConfig",
    "CalibrateConfig",
    "ClueModelConfig",
    "ClueOptions",
    "CluesConfig",
    "ClusterConfig",
    "CompositionConfig",
    "CrossEncoderConfig",
    "DatasetConfig",
    "DriftCheckConfig",
    "DriftConfig",
    "DriftLimits",
    "EmbedderConfig",
    "EndpointConfig",
    "EvaluateConfig",
    "EvaluationConfig",
    "ExportConfig",
    "ExtractorConfig",
    "FaissConfig",
    "Frozen",
    "GateConfig",
    "GeneratorConfig",
    "GridEntry",
    "InputConfig",
    "LikelihoodConfig",
    "LimitsConfig",
    "ListwiseConfig",
    "MemberConfig",
    "MlflowConfig",
    "NightlyConfig",
    "NliConfig",
    "OfflineIgpConfig",
    "Path",
    "PipelineConfig",
    "PolicyFile",
    "PolicyOptions",
    "PoolConfig",
    "PrecomputeConfig",
    "ProbeConfig",
    "PushgatewayConfig",
    "RetrieverConfig",
    "RetrieverPoolConfig",
    "RunConfig",
    "RuntimeConfig",
    "ScorersConfig",
    "SearchConfig",
    "SelectionConfig",
    "SinkConfig",
    "SinksConfig",
    "SweepConfig",
    "TolerancesConfig",
    "WebhookConfig",
]
