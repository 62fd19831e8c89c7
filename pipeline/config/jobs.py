"""One root for each job."""

from pydantic import Field, model_validator

from pipeline.config.base import Frozen
from pipeline.config.cluster import ClusterConfig
from pipeline.config.models import GeneratorConfig
from pipeline.config.policy import AnswerConfig, EvaluationConfig, ProbeConfig, SelectionConfig
from pipeline.config.retriever import RetrieverConfig
from pipeline.config.run import InputConfig, RunConfig


class OfflineIgpConfig(Frozen):
    """Everything jobs/offline_igp.py needs."""

    run: RunConfig = Field(default_factory=RunConfig)
    input: InputConfig
    retriever: RetrieverConfig | None = None
    generator: GeneratorConfig
    probe: ProbeConfig
    selection: SelectionConfig
    answer: AnswerConfig = Field(default_factory=AnswerConfig)
    evaluation: EvaluationConfig = Field(default_factory=EvaluationConfig)
    cluster: ClusterConfig = Field(default_factory=ClusterConfig)

    @model_validator(mode="after")
    def _parts_agree(self) -> "OfflineIgpConfig":
        limit = self.probe.free_rule_threshold
        if self.input.candidates is None and (self.retriever is None or not self.retriever.index):
            raise ValueError("set retriever.index, or give input.candidates and input.corpus")
        if self.input.candidates is not None and self.input.corpus is None:
            raise ValueError("input.candidates needs input.corpus, which holds their texts")
        if limit is not None and self.selection.threshold < limit:
            raise ValueError(
                f"selection.threshold {self.selection.threshold} is below "
                f"probe.free_rule_threshold {limit}: the rollouts skipped under it would be needed"
            )
        by_value = self.generator.engine == "vllm" and self.generator.probe_mode == "in_engine"
        if self.probe.trace and by_value:
            raise ValueError("probe.trace needs generator.probe_mode flat_logprobs")
        self._check_engine()
        return self

    def _check_engine(self) -> None:
        cap, k = self.generator.max_logprobs, self.probe.top_k
        needed = k if self.generator.probe_mode == "flat_logprobs" else 2
        if self.generator.engine == "vllm" and cap is not None and cap < needed:
            raise ValueError(
                f"generator.max_logprobs {cap} is below the {needed} that a probe with "
                f"probe_mode {self.generator.probe_mode} and top_k {k} returns"
            )
        gpus, parallel = self.cluster.generator.num_gpus, self.generator.runtime.tensor_parallel
        if gpus and gpus < parallel:
            raise ValueError(
                f"cluster.generator.num_gpus {gpus:g} is below "
                f"generator.runtime.tensor_parallel {parallel}"
            )
