"""Questions and passages as vectors: a bi-encoder through transformers, or a fake without weights.

Both sides of an index, and the bi-encoder scorer, use this one module, so that a passage has the
same vector wherever it is scored. B texts of a batch, T tokens, D dimensions.
"""

import hashlib
import time
from collections.abc import Sequence
from typing import Any, Literal, Protocol

import numpy as np

from pipeline.config import EmbedderConfig
from pipeline.engines.base import Floats, ModelNotFound, first_line
from pipeline.engines.encoders import encoder_window, load_whole

Kind = Literal["query", "passage"]
FAKE_DIMENSIONS = 64


class Embedder:
    """A model that gives every text one vector of D numbers.

    A text's vector does not depend on the texts beside it but for the rounding of the last bits.
    ModelNotFound when the model cannot be loaded or would run with weights made up at random.
    """

    def __init__(self, cfg: EmbedderConfig) -> None:
        self._cfg = cfg
        self._model: _Model = _Fake(cfg) if cfg.engine == "fake" else _Transformers(cfg)
        self.dimensions = self._model.dimensions

    def encode(self, texts: Sequence[str], kind: Kind) -> Floats:
        """float32 (len(texts), D), row i of text i; texts are cut at `max_tokens`."""
        ids = self._token_ids(texts, kind)
        vectors = np.zeros((len(texts), self.dimensions), dtype=np.float32)
        order = sorted(range(len(texts)), key=lambda i: len(ids[i]), reverse=True)
        for start in range(0, len(order), self._cfg.batch_size):
            rows = order[start : start + self._cfg.batch_size]
            vectors[rows] = self._model.embed([ids[i] for i in rows])
        return _unit(vectors) if self._cfg.normalize else vectors

    def count_tokens(self, texts: Sequence[str], kind: Kind) -> list[int]:
        """The tokens that `encode` reads of each text, with prefix and special ones."""
        return [len(ids) for ids in self._token_ids(texts, kind)]

    def _token_ids(self, texts: Sequence[str], kind: Kind) -> list[list[int]]:
        prefix = self._cfg.query_prefix if kind == "query" else self._cfg.passage_prefix
        return self._model.tokenize([prefix + text for text in texts]) if texts else []


def passage_text(title: str, text: str) -> str:
    """What is encoded of a passage: title, blank, text (the order of BEIR's dense baselines)."""
    return f"{title} {text}".strip()


class _Model(Protocol):
    dimensions: int

    def tokenize(self, texts: Sequence[str]) -> list[list[int]]: ...

    def embed(self, ids: Sequence[Sequence[int]]) -> Floats: ...


class _Transformers:
    """The last hidden states of an encoder, pooled in float32."""

    def __init__(self, cfg: EmbedderConfig) -> None:
        import torch
        from transformers import AutoTokenizer

        self._torch, self._cfg = torch, cfg
        torch.set_num_threads(cfg.threads)
        self._device = "cuda" if torch.cuda.is_available() else "cpu"
        try:
            self._tokenizer: Any = AutoTokenizer.from_pretrained(cfg.model, revision=cfg.revision)
        except (OSError, ValueError) as error:
            raise ModelNotFound(
                f"embedder.model {cfg.model!r}: neither a local folder with a tokenizer that can "
                f"be used nor reachable on the Hugging Face hub ({first_line(error)})"
            ) from None
        self._model: Any = _load(cfg).to(self._device).eval()
        self._check_window()
        self.dimensions = int(self._model.config.hidden_size)

    def _check_window(self) -> None:
        limit = encoder_window(self._model, self._tokenizer)
        if self._cfg.max_tokens > limit:
            raise ModelNotFound(
                f"embedder.max_tokens {self._cfg.max_tokens}: {self._cfg.model!r} reads at most "
                f"{limit} tokens"
            )

    def tokenize(self, texts: Sequence[str]) -> list[list[int]]:
        """Ids with the model's special tokens."""
        found = self._tokenizer(list(texts), truncation=True, max_length=self._cfg.max_tokens)
        return [list(ids) for ids in found.input_ids]

    def embed(self, ids: Sequence[Sequence[int]]) -> Floats:
        """float32 (B, D) of token ids."""
        torch = self._torch
        ids_BT = torch.full((len(ids), max(map(len, ids))), self._tokenizer.pad_token_id or 0)
        mask_BT = torch.zeros_like(ids_BT)
        for row, own in enumerate(ids):
            ids_BT[row, : len(own)] = torch.tensor(own)
            mask_BT[row, : len(own)] = 1
        mask_BT = mask_BT.to(self._device)
        with torch.inference_mode():
            output = self._model(input_ids=ids_BT.to(self._device), attention_mask=mask_BT)
        states_BTD = output.last_hidden_state.float()
        if self._cfg.pooling == "cls":
            pooled_BD = states_BTD[:, 0]
        else:
            mask_BT1 = mask_BT.unsqueeze(-1).float()
            pooled_BD = (states_BTD * mask_BT1).sum(1) / mask_BT1.sum(1)
        return np.asarray(pooled_BD.cpu().numpy(), dtype=np.float32)


def _load(cfg: EmbedderConfig) -> Any:
    """The encoder; ModelNotFound where it has none, or lacks weights that the vectors rest on."""
    from transformers import AutoModel

    return load_whole(AutoModel, cfg, key="embedder", spare="pooler.")


class _Fake:
    """A word's vector is drawn from its hash; a text's is the sum over its words, so that texts
    with many words in common lie close together.

    `model` names its temper: any text, or `delay=SECONDS` (every batch takes as long).
    """

    dimensions = FAKE_DIMENSIONS

    def __init__(self, cfg: EmbedderConfig) -> None:
        self._max_tokens = cfg.max_tokens
        key, _, value = cfg.model.partition("=")
        self._delay_seconds = float(value) if key == "delay" else 0.0

    def tokenize(self, texts: Sequence[str]) -> list[list[int]]:
        """One id a word, letters lowered, without the marks at its ends."""
        words = [[word.strip(".,;:!?()'\"") for word in text.lower().split()] for text in texts]
        return [[_word_id(word) for word in row if word][: self._max_tokens] for row in words]

    def embed(self, ids: Sequence[Sequence[int]]) -> Floats:
        """float32 (B, D) of word ids; zeros for a text without words."""
        time.sleep(self._delay_seconds)
        vectors_BD = np.zeros((len(ids), FAKE_DIMENSIONS), dtype=np.float32)
        for row, words in enumerate(ids):
            for word in words:
                draw = np.random.default_rng(word).standard_normal(FAKE_DIMENSIONS)
                vectors_BD[row] += draw.astype(np.float32)
        return vectors_BD


def _word_id(word: str) -> int:
    return int.from_bytes(hashlib.sha256(word.encode()).digest()[:8], "big")


def _unit(vectors_BD: Floats) -> Floats:
    """Rows of length one; a row of zeros stays."""
    lengths_B1 = np.linalg.norm(vectors_BD, axis=1, keepdims=True)
    return np.asarray(vectors_BD / np.maximum(lengths_B1, 1e-12), dtype=np.float32)
