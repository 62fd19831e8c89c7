"""What the scorers' models are, for fingerprints; see engines.models."""

from typing import Any

from pipeline.config import GeneratorConfig, LikelihoodConfig, ScorersConfig
from pipeline.engines import models
from pipeline.engines.base import ModelNotFound
from pipeline.engines.tokenizer import HfTokenizer

BI_ENCODER = "scorers.bi_encoder"
CROSS_ENCODER, LIKELIHOOD = "scorers.cross_encoder", "scorers.likelihood"


def pin(cfg: ScorersConfig, generator: GeneratorConfig) -> ScorersConfig:
    """The config with every branch or tag replaced by the commit that it names now."""
    changes: dict[str, Any] = {}
    if cfg.bi_encoder is not None:
        changes["bi_encoder"] = models.pin(cfg.bi_encoder, section=BI_ENCODER)
    if cfg.cross_encoder is not None:
        changes["cross_encoder"] = models.pin(cfg.cross_encoder, section=CROSS_ENCODER)
    own = cfg.likelihood
    if own.model is not None and own.resolve(generator).engine != "fake":
        pinned = models.commit(own.model, own.revision, key=f"{LIKELIHOOD}.model")
        changes["likelihood"] = own.model_copy(update={"revision": pinned})
    return cfg.model_copy(update=changes)


def describe_likelihood(cfg: LikelihoodConfig, generator: GeneratorConfig) -> dict[str, Any]:
    """The model that scores, as engines.models describes a generator; ModelNotFound."""
    section = "generator" if cfg.model is None else LIKELIHOOD
    return models.describe(cfg.resolve(generator), needs_chat=False, section=section)


def check_chat(cfg: LikelihoodConfig, generator: GeneratorConfig, *, key: str) -> None:
    """ModelNotFound unless the model that scores has the chat template that `key` asks for."""
    model = cfg.resolve(generator)
    if model.engine != "fake" and not HfTokenizer(model).has_chat_template:
        raise ModelNotFound(f"model {model.model!r} has no chat template: set {key} to literal")
