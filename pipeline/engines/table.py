"""Every engine by its config name, and the lazily built set of them that one worker holds."""

from collections.abc import Callable
from functools import cached_property
from typing import TYPE_CHECKING

from pipeline.config import GeneratorConfig, ProbeConfig, RetrieverConfig
from pipeline.engines.base import Generator, Retriever, Tokenizer

if TYPE_CHECKING:
    from pipeline.config import OfflineIgpConfig


def _vllm(cfg: GeneratorConfig, probe: ProbeConfig) -> Generator:
    from pipeline.engines.vllm import VllmGenerator

    return VllmGenerator(cfg, probe)


def _transformers(cfg: GeneratorConfig, probe: ProbeConfig) -> Generator:
    from pipeline.engines.transformers import TransformersGenerator

    return TransformersGenerator(cfg, probe)


def _fake(cfg: GeneratorConfig, probe: ProbeConfig) -> Generator:
    from pipeline.engines.fake import FakeGenerator

    return FakeGenerator(cfg, probe)


def _bm25(cfg: RetrieverConfig) -> Retriever:
    from pipeline.engines.bm25 import Bm25Retriever

    return Bm25Retriever(cfg)


GENERATORS: dict[str, Callable[[GeneratorConfig, ProbeConfig], Generator]] = {
    "vllm": _vllm,
    "transformers": _transformers,
    "fake": _fake,
}
RETRIEVERS: dict[str, Callable[[RetrieverConfig], Retriever]] = {"bm25": _bm25}


class Engines:
    """The engines of one worker process, each built when first asked for and then shared."""

    def __init__(self, cfg: "OfflineIgpConfig") -> None:
        self._cfg = cfg

    @cached_property
    def generator(self) -> Generator:
        """The model that is probed and that answers."""
        return GENERATORS[self._cfg.generator.engine](self._cfg.generator, self._cfg.probe)

    @cached_property
    def tokenizer(self) -> Tokenizer:
        """The generator's tokenizer, without its model where none has been built."""
        if "generator" in self.__dict__:
            return self.generator.tokenizer
        if self._cfg.generator.engine == "fake":
            return self.generator.tokenizer
        from pipeline.engines.tokenizer import HfTokenizer

        return HfTokenizer(self._cfg.generator)

    @cached_property
    def retriever(self) -> Retriever:
        """The first-stage index."""
        if self._cfg.retriever is None:
            raise ValueError("the run has no retriever: its candidates come with the input")
        return RETRIEVERS[self._cfg.retriever.engine](self._cfg.retriever)

    def close(self) -> None:
        """Ends what the engines started."""
        if "generator" in self.__dict__:
            self.generator.close()
