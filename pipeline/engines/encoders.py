"""What the encoders share: loading a model whole, and how many tokens it reads."""

from typing import Any

from pipeline.config import CrossEncoderConfig, EmbedderConfig, NliConfig
from pipeline.engines.base import ModelNotFound, first_line


def load_whole(
    auto: Any,
    cfg: EmbedderConfig | CrossEncoderConfig | NliConfig,
    *,
    key: str,
    spare: str | None = None,
) -> Any:
    """The model by one of transformers' Auto classes; ModelNotFound, naming the config's `key`,
    where it cannot be loaded or its weights lack some, which transformers would fill at random.

    spare: weights whose names start so are not needed.
    """
    import torch

    try:
        model, loaded = auto.from_pretrained(
            cfg.model,
            revision=cfg.revision,
            dtype=getattr(torch, cfg.dtype),
            output_loading_info=True,
        )
    except (OSError, ValueError) as error:
        raise ModelNotFound(f"{key}.model {cfg.model!r}: {first_line(error)}") from None
    missing = sorted(n for n in loaded["missing_keys"] if spare is None or not n.startswith(spare))
    if missing:
        raise ModelNotFound(
            f"{key}.model {cfg.model!r}: its weights lack {len(missing)} that it needs, "
            f"{missing[0]} first"
        )
    return model


def encoder_window(model: Any, tokenizer: Any) -> int:
    """Tokens with the special ones, of a transformers encoder with or without a head.

    The RoBERTa family counts positions from behind its padding id, so 514 of them take 512 tokens.
    """
    limits = [int(tokenizer.model_max_length)]
    positions = getattr(model.config, "max_position_embeddings", None)
    if positions is not None:
        embeddings = getattr(model.base_model, "embeddings", None)
        offset = getattr(embeddings, "padding_idx", None)
        limits.append(positions if offset is None else positions - offset - 1)
    return min(limits)
