"""Likelihoods through transformers: the plain reference, one padded forward pass a batch.

Sequences are padded on the left, so that every row's wanted positions are its last ones and the
logits of all others need not be made. B rows, L wanted positions, J ids wanted at each.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch

from pipeline.config import GeneratorConfig
from pipeline.engines.base import Floats, check_scored, check_window, checked_logprobs
from pipeline.engines.batching import Batcher
from pipeline.engines.tokenizer import HfTokenizer
from pipeline.engines.transformers import load_causal


@dataclass(frozen=True)
class _Request:
    read_ids: tuple[int, ...]
    wanted_LJ: tuple[tuple[int, ...], ...]  # at the last L positions of `read_ids`


class TransformersScorer:
    """See engines.base.LanguageScorer. One batch runs at a time, in a thread of its own."""

    def __init__(self, cfg: GeneratorConfig) -> None:
        self.tokenizer = HfTokenizer(cfg)
        self.max_model_len = cfg.max_model_len
        self._batches: Batcher[_Request, Floats] = Batcher(
            self._score,
            size=cfg.runtime.max_num_seqs,
            kind=lambda request: len(request.wanted_LJ[0]),
            length=lambda request: len(request.read_ids),
        )
        self._model = load_causal(cfg)

    async def log_likelihood(self, prefix_ids: Sequence[int], target_ids: Sequence[int]) -> Floats:
        """(L,) log p of each target token."""
        ids = (*prefix_ids, *target_ids)
        check_scored(prefix_ids, target_ids)
        check_window(len(ids), 1, self.max_model_len)
        wanted_L1 = tuple((token,) for token in target_ids)
        values_L1 = await self._ask(_Request(ids[:-1], wanted_L1))
        return values_L1.ravel()

    async def next_token(self, prompt_ids: Sequence[int], token_ids: Sequence[int]) -> Floats:
        """(J,) log p of each id after the prompt."""
        check_scored(prompt_ids, token_ids)
        check_window(len(prompt_ids), 1, self.max_model_len)
        values_1J = await self._ask(_Request(tuple(prompt_ids), (tuple(token_ids),)))
        return values_1J.ravel()

    def close(self) -> None:
        """Frees the model."""
        self._model = None

    async def _ask(self, request: _Request) -> Floats:
        return checked_logprobs(await self._batches.submit(request))

    @torch.inference_mode()
    def _score(self, batch: Sequence[_Request]) -> list[Floats]:
        width = max(len(request.read_ids) for request in batch)
        pads = [width - len(request.read_ids) for request in batch]
        ids = [[0] * pad + list(r.read_ids) for pad, r in zip(pads, batch, strict=True)]
        mask = torch.tensor([[0] * pad + [1] * (width - pad) for pad in pads])
        device = self._model.device
        logits_BLV = self._model(
            input_ids=torch.tensor(ids).to(device),
            attention_mask=mask.to(device),
            position_ids=(mask.cumsum(-1) - 1).clamp(min=0).to(device),
            logits_to_keep=max(len(request.wanted_LJ) for request in batch),
            use_cache=False,
        ).logits
        found = []
        for logits_KV, request in zip(logits_BLV, batch, strict=True):
            logits_LV = logits_KV[-len(request.wanted_LJ) :].float()
            wanted_LJ = torch.tensor(request.wanted_LJ, device=device)
            values_LJ = logits_LV.gather(-1, wanted_LJ) - logits_LV.logsumexp(-1, keepdim=True)
            found.append(np.asarray(values_LJ.cpu().numpy(), dtype=np.float32))
        return found
