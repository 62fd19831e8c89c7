"""Clues: which sentences are shown to which models, and how a policy chooses among them."""

from typing import Literal

from pydantic import Field

from pipeline.config.base import Frozen
from pipeline.config.listwise import check_constrained
from pipeline.config.models import EmbedderConfig, GeneratorConfig

EXTRACTOR, TRUNCATOR = "clues.extractor", "clues.truncator"


class ClueModelConfig(Frozen):
    """How one of the two language models is asked."""

    model: GeneratorConfig | None = Field(
        None, description="model that is asked, in a pool of its own; null: the generator"
    )
    template: Literal["literal", "chat"] = Field(
        "chat", description="raw prompt, or the chat template"
    )
    max_tokens: int = Field(16, ge=1, description="reply length limit, thinking included")
    constrained: bool = Field(
        False, description="vLLM, or an endpoint of it: only replies in the grammar can be decoded"
    )
    on_malformed: Literal["keep_all", "dead_letter"] = Field(
        "keep_all", description="a second reply that cannot be read: all sentences, or the end"
    )

    def resolve(self, generator: GeneratorConfig) -> GeneratorConfig:
        """The model that is asked."""
        return self.model or generator


class ExtractorConfig(ClueModelConfig):
    """The model that names the sentences which may hold the answer."""

    max_tokens: int = Field(512, ge=1, description="reply length limit, thinking included")
    reply: Literal["sentences", "numbers"] = Field(
        "sentences", description="it copies the sentences, or names their numbers alone"
    )
    unfaithful: Literal["drop", "snap"] = Field(
        "drop", description="text that is no sentence of the passages: left out, or the nearest one"
    )


class CluesConfig(Frozen):
    """Selector clues: extractor, reranker and truncator over the sentences of the passages."""

    passages: int = Field(5, ge=1, description="candidates whose sentences are shown")
    max_sentences: int = Field(20, ge=1, description="of each of them the first so many sentences")
    language: str = Field(
        "en", pattern=r"^[a-z]{2,3}$", description="of the passages, for the sentence splitter"
    )
    extractor: ExtractorConfig = Field(
        default_factory=ExtractorConfig, description="names the sentences that may help"
    )
    reranker: EmbedderConfig | None = Field(
        None, description="bi-encoder that orders them by cosine; null: scorers.bi_encoder"
    )
    truncator: ClueModelConfig = Field(
        default_factory=ClueModelConfig,
        description="says how many of them, in order, suffice; with a model of its own after an "
        "extractor, or gains, of the generator, that one is loaded twice, before it and after it",
    )

    def check(self, generator: GeneratorConfig) -> None:
        """ValueError where a model is to be held to a grammar that cannot be."""
        for section, asked in ((EXTRACTOR, self.extractor), (TRUNCATOR, self.truncator)):
            if asked.constrained:
                check_constrained(section, asked.resolve(generator))
        if self.extractor.constrained and self.extractor.reply == "sentences":
            raise ValueError(
                f"{EXTRACTOR}.constrained: sentences are no grammar; set {EXTRACTOR}.reply to "
                "numbers"
            )


class ClueOptions(Frozen):
    """How a policy of selector clues chooses: each part can be left out."""

    extract: Literal["model", "none"] = Field(
        "model", description="selector clues: the sentences that a model names, or all"
    )
    rerank: Literal["cosine", "ig", "none"] = Field(
        "cosine",
        description="selector clues: by similarity to the question, by each sentence's information "
        "gain, or as extracted",
    )
    truncate: Literal["model", "random", "none"] = Field(
        "model", description="selector clues: as many as a model, or chance, says, or all"
    )
