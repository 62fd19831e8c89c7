"""The listwise ranker: which model orders a question's candidates, and how it is asked."""

from typing import Literal, Self

from pydantic import Field, model_validator

from pipeline.config.base import Frozen
from pipeline.config.models import GeneratorConfig

LISTWISE = ("adarank", "listwise")
"""The selectors that ask the model of `listwise`; each in a pass of its own."""


class ListwiseConfig(Frozen):
    """Selectors adarank, which names the passages that help, and listwise, which orders all."""

    ranker: GeneratorConfig | None = Field(
        None, description="model that ranks, in a pool of its own; null: the generator"
    )
    template: Literal["literal", "chat"] = Field(
        "chat", description="raw prompt, or the chat template"
    )
    max_passage_words: int = Field(300, ge=1, description="longer passages are cut")
    window: int = Field(20, ge=1, description="passages in one prompt; more go window by window")
    stride: int = Field(
        10, ge=1, description="passages by which a window is nearer to the front than the last"
    )
    max_tokens: int = Field(128, ge=1, description="reply length limit, thinking included")
    constrained: bool = Field(
        False, description="vLLM, or an endpoint of it: only replies in the grammar can be decoded"
    )
    on_malformed: Literal["keep_all", "dead_letter"] = Field(
        "keep_all", description="a second reply that cannot be read: the given order, or the end"
    )

    @model_validator(mode="after")
    def _windows_meet(self) -> Self:
        if self.stride > self.window:
            raise ValueError(
                f"stride {self.stride} is above window {self.window}: passages would be left out"
            )
        return self

    def resolve(self, generator: GeneratorConfig) -> GeneratorConfig:
        """The model that ranks."""
        return self.ranker or generator


def check_constrained(section: str, model: GeneratorConfig) -> None:
    """ValueError, naming the config's section, where the model cannot be held to a grammar."""
    if not model.constrains:
        raise ValueError(
            f"{section}.constrained: engine {model.engine} cannot be held to a grammar; "
            "allowed: vllm, and endpoint with extensions vllm"
        )
