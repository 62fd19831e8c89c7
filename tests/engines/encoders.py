"""Tiny random encoders with a classification head, for tests that need real plumbing."""

from pathlib import Path
from typing import Any

TEXT = "who lit the first lantern on north pier its keeper oda brill in an otter sleeps kelp"
WORDS = TEXT.split()


def bert(folder: Path, **settings: Any) -> str:
    """A BERT of two layers, drawn at random, with a word a token."""
    import torch
    from transformers import BertConfig, BertForSequenceClassification, BertTokenizer

    vocabulary = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *WORDS]
    torch.manual_seed(1)
    config = BertConfig(
        **{
            "vocab_size": len(vocabulary),
            "hidden_size": 32,
            "num_hidden_layers": 2,
            "num_attention_heads": 2,
            "intermediate_size": 64,
            "max_position_embeddings": 64,
            "num_labels": 1,
            "initializer_range": 0.5,
            **settings,
        }
    )
    BertForSequenceClassification(config).save_pretrained(folder)
    ids = {word: i for i, word in enumerate(vocabulary)}
    BertTokenizer(vocab=ids, model_max_length=64).save_pretrained(folder)
    return str(folder)


def roberta(folder: Path, **settings: Any) -> str:
    """An XLM-RoBERTa of two layers, drawn at random, whose positions start behind its padding."""
    import torch
    from transformers import (
        XLMRobertaConfig,
        XLMRobertaForSequenceClassification,
        XLMRobertaTokenizer,
    )

    pieces = [("<s>", 0.0), ("<pad>", 0.0), ("</s>", 0.0), ("<unk>", 0.0)]
    pieces += [(f"\u2581{word}", -2.0) for word in WORDS] + [("<mask>", 0.0)]
    torch.manual_seed(2)
    config = XLMRobertaConfig(
        **{
            "vocab_size": len(pieces),
            "hidden_size": 32,
            "num_hidden_layers": 2,
            "num_attention_heads": 2,
            "intermediate_size": 64,
            "max_position_embeddings": 66,
            "type_vocab_size": 1,
            "pad_token_id": 1,
            "bos_token_id": 0,
            "eos_token_id": 2,
            "num_labels": 1,
            "initializer_range": 0.5,
            **settings,
        }
    )
    XLMRobertaForSequenceClassification(config).save_pretrained(folder)
    XLMRobertaTokenizer(vocab=pieces).save_pretrained(folder)
    return str(folder)
