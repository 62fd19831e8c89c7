"""How many tokens an encoder reads, whichever of model and tokenizer allows fewer."""

from typing import Any


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
