"""The data sets of an evaluation, and whether each has candidates."""

from typing import Literal, Self

from pydantic import Field, model_validator

from pipeline.config.answer import AnswerConfig
from pipeline.config.base import Frozen, Path
from pipeline.config.retriever import RetrieverConfig
from pipeline.config.run import InputConfig


class DatasetConfig(Frozen):
    """A data set of an evaluation."""

    name: str = Field(pattern=r"^[A-Za-z0-9._-]+$", description="name in tables and folders")
    input: InputConfig = Field(description="its questions, and candidates where there are some")
    retriever: RetrieverConfig | None = Field(
        None, description="without an index: one is built over input.corpus under run.root"
    )
    beside: tuple[Path, ...] = Field(
        (), description="finished runs over it by other generators, to be compared in the report"
    )
    template: Literal["literal", "chat"] | None = Field(
        None, description="of its probes, so that a set can stand twice; null: probe.template"
    )
    answer: AnswerConfig | None = Field(
        None, description="of its answers, such as {task: asqa}; null: the job's"
    )

    @property
    def builds_index(self) -> bool:
        """Whether an index that is still to be built over its corpus finds its candidates, or
        ranks its given ones."""
        retriever, given = self.retriever, self.input
        asked = given.ranks_pool or not given.has_candidates
        searched = retriever is not None and not retriever.indexes and asked
        return searched and given.corpus is not None

    @model_validator(mode="after")
    def _has_candidates(self) -> Self:
        if not self.builds_index:
            check_candidates(self.input, self.retriever)
        elif (found := self.retriever) and found.engine == "dense" and found.embedder is None:
            raise ValueError(
                "retriever.embedder: missing; an index of engine dense is built with it"
            )
        return self


def check_candidates(given: InputConfig, retriever: RetrieverConfig | None) -> None:
    """ValueError where neither the input nor an index gives candidates, or where none ranks them
    as `input.order` asks."""
    searched = retriever is not None and bool(retriever.indexes)
    if not given.has_candidates and not searched:
        raise ValueError("set retriever.index, or give input.candidates and input.corpus")
    if given.ranks_pool and not searched:
        raise ValueError("input.order retriever needs retriever.index, which ranks the candidates")
    if given.needs_corpus and given.corpus is None:
        raise ValueError("input.candidates needs input.corpus, which holds their texts")
