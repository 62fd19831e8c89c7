"""The rivals of the information gain: which scorers run, and the models they ask."""

from typing import Annotated, Literal, TypeAlias

from pydantic import AfterValidator, Field

from pipeline.config.base import Frozen, model_name
from pipeline.config.models import EmbedderConfig, GeneratorConfig, RuntimeConfig

LIKELIHOODS = ("qlm", "qlm_gain", "yes_no", "answer_pmi", "answer_prior")
"""The scorers that ask the model of `scorers.likelihood`."""
Dtype: TypeAlias = Literal["float32", "bfloat16", "float16"]
ScorerName: TypeAlias = Literal[
    "bi_encoder",
    "cross_encoder",
    "qlm",
    "qlm_gain",
    "yes_no",
    "answer_pmi",
    "answer_prior",
    "coverage",
]


class CrossEncoderConfig(Frozen):
    """A model that reads question and passage together and gives one logit."""

    engine: Literal["transformers", "fake"] = Field("transformers", description="library")
    model: Annotated[str, AfterValidator(model_name)] = Field(
        description="Hugging Face id or local folder, e.g. cross-encoder/ms-marco-MiniLM-L-6-v2"
    )
    revision: str = Field("main", description="branch, tag or commit of a Hugging Face id")
    max_tokens: int = Field(512, ge=8, description="longer pairs are cut, the longer text first")
    dtype: Dtype = Field("float32", description="weights")
    batch_size: int = Field(32, ge=1, description="pairs scored together; speed only")
    threads: int = Field(1, ge=1, description="CPU threads of the model; speed only")


class LikelihoodConfig(Frozen):
    """The language model behind qlm, yes_no and answer_pmi, in an engine of its own."""

    engine: Literal["vllm", "transformers", "fake"] | None = Field(
        None, description="library; null: the generator's"
    )
    model: Annotated[str, AfterValidator(model_name)] | None = Field(
        None, description="Hugging Face id or local folder; null: the generator's own model"
    )
    revision: str = Field("main", description="branch, tag or commit of `model`")
    dtype: Dtype | None = Field(None, description="weights; null: the generator's")
    max_model_len: int | None = Field(
        None, ge=64, description="window in tokens; null: the generator's"
    )
    max_passage_tokens: int = Field(512, ge=1, description="qlm: longer passages are cut")
    yes_no_template: Literal["literal", "chat"] = Field(
        "chat", description="yes_no: raw prompt, or the chat template"
    )
    runtime: RuntimeConfig | None = Field(None, description="speed settings; null: the generator's")

    def resolve(self, generator: GeneratorConfig) -> GeneratorConfig:
        """The scoring model as a generator's config, what is left open taken from `generator`.

        What only rollouts and answers need stays at its default, out of fingerprints.
        """
        common = {
            "engine": self.engine or generator.engine,
            "dtype": self.dtype or generator.dtype,
            "max_model_len": self.max_model_len or generator.max_model_len,
            "chat_date": generator.chat_date,
            "runtime": self.runtime or generator.runtime,
            "endpoint": generator.endpoint,
        }
        if self.model is not None:
            return GeneratorConfig(model=self.model, revision=self.revision, **common)
        own = {"model": generator.model, "revision": generator.revision}
        return GeneratorConfig(
            **own, bos=generator.bos, stop_tokens=generator.stop_tokens, **common
        )


class ScorersConfig(Frozen):
    """The scorers' models. A scorer runs when an arm orders by it or `also` names it."""

    bi_encoder: EmbedderConfig | None = Field(
        None, description="model of bi_encoder; null: that scorer cannot be asked for"
    )
    cross_encoder: CrossEncoderConfig | None = Field(
        None, description="model of cross_encoder; null: that scorer cannot be asked for"
    )
    likelihood: LikelihoodConfig = Field(
        default_factory=LikelihoodConfig, description="model of qlm, yes_no and answer_pmi"
    )
    also: tuple[ScorerName, ...] = Field((), description="scorers that run although no arm asks")
