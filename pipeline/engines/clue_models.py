"""What the models of selector clues are, for fingerprints; see engines.models."""

from typing import Any

from pipeline.config import ClueModelConfig, CluesConfig, GeneratorConfig
from pipeline.config.clues import EXTRACTOR, TRUNCATOR
from pipeline.engines import models

RERANKER = "clues.reranker"


def pin(cfg: CluesConfig) -> CluesConfig:
    """The config with every branch or tag replaced by the commit that it names now."""
    changes: dict[str, Any] = {
        "extractor": _pinned(cfg.extractor, EXTRACTOR),
        "truncator": _pinned(cfg.truncator, TRUNCATOR),
    }
    if cfg.reranker is not None:
        changes["reranker"] = models.pin(cfg.reranker, section=RERANKER)
    return cfg.model_copy(update=changes)


def describe(asked: ClueModelConfig, generator: GeneratorConfig, *, section: str) -> dict[str, Any]:
    """The model of EXTRACTOR or TRUNCATOR; ModelNotFound as models.describe_asked."""
    return models.describe_asked(
        asked.resolve(generator),
        chat=asked.template == "chat",
        section="generator" if asked.model is None else f"{section}.model",
        template=f"{section}.template",
    )


def _pinned(asked: ClueModelConfig, section: str) -> ClueModelConfig:
    if asked.model is None:
        return asked
    pinned = models.pin(asked.model, section=f"{section}.model")
    return asked.model_copy(update={"model": pinned})
