"""vLLM as probe and generator: one AsyncLLM whose requests from many questions run together.

`in_engine` probes get u_t back as the sampled token's value (engines/entropy_probe.py);
`flat_logprobs` probes get the K largest log-probabilities of each step and reduce them here: the
reference, without any plug-in, and the mode that yields a trace. Final answers never pass
through the processor. T steps, K top entries.
"""

import itertools
import os
from collections.abc import Sequence
from typing import Any

import numpy as np

from pipeline.config import GeneratorConfig, ProbeConfig
from pipeline.engines.base import (
    Completion,
    EngineDead,
    Floats,
    ModelNotFound,
    Refusal,
    Rollout,
    check_window,
    first_line,
    rollout_of,
)
from pipeline.engines.tokenizer import HfTokenizer

_MODULE = "pipeline.engines.entropy_probe"


class VllmGenerator:
    """See engines.base.Generator. Building it loads the model into a process of its own."""

    def __init__(self, cfg: GeneratorConfig, probe: ProbeConfig) -> None:
        self.tokenizer = HfTokenizer(cfg)
        self.max_model_len = cfg.max_model_len
        self._cfg, self._probe = cfg, probe
        self._numbers = itertools.count()
        _set_environment(cfg)
        self._engine, self._vocabulary = _start(cfg, probe)

    async def rollout(self, prompt_ids: Sequence[int]) -> Rollout:
        """One probe in the configured mode."""
        check_window(len(prompt_ids), self._probe.max_tokens, self.max_model_len)
        if self._probe.top_k > self._vocabulary:
            raise Refusal(
                f"K = {self._probe.top_k} exceeds the vocabulary of {self._vocabulary} tokens"
            )
        if self._cfg.probe_mode == "in_engine":
            from pipeline.engines.entropy_probe import KEY, RUNNER_UP

            extra = {KEY: {"k": self._probe.top_k}}
            output = await self._run(prompt_ids, self._probe.max_tokens, RUNNER_UP, extra)
            u_T, margin_T = read_in_engine(_table(output, RUNNER_UP + 1))
            return Rollout(tuple(output.token_ids), u_T, margin_T, None)
        k = self._probe.top_k
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
        self._engine.shutdown(timeout=10)

    async def _run(
        self,
        prompt_ids: Sequence[int],
        max_tokens: int,
        logprobs: int | None,
        extra_args: dict[str, Any] | None,
    ) -> Any:
        """The vLLM CompletionOutput of one greedy request."""
        from vllm import SamplingParams
        from vllm.exceptions import VLLMClientError
        from vllm.sampling_params import RequestOutputKind
        from vllm.v1.engine.exceptions import EngineDeadError

        params = SamplingParams(
            temperature=0,
            max_tokens=max_tokens,
            stop_token_ids=list(self.tokenizer.stop_ids),
            ignore_eos=True,  # stop_token_ids is the whole list
            logprobs=logprobs,
            flat_logprobs=logprobs is not None,
            detokenize=False,
            extra_args=extra_args,
            output_kind=RequestOutputKind.FINAL_ONLY,
        )
        request_id = f"{os.getpid()}-{next(self._numbers)}"
        prompt = {"prompt_token_ids": list(prompt_ids)}
        final = None
        try:
            async for output in self._engine.generate(prompt, params, request_id):
                final = output
        except EngineDeadError as error:
            raise EngineDead(f"vLLM engine of {self._cfg.model!r} died: {error}") from error
        except VLLMClientError as error:
            raise Refusal(f"vLLM refused the request: {error}") from error
        if final is None:
            raise EngineDead(f"vLLM engine of {self._cfg.model!r} gave no answer to a request")
        return checked(final.outputs[0])


def checked(output: Any) -> Any:
    """A vLLM CompletionOutput that ended as a rollout may: at an end token or the length limit.

    EngineDead where the engine gave the request up ("abort", "error"): nothing is known about
    the prompt, so it is to be tried again. Refusal for any other end, or for no token.
    """
    if output.finish_reason in ("abort", "error"):
        raise EngineDead(f"vLLM gave a request up: {output.finish_reason}")
    if output.finish_reason not in ("stop", "length") or not output.token_ids:
        raise Refusal(
            f"vLLM ended with {output.finish_reason!r} after {len(output.token_ids)} tokens"
        )
    return output


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


def _set_environment(cfg: GeneratorConfig) -> None:
    """Settings that vLLM reads from the environment before its first import."""
    os.environ["OMP_NUM_THREADS"] = str(cfg.runtime.threads)
    os.environ["VLLM_CPU_OMP_THREADS_BIND"] = "nobind"  # else two actors share one core
    os.environ.setdefault("VLLM_LOGGING_LEVEL", "WARNING")
    os.environ.setdefault("VLLM_NO_USAGE_STATS", "1")


def _start(cfg: GeneratorConfig, probe: ProbeConfig) -> tuple[Any, int]:
    """The running engine and the size of its vocabulary."""
    from vllm.engine.arg_utils import AsyncEngineArgs
    from vllm.v1.engine.async_llm import AsyncLLM

    runtime, in_engine = cfg.runtime, cfg.probe_mode == "in_engine"
    gib = runtime.kv_cache_gib
    args = AsyncEngineArgs(
        model=cfg.model,
        revision=cfg.revision if not os.path.isdir(cfg.model) else None,
        dtype=cfg.dtype,
        max_model_len=cfg.max_model_len,
        max_num_seqs=runtime.max_num_seqs,
        enforce_eager=runtime.enforce_eager,
        gpu_memory_utilization=runtime.gpu_memory_utilization,
        tensor_parallel_size=runtime.tensor_parallel,
        kv_cache_memory_bytes=None if gib is None else int(gib * 2**30),
        generation_config="vllm",  # the model's own sampling defaults would bend greedy decoding
        logprobs_mode="processed_logits" if in_engine else "raw_logprobs",
        max_logprobs=cfg.max_logprobs or probe.top_k,
        disable_log_stats=True,
    )
    try:
        config = args.create_engine_config()
    except (OSError, ValueError) as error:
        raise ModelNotFound(f"generator of {cfg.model!r}: {first_line(error)}") from error
    if in_engine:
        v2 = config.use_v2_model_runner
        name = "EntropyProbeV2" if v2 else "EntropyProbe"
        config.model_config.logits_processors = [f"{_MODULE}:{name}"]
    engine = AsyncLLM.from_vllm_config(config, disable_log_stats=True)
    return engine, config.model_config.get_vocab_size()
