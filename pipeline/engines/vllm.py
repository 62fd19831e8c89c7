"""vLLM as probe and generator: one AsyncLLM whose requests from many questions run together.

`in_engine` probes get u_t back as the sampled token's value (engines/entropy_probe.py), and may
end early; `flat_logprobs` probes get the K largest log-probabilities of each step and reduce them
here: the reference, without any plug-in. Final answers never pass through the processor.
T steps, K top entries.
"""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from pipeline.config import GeneratorConfig, ProbeConfig
from pipeline.engines import probe_channel
from pipeline.engines.base import Completion, Floats, Refusal, Rollout, check_window, rollout_of
from pipeline.engines.tokenizer import HfTokenizer
from pipeline.engines.vllm_engine import VllmEngine, checked

_MODULE = "pipeline.engines.entropy_probe"
_PROCESSORS = (f"{_MODULE}:EntropyProbe", f"{_MODULE}:EntropyProbeV2")


class VllmGenerator:
    """See engines.base.Generator. Building it loads the model into a process of its own."""

    def __init__(self, cfg: GeneratorConfig, probe: ProbeConfig) -> None:
        self.tokenizer = HfTokenizer(cfg)
        self.max_model_len = cfg.max_model_len
        self._cfg, self._probe = cfg, probe
        in_engine = cfg.probe_mode == "in_engine"
        self._engine = VllmEngine(
            cfg,
            logprobs_mode="processed_logits" if in_engine else "raw_logprobs",
            max_logprobs=cfg.max_logprobs or probe.top_k,
            processors=_PROCESSORS if in_engine else None,
        )

    async def rollout(self, prompt_ids: Sequence[int], *, u_limit: float = math.inf) -> Rollout:
        """One probe in the configured mode; flat_logprobs knows no limit."""
        check_window(len(prompt_ids), self._probe.max_tokens, self.max_model_len)
        k, vocabulary = self._probe.top_k, self._engine.vocabulary
        if k > vocabulary:
            raise Refusal(f"K = {k} exceeds the vocabulary of {vocabulary} tokens")
        if self._cfg.probe_mode == "in_engine":
            return await self._rollout_in_engine(prompt_ids, u_limit)
        output = await self._run(prompt_ids, self._probe.max_tokens, k, None)
        logprobs_TK = _table(output, k + 1)[:, 1:]  # column 0 repeats the sampled token
        return rollout_of(output.token_ids, logprobs_TK, k=k, with_trace=self._probe.trace)

    async def _rollout_in_engine(self, prompt_ids: Sequence[int], u_limit: float) -> Rollout:
        probe, stop_id = self._probe, self.tokenizer.stop_ids[0]
        asked = probe_channel.request(
            probe.top_k, trace=probe.trace, u_limit=u_limit, stop_id=stop_id
        )
        output = await self._run(prompt_ids, probe.max_tokens, asked.entries, asked.extra_args())
        by_k, margin_T = probe_channel.read(_table(output, asked.entries + 1), asked.ks)
        trace_JT = probe_channel.trace_of(by_k) if probe.trace else None
        return Rollout(tuple(output.token_ids), by_k[probe.top_k], margin_T, trace_JT)

    async def complete(self, prompt_ids: Sequence[int], *, max_tokens: int) -> Completion:
        """One answer."""
        check_window(len(prompt_ids), max_tokens, self.max_model_len)
        output = await self._run(prompt_ids, max_tokens, None, None)
        text = self.tokenizer.decode(output.token_ids)
        return Completion(text, len(prompt_ids), len(output.token_ids), output.finish_reason)

    async def complete_matching(
        self, prompt_ids: Sequence[int], pattern: str, *, max_tokens: int
    ) -> Completion:
        """See engines.base.Constrained; by vLLM's structured output."""
        from vllm.sampling_params import StructuredOutputsParams

        check_window(len(prompt_ids), max_tokens, self.max_model_len)
        held = StructuredOutputsParams(regex=pattern)
        output = await self._run(prompt_ids, max_tokens, None, None, structured_outputs=held)
        text = self.tokenizer.decode(output.token_ids)
        return Completion(text, len(prompt_ids), len(output.token_ids), output.finish_reason)

    def close(self) -> None:
        """Ends the engine's processes."""
        self._engine.close()

    async def _run(
        self,
        prompt_ids: Sequence[int],
        max_tokens: int,
        logprobs: int | None,
        extra_args: dict[str, Any] | None,
        **settings: Any,
    ) -> Any:
        """The vLLM CompletionOutput of one greedy request."""
        output = await self._engine.run(
            prompt_ids,
            max_tokens=max_tokens,
            stop_token_ids=list(self.tokenizer.stop_ids),
            logprobs=logprobs,
            flat_logprobs=logprobs is not None,
            extra_args=extra_args,
            **settings,
        )
        return checked(output.outputs[0])


def _table(output: Any, columns: int) -> Floats:
    """A request's flat log-probabilities as (T, columns)."""
    values = np.asarray(output.logprobs.logprobs, dtype=np.float32)
    steps = len(output.token_ids)
    if len(values) != steps * columns:
        raise RuntimeError(f"vLLM returned {len(values)} values for {steps} steps of {columns}")
    return values.reshape(steps, columns)
