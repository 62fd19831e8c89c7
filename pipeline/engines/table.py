"""Every engine by its config name, and the lazily built set of them that one worker holds."""

from collections.abc import Callable
from functools import cached_property
from typing import TYPE_CHECKING

from pipeline.config import (
    CrossEncoderConfig,
    GeneratorConfig,
    NliConfig,
    ProbeConfig,
    RetrieverConfig,
    SearchConfig,
)
from pipeline.engines.base import (
    CrossEncoder,
    Entailment,
    Generator,
    LanguageScorer,
    Retriever,
    Tokenizer,
)

if TYPE_CHECKING:
    from pipeline.config import OfflineIgpConfig
    from pipeline.engines.embedder import Embedder


def _vllm(cfg: GeneratorConfig, probe: ProbeConfig) -> Generator:
    from pipeline.engines.vllm import VllmGenerator

    return VllmGenerator(cfg, probe)


def _transformers(cfg: GeneratorConfig, probe: ProbeConfig) -> Generator:
    from pipeline.engines.transformers import TransformersGenerator

    return TransformersGenerator(cfg, probe)


def _endpoint(cfg: GeneratorConfig, probe: ProbeConfig) -> Generator:
    from pipeline.engines.endpoint import EndpointGenerator

    return EndpointGenerator(cfg, probe)


def _fake(cfg: GeneratorConfig, probe: ProbeConfig) -> Generator:
    from pipeline.engines.fake import FakeGenerator

    return FakeGenerator(cfg, probe)


def _bm25(cfg: SearchConfig) -> Retriever:
    from pipeline.engines.bm25 import Bm25Retriever

    return Bm25Retriever(cfg)


def _dense(cfg: SearchConfig) -> Retriever:
    from pipeline.engines.dense import DenseRetriever

    return DenseRetriever(cfg)


def _fusion(cfg: RetrieverConfig) -> Retriever:
    from pipeline.engines.fusion import FusionRetriever

    members = [INDEXES[member.engine](member) for member in cfg.of]
    return FusionRetriever(members, k=cfg.rrf_k, depth=cfg.depth)


def _vllm_likelihood(cfg: GeneratorConfig) -> LanguageScorer:
    from pipeline.engines.vllm_likelihood import VllmScorer

    return VllmScorer(cfg)


def _transformers_likelihood(cfg: GeneratorConfig) -> LanguageScorer:
    from pipeline.engines.transformers_likelihood import TransformersScorer

    return TransformersScorer(cfg)


def _fake_likelihood(cfg: GeneratorConfig) -> LanguageScorer:
    from pipeline.engines.fake import FakeScorer

    return FakeScorer(cfg)


def _transformers_cross_encoder(cfg: CrossEncoderConfig) -> CrossEncoder:
    from pipeline.engines.cross_encoder import HfCrossEncoder

    return HfCrossEncoder(cfg)


def _fake_cross_encoder(cfg: CrossEncoderConfig) -> CrossEncoder:
    from pipeline.engines.fake import FakeCrossEncoder

    return FakeCrossEncoder(cfg)


def _seq2seq(cfg: NliConfig) -> Entailment:
    from pipeline.engines.nli import Seq2SeqNli

    return Seq2SeqNli(cfg)


def _classifier(cfg: NliConfig) -> Entailment:
    from pipeline.engines.nli import ClassifierNli

    return ClassifierNli(cfg)


def _fake_nli(cfg: NliConfig) -> Entailment:
    from pipeline.engines.fake import FakeNli

    return FakeNli(cfg)


GENERATORS: dict[str, Callable[[GeneratorConfig, ProbeConfig], Generator]] = {
    "vllm": _vllm,
    "transformers": _transformers,
    "endpoint": _endpoint,
    "fake": _fake,
}
INDEXES: dict[str, Callable[[SearchConfig], Retriever]] = {"bm25": _bm25, "dense": _dense}
RETRIEVERS: dict[str, Callable[[RetrieverConfig], Retriever]] = {**INDEXES, "fusion": _fusion}
LIKELIHOODS: dict[str, Callable[[GeneratorConfig], LanguageScorer]] = {
    "vllm": _vllm_likelihood,
    "transformers": _transformers_likelihood,
    "fake": _fake_likelihood,
}
CROSS_ENCODERS: dict[str, Callable[[CrossEncoderConfig], CrossEncoder]] = {
    "transformers": _transformers_cross_encoder,
    "fake": _fake_cross_encoder,
}

NLI_MODELS: dict[str, Callable[[NliConfig], Entailment]] = {
    "seq2seq": _seq2seq,
    "classifier": _classifier,
    "fake": _fake_nli,
}


class Engines:
    """The engines of one worker process, each built when first asked for and then shared."""

    def __init__(self, cfg: "OfflineIgpConfig") -> None:
        self._cfg = cfg

    @cached_property
    def generator(self) -> Generator:
        """The model that is probed and that answers."""
        return GENERATORS[self._cfg.generator.engine](self._cfg.generator, self._cfg.probe)

    @cached_property
    def ranker(self) -> Generator:
        """The model behind the listwise selectors: the generator itself unless they name theirs."""
        cfg = self._cfg.listwise.ranker
        return self.generator if cfg is None else GENERATORS[cfg.engine](cfg, self._cfg.probe)

    @cached_property
    def extractor(self) -> Generator:
        """The model that names clues: the generator itself unless the config has another."""
        cfg = self._cfg.clues.extractor.model
        return self.generator if cfg is None else GENERATORS[cfg.engine](cfg, self._cfg.probe)

    @cached_property
    def truncator(self) -> Generator:
        """The model that cuts lists of clues: the generator unless the config has another."""
        cfg = self._cfg.clues.truncator.model
        return self.generator if cfg is None else GENERATORS[cfg.engine](cfg, self._cfg.probe)

    @cached_property
    def clue_reranker(self) -> "Embedder":
        """The model that orders clues: that of scorers.bi_encoder unless the config has another."""
        from pipeline.engines.embedder import Embedder

        cfg = self._cfg.clues.reranker
        return self.embedder if cfg is None else Embedder(cfg)

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

    @cached_property
    def likelihood(self) -> LanguageScorer:
        """The model behind qlm, yes_no and answer_pmi."""
        cfg = self._cfg.scorers.likelihood.resolve(self._cfg.generator)
        return LIKELIHOODS[cfg.engine](cfg)

    @cached_property
    def cross_encoder(self) -> CrossEncoder:
        """The model behind the scorer of that name."""
        cfg = self._cfg.scorers.cross_encoder
        if cfg is None:
            raise ValueError("the run has no scorers.cross_encoder")
        return CROSS_ENCODERS[cfg.engine](cfg)

    @cached_property
    def nli(self) -> Entailment:
        """The model behind ELI5's claim recall."""
        cfg = self._cfg.evaluation.nli
        if cfg is None:
            raise ValueError("the run has no evaluation.nli")
        return NLI_MODELS[cfg.engine](cfg)

    @cached_property
    def embedder(self) -> "Embedder":
        """The model behind the scorer bi_encoder."""
        from pipeline.engines.embedder import Embedder

        if self._cfg.scorers.bi_encoder is None:
            raise ValueError("the run has no scorers.bi_encoder")
        return Embedder(self._cfg.scorers.bi_encoder)

    def close(self) -> None:
        """Ends what the engines started."""
        if "generator" in self.__dict__:
            self.generator.close()
        if "likelihood" in self.__dict__:
            self.likelihood.close()
        for name in ("ranker", "extractor", "truncator"):
            model = self.__dict__.get(name)
            if model is not None and model is not self.__dict__.get("generator"):
                model.close()
