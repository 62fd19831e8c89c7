"""The plain reference: Hugging Face `generate` in batches, entropies from the raw logits.

Also the engine for machines where vLLM has no build. Requests that arrive together are batched
with left padding, shortest first. B rows of a batch, T steps, K top entries, V vocabulary.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import torch

from pipeline.config import GeneratorConfig, ProbeConfig
from pipeline.core.uncertainty import step_uncertainty
from pipeline.engines.base import (
    Completion,
    Floats,
    ModelNotFound,
    Refusal,
    Rollout,
    check_window,
    first_line,
    rollout_of,
)
from pipeline.engines.batching import Batcher
from pipeline.engines.tokenizer import HfTokenizer

_SLACK = 1e-5


@dataclass(frozen=True)
class _Request:
    prompt_ids: tuple[int, ...]
    max_tokens: int
    top_k: int | None  # None: the answer alone
    u_limit: float = math.inf


@dataclass(frozen=True)
class _Output:
    token_ids: list[int]
    logits_TK: Floats | None


class TransformersGenerator:
    """See engines.base.Generator. One batch runs at a time, in a thread of its own."""

    def __init__(self, cfg: GeneratorConfig, probe: ProbeConfig) -> None:
        from transformers import GenerationConfig

        self.tokenizer = HfTokenizer(cfg)
        self.max_model_len = cfg.max_model_len
        self._probe = probe
        self._batches: Batcher[_Request, _Output] = Batcher(
            self._generate,
            size=cfg.runtime.max_num_seqs,
            kind=lambda request: (request.max_tokens, request.top_k),
            length=lambda request: len(request.prompt_ids),
        )
        self._model = load_causal(cfg)
        # The model's own sampling defaults (a repetition penalty, say) would bend greedy decoding.
        self._model.generation_config = GenerationConfig()

    async def rollout(self, prompt_ids: Sequence[int], *, u_limit: float = math.inf) -> Rollout:
        """One probe."""
        k, vocabulary = self._probe.top_k, self._model.config.get_text_config().vocab_size
        if k > vocabulary:
            raise Refusal(f"K = {k} exceeds the vocabulary of {vocabulary} tokens")
        output = await self._submit(prompt_ids, self._probe.max_tokens, k, u_limit)
        if output.logits_TK is None:
            raise RuntimeError("a probe came back without logits")
        return rollout_of(output.token_ids, output.logits_TK, k=k, with_trace=self._probe.trace)

    async def complete(self, prompt_ids: Sequence[int], *, max_tokens: int) -> Completion:
        """One answer."""
        ids = (await self._submit(prompt_ids, max_tokens, None)).token_ids
        reason: Literal["stop", "length"]
        reason = "stop" if ids[-1] in self.tokenizer.stop_ids else "length"
        return Completion(self.tokenizer.decode(ids), len(prompt_ids), len(ids), reason)

    def close(self) -> None:
        """Frees the model."""
        self._model = None

    async def _submit(
        self,
        prompt_ids: Sequence[int],
        max_tokens: int,
        k: int | None,
        u_limit: float = math.inf,
    ) -> _Output:
        check_window(len(prompt_ids), max_tokens, self.max_model_len)
        return await self._batches.submit(_Request(tuple(prompt_ids), max_tokens, k, u_limit))

    @torch.inference_mode()
    def _generate(self, batch: Sequence[_Request]) -> list[_Output]:
        from transformers import GenerationConfig

        width = max(len(request.prompt_ids) for request in batch)
        pad = self.tokenizer.stop_ids[0]
        pads = [width - len(request.prompt_ids) for request in batch]
        rows = zip(pads, batch, strict=True)
        ids = torch.tensor([[pad] * n + list(r.prompt_ids) for n, r in rows])
        mask = torch.tensor([[0] * n + [1] * (width - n) for n in pads])
        k, limits = batch[0].top_k, [request.u_limit for request in batch]
        stops = min(limits) < math.inf
        made = self._model.generate(
            input_ids=ids.to(self._model.device),
            attention_mask=mask.to(self._model.device),
            generation_config=GenerationConfig(
                do_sample=False,
                max_new_tokens=batch[0].max_tokens,
                eos_token_id=list(self.tokenizer.stop_ids),
                pad_token_id=pad,
                return_dict_in_generate=True,
                output_logits=k is not None,
            ),
            logits_processor=[_EarlyStop(limits, k or 0, pad)] if stops else [],
        )
        new_ids = made.sequences[:, width:].tolist()
        steps = [self._steps(row) for row in new_ids]
        if k is None:
            return [_Output(row[:t], None) for row, t in zip(new_ids, steps, strict=True)]
        top_TBK = torch.stack([step_BV.float().topk(k, dim=-1).values for step_BV in made.logits])
        top_BTK = top_TBK.transpose(0, 1).cpu().numpy()
        rows_and_tops = zip(new_ids, steps, top_BTK, strict=True)
        return [_Output(row[:t], top_TK[:t]) for row, t, top_TK in rows_and_tops]

    def _steps(self, row: list[int]) -> int:
        """T of one row: up to and with its first end token; what follows is padding."""
        ends = (t for t, token in enumerate(row, start=1) if token in self.tokenizer.stop_ids)
        return next(ends, len(row))


class _EarlyStop:
    """A logits processor that makes rows end at the step where their u sum to more than a limit.

    It sees the logits that the rollouts' own u are computed from, and computes the same; the
    slack is for a last digit that comes out differently in a batch, and can only delay.
    """

    def __init__(self, limits: Sequence[float], k: int, end_id: int) -> None:
        self._limit_B, self._sum_B = np.array(limits) + _SLACK, np.zeros(len(limits))
        self._k, self._end_id = k, end_id

    def __call__(self, input_ids: torch.Tensor, scores: torch.Tensor) -> torch.Tensor:
        """(B, V) logits of a step in; a copy with the ending rows rewritten out."""
        top_BK = scores.float().topk(self._k, dim=-1).values.cpu().numpy()
        finite_B = np.isfinite(top_BK[:, 0])  # the others are refused when they come back
        u_R = step_uncertainty(top_BK[finite_B], k=self._k).astype(np.float32)
        self._sum_B[finite_B] += u_R
        over_B = torch.from_numpy(self._sum_B > self._limit_B).to(scores.device)
        ended = scores.masked_fill(over_B[:, None], -torch.inf)
        ended[over_B, self._end_id] = 0.0
        return ended


def load_causal(cfg: GeneratorConfig) -> Any:
    """The model for inference on a GPU where there is one; ModelNotFound."""
    from transformers import AutoModelForCausalLM

    torch.set_num_threads(cfg.runtime.threads)
    device = "cuda" if torch.cuda.is_available() else "cpu"
    try:
        model = AutoModelForCausalLM.from_pretrained(
            cfg.model, revision=cfg.revision, dtype=getattr(torch, cfg.dtype)
        )
    except (OSError, ValueError) as error:
        raise ModelNotFound(f"model {cfg.model!r}: {first_line(error)}") from error
    return model.to(device).eval()
