"""What the model of the listwise selectors is, for fingerprints; see engines.models."""

from typing import Any

from pipeline.config import GeneratorConfig, ListwiseConfig
from pipeline.engines import models
from pipeline.engines.base import ModelNotFound
from pipeline.engines.tokenizer import HfTokenizer

RANKER = "listwise.ranker"


def pin(cfg: ListwiseConfig) -> ListwiseConfig:
    """The config with the ranker's branch or tag replaced by the commit that it names now."""
    own = cfg.ranker
    if own is None or own.engine == "fake":
        return cfg
    pinned = models.commit(own.model, own.revision, key=f"{RANKER}.model")
    return cfg.model_copy(update={"ranker": own.model_copy(update={"revision": pinned})})


def describe(cfg: ListwiseConfig, generator: GeneratorConfig) -> dict[str, Any]:
    """The model that ranks, without what only rollouts depend on.

    ModelNotFound, also where it has no chat template and `listwise.template` asks for one.
    """
    model = cfg.resolve(generator)
    section = "generator" if cfg.ranker is None else RANKER
    described = models.for_answers(models.describe(model, needs_chat=False, section=section))
    asks_chat = cfg.template == "chat" and model.engine != "fake"
    if asks_chat and not HfTokenizer(model).has_chat_template:
        raise ModelNotFound(
            f"{section}.model {model.model!r} has no chat template: "
            "set listwise.template to literal"
        )
    return described
