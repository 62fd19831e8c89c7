"""What the model of the listwise selectors is, for fingerprints; see engines.models."""

from typing import Any

from pipeline.config import GeneratorConfig, ListwiseConfig
from pipeline.engines import models

RANKER = "listwise.ranker"


def pin(cfg: ListwiseConfig) -> ListwiseConfig:
    """The config with the ranker's branch or tag replaced by the commit that it names now."""
    if cfg.ranker is None:
        return cfg
    return cfg.model_copy(update={"ranker": models.pin(cfg.ranker, section=RANKER)})


def describe(cfg: ListwiseConfig, generator: GeneratorConfig) -> dict[str, Any]:
    """The model that ranks; ModelNotFound as models.describe_asked."""
    return models.describe_asked(
        cfg.resolve(generator),
        chat=cfg.template == "chat",
        section="generator" if cfg.ranker is None else RANKER,
        template="listwise.template",
    )
