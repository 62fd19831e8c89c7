"""A cross-encoder through transformers: one logit for a question and a passage read together.

B pairs of a batch, T tokens, C labels.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch

from pipeline.config import CrossEncoderConfig
from pipeline.engines.base import Floats, ModelNotFound, first_line
from pipeline.engines.encoders import encoder_window, load_whole

KEY = "scorers.cross_encoder"


class HfCrossEncoder:
    """See engines.base.CrossEncoder.

    With one label the score is its logit, with two the logit of label 1 (relevant) minus that of
    label 0: the log-odds. ModelNotFound when the model cannot be loaded, has other labels, or
    would run with weights made up at random.
    """

    def __init__(self, cfg: CrossEncoderConfig) -> None:
        from transformers import AutoTokenizer

        self._cfg = cfg
        torch.set_num_threads(cfg.threads)
        try:
            self._tokenizer: Any = AutoTokenizer.from_pretrained(cfg.model, revision=cfg.revision)
        except (OSError, ValueError) as error:
            raise ModelNotFound(
                f"{KEY}.model {cfg.model!r}: neither a local folder with a tokenizer that can be "
                f"used nor reachable on the Hugging Face hub ({first_line(error)})"
            ) from None
        device = "cuda" if torch.cuda.is_available() else "cpu"
        self._model = _load(cfg).to(device).eval()
        self._check()

    def score(self, pairs: Sequence[tuple[str, str]]) -> tuple[Floats, list[int]]:
        """float32 (len(pairs),) and the tokens read of each pair, special ones included."""
        if not pairs:
            return np.zeros(0, np.float32), []
        encoded = self._tokenizer(
            [question for question, _ in pairs],
            [passage for _, passage in pairs],
            truncation=True,
            max_length=self._cfg.max_tokens,
        )
        tokens = [len(ids) for ids in encoded.input_ids]
        scores = np.zeros(len(pairs), np.float32)
        order = sorted(range(len(pairs)), key=tokens.__getitem__, reverse=True)
        for start in range(0, len(order), self._cfg.batch_size):
            rows = order[start : start + self._cfg.batch_size]
            batch = {name: [values[row] for row in rows] for name, values in encoded.items()}
            scores[rows] = self._logits(batch)
        return scores, tokens

    @torch.inference_mode()
    def _logits(self, batch: Mapping[str, Sequence[Sequence[int]]]) -> Floats:
        """(B,) of tokenised pairs."""
        padded_BT = self._tokenizer.pad(batch, return_tensors="pt").to(self._model.device)
        logits_BC = self._model(**padded_BT).logits.float()
        one = logits_BC.shape[1] == 1
        logits_B = logits_BC[:, 0] if one else logits_BC[:, 1] - logits_BC[:, 0]
        return np.asarray(logits_B.cpu().numpy(), dtype=np.float32)

    def _check(self) -> None:
        """ModelNotFound where labels or window are not what the config asks for."""
        config = self._model.config
        if config.num_labels not in (1, 2):
            raise ModelNotFound(
                f"{KEY}.model {self._cfg.model!r} has {config.num_labels} labels; allowed: 1 or 2"
            )
        limit = encoder_window(self._model, self._tokenizer)
        if self._cfg.max_tokens > limit:
            raise ModelNotFound(
                f"{KEY}.max_tokens {self._cfg.max_tokens}: {self._cfg.model!r} reads at most "
                f"{limit} tokens"
            )


def _load(cfg: CrossEncoderConfig) -> Any:
    """The classifier; ModelNotFound where it lacks weights, such as those of its head."""
    from transformers import AutoModelForSequenceClassification

    return load_whole(AutoModelForSequenceClassification, cfg, key=KEY)
