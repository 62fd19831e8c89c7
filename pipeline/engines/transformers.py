"""The plain reference: Hugging Face `generate` in batches, entropies from the raw logits.

Also the engine for machines where vLLM has no build. Requests that arrive together are batched
with left padding, shortest first. B rows of a batch, T steps, K top entries, V vocabulary.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import torch

from pipeline.config import GeneratorConfig, ProbeConfig
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


@dataclass(frozen=True)
class _Request:
    prompt_ids: tuple[int, ...]
    max_tokens: int
    top_k: int | None  # None: the answer alone


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

    async def rollout(self, prompt_ids: Sequence[int]) -> Rollout:
        """One probe."""
        k, vocabulary = self._probe.top_k, self._model.config.get_text_config().vocab_size
        if k > vocabulary:
            raise Refusal(f"K = {k} exceeds the vocabulary of {vocabulary} tokens")
        output = await self._submit(prompt_ids, self._probe.max_tokens, k)
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

    async def _submit(self, prompt_ids: Sequence[int], max_tokens: int, k: int | None) -> _Output:
        check_window(len(prompt_ids), max_tokens, self.max_model_len)
        return await self._batches.submit(_Request(tuple(prompt_ids), max_tokens, k))

    @torch.inference_mode()
    def _generate(self, batch: Sequence[_Request]) -> list[_Output]:
        from transformers import GenerationConfig

        width = max(len(request.prompt_ids) for request in batch)
        pad = self.tokenizer.stop_ids[0]
        pads = [width - len(request.prompt_ids) for request in batch]
        rows = zip(pads, batch, strict=True)
        ids = torch.tensor([[pad] * n + list(r.prompt_ids) for n, r in rows])
        mask = torch.tensor([[0] * n + [1] * (width - n) for n in pads])
        k = batch[0].top_k
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
