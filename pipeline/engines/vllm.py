"""vLLM as probe and generator: one AsyncLLM whose requests from many questions run together.

`in_engine` probes get u_t back as the sampled token's value (engines/entropy_probe.py);
`flat_logprobs` probes get the K largest log-probabilities of each step and reduce them here: the
reference, without any plug-in, and the mode that yields a trace. Final answers never pass
through the processor. T steps, K top entries.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np

from pipeline.config import GeneratorConfig, ProbeConfig
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

    async def rollout(self, prompt_ids: Sequence[int]) -> Rollout:
        """One probe in the configured mode."""
        check_window(len(prompt_ids), self._probe.max_tokens, self.max_model_len)
        k, vocabulary = self._probe.top_k, self._engine.vocabulary
        if k > vocabulary:
            raise Refusal(f"K = {k} exceeds the vocabulary of {vocabulary} tokens")
        if self._cfg.probe_mode == "in_engine":
            from pipeline.engines.entropy_probe import KEY, RUNNER_UP

            extra = {KEY: {"k": k}}
            output = await self._run(prompt_ids, self._probe.max_tokens, RUNNER_UP, extra)
            u_T, margin_T = read_in_engine(_table(output, RUNNER_UP + 1))
            return Rollout(tuple(output.token_ids), u_T, margin_T, None)
        output = await self._run(prompt_ids, self._probe.max_tokens, k, None)
        logprobs_TK = _table(output, k + 1)[:, 1:]  # column 0 repeats the sampled token
        return rollout_of(output.token_ids, logprobs_TK, k=k, with_trace=self._probe.trace)

    async def complete(self, prompt_ids: Sequence[int], *, max_tokens: int) -> Completion:
        """One answer."""
        check_window(len(prompt_ids), max_tokens, self.max_model_len)
        output = await self._run(prompt_ids, max_tokens, None, None)
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
    ) -> Any:
        """The vLLM CompletionOutput of one greedy request."""
        output = await self._engine.run(
            prompt_ids,
            max_tokens=max_tokens,
            stop_token_ids=list(self.tokenizer.stop_ids),
            logprobs=logprobs,
            flat_logprobs=logprobs is not None,
            extra_args=extra_args,
        )
        return checked(output.outputs[0])


def read_in_engine(values_T3: Floats) -> tuple[Floats, Floats]:
    """(u_T, margin_T) from what the entropy processor left: u, the largest (u), the runner-up.

    The runner-up is minus the margin; a tie for the first place repeats u >= 0: margin 0.
    """
    u_T, runner_up_T = values_T3[:, 0], values_T3[:, 2]
    if np.isnan(u_T).any():
        raise Refusal("the model's logits are not finite")
    if (u_T < 0).any() or (u_T > 1).any():
        raise ValueError(f"u outside [0, 1]: {u_T.tolist()}: is the entropy processor installed?")
    margin_T = np.where(runner_up_T < 0, -runner_up_T, 0).astype(np.float32)
    return u_T, margin_T


def _table(output: Any, columns: int) -> Floats:
    """A request's flat log-probabilities as (T, columns)."""
    values = np.asarray(output.logprobs.logprobs, dtype=np.float32)
    steps = len(output.token_ids)
    if len(values) != steps * columns:
        raise RuntimeError(f"vLLM returned {len(values)} values for {steps} steps of {columns}")
    return values.reshape(steps, columns)
