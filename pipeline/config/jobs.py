"""One root for each job, and what its sections ask of each other."""

from collections.abc import Collection, Iterable, Sequence
from typing import Any, ClassVar, Literal, Self

from pydantic import Field, model_validator

from pipeline.config.answer import AnswerConfig, EvaluationConfig
from pipeline.config.base import Frozen, Path
from pipeline.config.clues import CluesConfig
from pipeline.config.cluster import ClusterConfig
from pipeline.config.datasets import DatasetConfig, check_candidates
from pipeline.config.listwise import ListwiseConfig, check_constrained
from pipeline.config.models import GeneratorConfig
from pipeline.config.policy import (
    ArmsConfig,
    GridEntry,
    ProbeConfig,
    SelectionConfig,
)
from pipeline.config.probing import TRACE_KS, check_probe, check_rollouts, with_smaller_k
from pipeline.config.retriever import RetrieverConfig
from pipeline.config.run import InputConfig, RunConfig
from pipeline.config.scorers import LIKELIHOODS, ScorersConfig
from pipeline.config.sweep import SweepRanges


class PipelineConfig(Frozen):
    """What every job that runs the pipeline has."""

    run: RunConfig = Field(default_factory=RunConfig)
    generator: GeneratorConfig
    probe: ProbeConfig
    scorers: ScorersConfig = Field(default_factory=ScorersConfig)
    listwise: ListwiseConfig = Field(default_factory=ListwiseConfig)
    clues: CluesConfig = Field(default_factory=CluesConfig)
    answer: AnswerConfig = Field(default_factory=AnswerConfig)
    evaluation: EvaluationConfig = Field(default_factory=EvaluationConfig)
    cluster: ClusterConfig = Field(default_factory=ClusterConfig)

    @model_validator(mode="before")
    @classmethod
    def _smaller_k(cls, values: Any) -> Any:
        return with_smaller_k(values)

    @model_validator(mode="after")
    def _models_agree(self) -> Self:
        check_probe(self.generator, self.probe)
        gpus, parallel = self.cluster.generator.num_gpus, self.generator.runtime.tensor_parallel
        if gpus and gpus < parallel:
            raise ValueError(
                f"cluster.generator.num_gpus {gpus:g} is below "
                f"generator.runtime.tensor_parallel {parallel}"
            )
        if self.listwise.constrained:
            check_constrained("listwise", self.listwise.resolve(self.generator))
        self.clues.check(self.generator)
        self.check_scorers(self.scorers.also)
        return self

    def check_scorers(self, scorers: Collection[str]) -> None:
        """ValueError where these scorers ask a model that cannot say, or a vLLM without a GPU."""
        model = self.scorers.likelihood.resolve(self.generator)
        asked = [name for name in LIKELIHOODS if name in scorers]
        if model.engine == "endpoint" and asked:
            raise ValueError(
                f"{asked[0]}: an endpoint says nothing of given tokens; "
                "set scorers.likelihood.engine and scorers.likelihood.model"
            )
        self._check_gpus(asked, "likelihood", model)

    def _check_gpus(
        self,
        asked: Sequence[str],
        pool: Literal["likelihood", "ranker", "extractor", "truncator"],
        model: GeneratorConfig,
    ) -> None:
        if not asked or model.engine != "vllm" or not self.cluster.generator.num_gpus:
            return
        gpus, parallel = getattr(self.cluster, pool).num_gpus, model.runtime.tensor_parallel
        if not gpus or gpus < parallel:
            raise ValueError(
                f"cluster.{pool}.num_gpus {gpus:g} is too few for {asked[0]}: its vLLM would "
                f"start without the {parallel} GPU{'s' * (parallel > 1)} that it needs"
            )

    def _check_policies(self, policies: Iterable[tuple[str, SelectionConfig | GridEntry]]) -> None:
        for where, policy in policies:
            self._check_spared(where, policy)
            self._check_replay(where, policy)
            if policy.probed or policy.probes_clues:
                check_rollouts(self.generator, where=where)
            self.check_scorers((policy.selector, policy.fallback))
            if (ranker := self.listwise.ranker) is not None:
                self._check_gpus(policy.rankings, "ranker", ranker)
            for pool in policy.clue_models:
                if (model := getattr(self.clues, pool).model) is not None:
                    self._check_gpus(("clues",), pool, model)

    def _check_spared(self, where: str, policy: SelectionConfig | GridEntry) -> None:
        """ValueError where a policy may read what a rule of the probe leaves unmeasured."""
        for name in ("free_rule_threshold", "early_stop_threshold"):
            if (limit := getattr(self.probe, name)) is not None:
                self._check_needs(where, policy, f"probe.{name}", limit)
        if self.probe.early_stop_threshold is not None and policy.selector == "set_aware":
            raise ValueError(
                f"{where}: selector set_aware may admit later what its first round would prune: "
                "set probe.early_stop_threshold to null"
            )

    def _check_needs(
        self, where: str, policy: SelectionConfig | GridEntry, rule: str, limit: float
    ) -> None:
        if isinstance(policy, GridEntry):
            key, lowest = f"{where}.thresholds", min(policy.thresholds)
        else:
            key, lowest = f"{where}.threshold", policy.threshold
        if policy.selector in ("ig", "set_aware") and lowest < limit:
            raise ValueError(
                f"{key} {lowest} is below {rule} {limit}: "
                "the rollouts skipped or cut under it would be needed"
            )
        of_answers = ("answer_pmi", "answer_prior")
        needy = [f"selector {policy.selector}"] * (policy.selector in ("blend", *of_answers))
        needy += [f"fallback {policy.fallback}"] * (policy.fallback in ("ig", *of_answers))
        other_nu0 = ("ig_top_k", "ig_max_tokens", "refusal_nu0")
        needy += [name for name in other_nu0 if getattr(policy, name) is not None]
        if needy:
            raise ValueError(
                f"{where}: {needy[0]} may need the rollouts that {rule} skips; set it to null"
            )

    def _check_replay(self, where: str, policy: SelectionConfig | GridEntry) -> None:
        k, steps = policy.ig_top_k, policy.ig_max_tokens
        if k is not None and (not self.probe.trace or k > self.probe.top_k):
            raise ValueError(f"{where}.ig_top_k {k} needs probe.trace and probe.top_k >= {k}")
        if k is not None and k not in TRACE_KS:
            raise ValueError(f"{where}.ig_top_k {k}; allowed: {', '.join(map(str, TRACE_KS))}")
        if steps is not None and steps > self.probe.max_tokens:
            raise ValueError(
                f"{where}.ig_max_tokens {steps} is above probe.max_tokens {self.probe.max_tokens}"
            )


class OfflineIgpConfig(PipelineConfig):
    """Everything jobs/offline_igp.py needs: one input, and one policy or a grid of arms."""

    answered: ClassVar[bool] = True
    """Whether the evidence is answered and evaluated; else the run ends in its contexts."""

    input: InputConfig
    retriever: RetrieverConfig | None = None
    selection: SelectionConfig | None = Field(None, description="the policy")
    policy: Path | None = Field(
        None, description="policy.yaml of jobs/calibrate.py, in place of selection"
    )
    arms: ArmsConfig | None = Field(None, description="a grid of arms, in place of selection")

    @model_validator(mode="after")
    def _parts_agree(self) -> Self:
        check_candidates(self.input, self.retriever)
        known = ("selection", "policy", *["arms"] * self.answered)
        given = [name for name in known if getattr(self, name) is not None]
        if len(given) != 1:
            allowed = f"{', '.join(known[:-1])} and {known[-1]}"
            raise ValueError(f"give one of {allowed}, got {' and '.join(given) or 'none'}")
        if self.selection is not None:
            self._check_policies([("selection", self.selection)])
        if self.arms is not None:
            self._check_policies((f"arms.grid.{i}", e) for i, e in enumerate(self.arms.grid))
        return self


class EvaluateConfig(PipelineConfig):
    """Everything jobs/evaluate.py needs: data sets, and one grid of arms over all of them."""

    data: Path | None = Field(
        None, description="root of the data sets: their relative paths are below it"
    )
    datasets: tuple[DatasetConfig, ...] = Field(min_length=1, description="data sets, in order")
    arms: ArmsConfig

    @model_validator(mode="before")
    @classmethod
    def _under_data(cls, values: Any) -> Any:
        """The data sets' relative paths, put below `data`."""
        if not isinstance(values, dict) or not isinstance(values.get("data"), str):
            return values
        datasets = values.get("datasets")
        if not isinstance(datasets, list):
            return values
        return {**values, "datasets": [_below(values["data"], entry) for entry in datasets]}

    @model_validator(mode="after")
    def _parts_agree(self) -> Self:
        names = [dataset.name for dataset in self.datasets]
        if repeated := sorted({name for name in names if names.count(name) > 1}):
            raise ValueError(f"two data sets are called {repeated[0]!r}")
        built = [i for i, dataset in enumerate(self.datasets) if dataset.builds_index]
        if built and "://" in self.run.root:
            raise ValueError(
                f"datasets.{built[0]}.retriever.index: missing; none can be built below run.root "
                f"{self.run.root!r}, which is no folder on a disk"
            )
        self._check_policies((f"arms.grid.{i}", e) for i, e in enumerate(self.arms.grid))
        return self

    def run_of(self, dataset: DatasetConfig, index: str | None) -> OfflineIgpConfig:
        """The main job's config for one data set; `index` is its index where it needs one."""
        retriever = dataset.retriever
        if retriever is not None and index is not None:
            retriever = retriever.model_copy(update={"index": index})
        shared = {name: getattr(self, name) for name in PipelineConfig.model_fields}
        run = self.run.model_copy(update={"name": f"{self.run.name}-{dataset.name}"})
        template = dataset.template or self.probe.template
        probe = self.probe.model_copy(update={"template": template})
        return OfflineIgpConfig(
            **{**shared, "run": run, "probe": probe, "answer": dataset.answer or self.answer},
            input=dataset.input,
            retriever=retriever,
            arms=self.arms,
        )


class SweepConfig(PipelineConfig):
    """Everything jobs/sweep.py needs: one input, and ranges of thresholds, budgets, K and MT."""

    input: InputConfig
    retriever: RetrieverConfig | None = None
    sweep: SweepRanges

    @model_validator(mode="after")
    def _parts_agree(self) -> Self:
        check_candidates(self.input, self.retriever)
        self._check_policies(("sweep", entry) for entry in self.sweep.arms().grid)
        return self


def _below(root: str, value: Any) -> Any:
    """A data set's raw section with its relative paths below `root`."""
    keys = ("questions", "candidates", "corpus", "qrels", "index")
    if isinstance(value, list):
        return [_below(root, entry) for entry in value]
    if isinstance(value, dict):
        return {k: _joined(root, v) if k in keys else _below(root, v) for k, v in value.items()}
    return value


def _joined(root: str, value: Any) -> Any:
    outside = not isinstance(value, str) or value.startswith(("/", "~"))
    if outside or "://" in value:
        return value
    return f"{root.rstrip('/')}/{value}"
