"""The models that are asked: what they are, and how fast they run."""

from typing import Annotated, Any, Literal, Self

from pydantic import AfterValidator, Field, model_validator

from pipeline.config.base import Frozen, model_name
from pipeline.config.endpoint import EndpointConfig


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
    engine_metrics: bool = Field(
        False, description="vLLM's own metrics on Ray's endpoint, as ray_vllm_*; wants ray[serve]"
    )


class EmbedderConfig(Frozen):
    """A bi-encoder: one vector for a question, one for a passage; their product is the score."""

    engine: Literal["transformers", "fake"] = Field("transformers", description="embedder engine")
    model: Annotated[str, AfterValidator(model_name)] = Field(
        description="Hugging Face id or local folder; fake: its temper"
    )
    revision: str = Field("main", description="branch, tag or commit of a Hugging Face id")
    pooling: Literal["mean", "cls"] = Field(
        "mean", description="mean of the last hidden states, or that of the first token"
    )
    normalize: bool = Field(False, description="vectors of length one: the score is the cosine")
    query_prefix: str = Field("", description="text put before every question")
    passage_prefix: str = Field("", description="text put before every passage")
    max_tokens: int = Field(512, ge=8, description="longer texts are cut; prefix included")
    dtype: Literal["float32", "bfloat16", "float16"] = Field("float32", description="weights")
    batch_size: int = Field(32, ge=1, description="texts encoded together; speed only")
    threads: int = Field(1, ge=1, description="CPU threads of the model; speed only")


class GeneratorConfig(Frozen):
    """The model that is probed and that answers."""

    engine: Literal["vllm", "transformers", "endpoint", "fake"] = Field(
        "vllm", description="generator engine"
    )
    model: Annotated[str, AfterValidator(model_name)] = Field(
        description="Hugging Face id or local folder; endpoint: of its tokenizer; fake: its temper"
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
        None,
        ge=1,
        description="cap on returned log-probabilities; null: vLLM as many as top_k, endpoint 20",
    )
    endpoint: EndpointConfig | None = Field(None, description="the server of engine endpoint")
    runtime: RuntimeConfig = Field(default_factory=RuntimeConfig, description="speed settings")

    @model_validator(mode="before")
    @classmethod
    def _fake_is_called_fake(cls, data: Any) -> Any:
        """The stand-in reads no model, so no report or policy of it may carry a model's name; a
        name with "=" is its temper."""
        fake = isinstance(data, dict) and data.get("engine") == "fake"
        return (
            {**data, "model": "fake"} if fake and "=" not in str(data.get("model", "=")) else data
        )

    @model_validator(mode="after")
    def _has_endpoint(self) -> Self:
        if self.engine == "endpoint" and self.endpoint is None:
            raise ValueError("engine endpoint needs the section endpoint with its base_url")
        return self

    @property
    def constrains(self) -> bool:
        """Whether answers can be held to a grammar."""
        extended = self.endpoint is not None and self.endpoint.extensions == "vllm"
        return self.engine == "vllm" or (self.engine == "endpoint" and extended)
