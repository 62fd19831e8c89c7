"""Every setting of every job: frozen sections with types, defaults and meanings, one root a job.

`pipeline.loading` makes them from YAML files and `a.b=value` overrides.
"""

import json
import math
import os
import re
from typing import Annotated, Any, Literal, TypeAlias

from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    Field,
    field_validator,
    model_validator,
)

from pipeline.paths import absolute

SCHEMES = ("file", "s3", "gs", "gcs", "hdfs", "viewfs", "abfs", "abfss")


def _place(path: str) -> str:
    scheme, sign, _ = path.partition("://")
    if sign and scheme not in SCHEMES:
        raise ValueError(f"unknown scheme {scheme!r}; allowed: {', '.join(SCHEMES)}, or a path")
    return absolute(path)


Path: TypeAlias = Annotated[str, AfterValidator(_place)]
"""A local path, made absolute so that it means the same in every worker, or a URI."""


def _model(name: str) -> str:
    """A local folder as an absolute path; a Hugging Face id as it is."""
    folder = os.path.expanduser(name)
    return (
        os.path.abspath(folder)
        if name.startswith(("~", ".", "/")) or os.path.isdir(folder)
        else name
    )


class Frozen(BaseModel):
    """Base of every section: immutable, no unknown keys."""

    def plain(self, *, exclude: set[str] | None = None) -> dict[str, Any]:
        """The section as strict JSON's types: an infinite number becomes a text."""
        values: dict[str, Any] = json.loads(self.model_dump_json(exclude=exclude))
        return values

    model_config = ConfigDict(
        frozen=True, extra="forbid", protected_namespaces=(), ser_json_inf_nan="strings"
    )


class RunConfig(Frozen):
    """Where results live, and how the input is cut."""

    root: Path = Field(
        "out", validate_default=True, description="folder or URI of stage directories and runs"
    )
    name: str = Field(
        "run", pattern=r"^[A-Za-z0-9._-]+$", description="prefix of the run directory"
    )
    rows_per_shard: int = Field(256, ge=1, description="questions per shard, the unit of resume")
    seed: int = Field(20240601, description="root of every random choice")
    max_error_rate: float = Field(0.0, ge=0, le=1, description="share of dead questions tolerated")


class InputConfig(Frozen):
    """The questions, and candidates where they were retrieved before."""

    questions: Path = Field(description="FlashRAG questions.jsonl")
    candidates: Path | None = Field(
        None, description="candidates.jsonl; given, retrieval is skipped"
    )
    corpus: Path | None = Field(None, description="corpus.jsonl that holds the candidates' texts")
    split: str | None = Field(None, description="keep questions whose metadata.split is this")
    sample: int | None = Field(None, ge=1, description="a seeded sample of this many questions")
    on_bad_row: Literal["refuse", "dead_letter"] = Field(
        "refuse", description="a malformed line stops the run, or becomes a dead letter"
    )


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


class RuntimeConfig(Frozen):
    """How fast the generator runs: never part of a fingerprint.

    In float32 none of it changes a decision; in 16 bits another batch can flip a near-tie.
    """

    max_num_seqs: int = Field(64, ge=1, description="sequences decoded together")
    threads: int = Field(1, ge=1, description="CPU threads of the model")
    kv_cache_gib: float | None = Field(1.0, gt=0, description="KV cache on a CPU; null on a GPU")
    enforce_eager: bool = Field(True, description="skip compilation: faster start, slower steps")
    gpu_memory_utilization: float = Field(0.9, gt=0, le=1, description="share of a GPU's memory")
    tensor_parallel: int = Field(1, ge=1, description="GPUs per model replica")


class GeneratorConfig(Frozen):
    """The model that is probed and that answers."""

    engine: Literal["vllm", "transformers", "fake"] = Field("vllm", description="generator engine")
    model: Annotated[str, AfterValidator(_model)] = Field(
        description="Hugging Face id or local folder; fake: its temper"
    )
    revision: str = Field("main", description="branch, tag or commit of a Hugging Face id")
    dtype: Literal["float32", "bfloat16", "float16"] = Field("float32", description="weights")
    max_model_len: int = Field(2048, ge=64, description="window in tokens, prompt and answer")
    bos: Literal["auto", "always", "never"] = Field(
        "auto", description="BOS before a literal prompt; auto: where the tokenizer adds one"
    )
    chat_date: str = Field(
        "26 Jul 2024", description="date for chat templates that ask for one; never today's"
    )
    stop_tokens: tuple[str, ...] | None = Field(
        None, description="end tokens; null: all that model, tokenizer and chat template declare"
    )
    probe_mode: Literal["in_engine", "flat_logprobs"] = Field(
        "in_engine", description="vLLM: entropy inside the engine, or from K log-probabilities"
    )
    max_logprobs: int | None = Field(
        None, ge=1, description="vLLM: cap on returned log-probabilities; null: as many as top_k"
    )
    runtime: RuntimeConfig = Field(default_factory=RuntimeConfig, description="speed settings")


class ProbeConfig(Frozen):
    """The rollouts that measure uncertainty (spec: paper sections 3.2 and 3.3)."""

    template: Literal["literal", "chat"] = Field(description="raw prompt, or the chat template")
    passage_format: Literal["contents", "text"] = Field("contents", description="with title or not")
    top_k: int = Field(ge=2, description="K: largest logits that enter the entropy")
    max_tokens: int = Field(ge=1, description="MT: rollout length limit")
    trace: bool = Field(False, description="keep u_t for every K in {2..128}")
    free_rule_threshold: float | None = Field(
        None,
        allow_inf_nan=False,
        description="NU(q) below it: skip the conditional rollouts. Exact for any threshold >= it",
    )


class SelectionConfig(Frozen):
    """Admission and truncation (paper Algorithm 1), and what happens to an empty set."""

    threshold: float = Field(description="Tp: smallest gain admitted; -.inf only reorders")
    top_m: int = Field(ge=0, description="M: passages kept")
    token_guard: int | None = Field(None, ge=1, description="B: passage tokens kept")
    guard_rule: Literal["prefix", "skip"] = Field("prefix", description="at the first misfit")
    empty_context: Literal["frame", "closed_book", "top1", "abstain"] = Field(
        description="prompt of a question without evidence"
    )

    @field_validator("threshold")
    @classmethod
    def _a_number(cls, value: float) -> float:
        if math.isnan(value):
            raise ValueError("must be a number or -.inf")
        return value


class AnswerConfig(Frozen):
    """Final generation."""

    template: Literal["chat", "literal"] = Field("chat", description="chat template, or plain text")
    max_tokens: int = Field(32, ge=1, description="answer length limit")


class EvaluationConfig(Frozen):
    """Metrics and their intervals."""

    bootstrap_samples: int = Field(2000, ge=100, description="resamples of an interval")
    refusal_patterns: tuple[str, ...] = Field((), description="extra patterns of refusals")

    @field_validator("refusal_patterns")
    @classmethod
    def _regular(cls, patterns: tuple[str, ...]) -> tuple[str, ...]:
        for pattern in patterns:
            try:
                re.compile(pattern)
            except re.error as error:
                raise ValueError(f"{pattern!r} is not a regular expression ({error})") from None
        return patterns


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


class ClusterConfig(Frozen):
    """Ray resources."""

    retriever: RetrieverPoolConfig = Field(
        default_factory=RetrieverPoolConfig, description="actors that hold the index"
    )
    generator: PoolConfig = Field(
        default_factory=PoolConfig, description="actors that hold the model"
    )
    watchdog_seconds: int = Field(
        1800,
        ge=1,
        description="give up after this long without a shard; a shard, and a model's load or "
        "download, must take less",
    )


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


class BuildIndexConfig(Frozen):
    """Everything jobs/build_index.py needs."""

    corpus: Path = Field(description="FlashRAG corpus.jsonl, optionally gzipped")
    index: Path = Field(description="folder to write")
    threads: int = Field(1, ge=1, description="indexing threads")
