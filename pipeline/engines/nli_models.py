"""What the model of entailment is, for fingerprints; see engines.models."""

from typing import Any

from pipeline.config import EvaluationConfig, NliConfig
from pipeline.engines import models

NLI = "evaluation.nli"


def pin(cfg: EvaluationConfig) -> EvaluationConfig:
    """The config with the model's branch or tag replaced by the commit that it names now."""
    own = cfg.nli
    if own is None or own.engine == "fake":
        return cfg
    pinned = models.commit(own.model, own.revision, key=f"{NLI}.model")
    return cfg.model_copy(update={"nli": own.model_copy(update={"revision": pinned})})


def describe(cfg: NliConfig) -> dict[str, Any]:
    """Settings, library version and model hash or commit; what only changes the speed left out.

    ModelNotFound when model or library is missing.
    """
    settings = cfg.plain(exclude={"model", "revision", "batch_size", "threads"})
    if cfg.engine == "fake":
        return {"settings": settings}
    return {
        "settings": settings,
        "version": models.version("transformers", key=f"{NLI}.engine"),
        "model": models.identity(cfg.model, cfg.revision, key=f"{NLI}.model"),
    }
