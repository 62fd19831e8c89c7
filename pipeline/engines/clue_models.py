"""What the models of selector clues are, for fingerprints; see engines.models."""

from typing import Any

from pipeline.config import ClueModelConfig, CluesConfig, GeneratorConfig
from pipeline.config.clues import EXTRACTOR, TRUNCATOR
from pipeline.engines import embedder, models
from pipeline.engines.base import ModelNotFound
from pipeline.engines.tokenizer import HfTokenizer

RERANKER = "clues.reranker"


def pin(cfg: CluesConfig) -> CluesConfig:
    """The config with every branch or tag replaced by the commit that it names now."""
    changes: dict[str, Any] = {
        "extractor": _pinned(cfg.extractor, EXTRACTOR),
        "truncator": _pinned(cfg.truncator, TRUNCATOR),
    }
    if cfg.reranker is not None:
        changes["reranker"] = embedder.pin(cfg.reranker, section=RERANKER)
    return cfg.model_copy(update=changes)


def describe(asked: ClueModelConfig, generator: GeneratorConfig, *, section: str) -> dict[str, Any]:
    """The model of EXTRACTOR or TRUNCATOR, without what only rollouts depend on.

    ModelNotFound, also where it has no chat template and the section's `template` asks for one.
    """
    model = asked.resolve(generator)
    where = "generator" if asked.model is None else f"{section}.model"
    described = models.for_answers(models.describe(model, needs_chat=False, section=where))
    asks_chat = asked.template == "chat" and model.engine != "fake"
    if asks_chat and not HfTokenizer(model).has_chat_template:
        raise ModelNotFound(
            f"{where}.model {model.model!r} has no chat template: set {section}.template to literal"
        )
    return described


def _pinned(asked: ClueModelConfig, section: str) -> ClueModelConfig:
    own = asked.model
    if own is None or own.engine == "fake":
        return asked
    commit = models.commit(own.model, own.revision, key=f"{section}.model.model")
    return asked.model_copy(update={"model": own.model_copy(update={"revision": commit})})
