"""One running AsyncLLM: how it is started, asked and ended, whatever it is asked for."""

import itertools
import os
from collections.abc import Sequence
from importlib.metadata import version
from typing import Any, Literal

from pipeline.config import GeneratorConfig, RuntimeConfig
from pipeline.engines.base import EngineDead, ModelNotFound, Refusal, first_line


class VllmEngine:
    """A model in processes of its own.

    `logprobs_mode` is of the whole engine: it decides what its log-probabilities are. The
    `processors` are logits processors by import path, one for each of vLLM's model runners.
    """

    def __init__(
        self,
        cfg: GeneratorConfig,
        *,
        logprobs_mode: Literal["processed_logits", "raw_logprobs"],
        max_logprobs: int,
        processors: tuple[str, str] | None = None,
    ) -> None:
        self._model, self._numbers = cfg.model, itertools.count()
        _set_environment(cfg.runtime)
        self._engine, self.vocabulary = _start(cfg, logprobs_mode, max_logprobs, processors)

    async def run(self, prompt_ids: Sequence[int], **settings: Any) -> Any:
        """The vLLM RequestOutput of one greedy request; `settings` are of its SamplingParams.

        Refusal where vLLM will not serve it, EngineDead where the engine is lost.
        """
        from vllm import SamplingParams
        from vllm.exceptions import VLLMClientError
        from vllm.sampling_params import RequestOutputKind
        from vllm.v1.engine.exceptions import EngineDeadError

        params = SamplingParams(
            temperature=0,
            ignore_eos=True,  # the stop_token_ids of a request are the whole list
            detokenize=False,
            output_kind=RequestOutputKind.FINAL_ONLY,
            **settings,
        )
        request_id = f"{os.getpid()}-{next(self._numbers)}"
        prompt = {"prompt_token_ids": list(prompt_ids)}
        final = None
        try:
            async for output in self._engine.generate(prompt, params, request_id):
                final = output
        except EngineDeadError as error:
            raise EngineDead(f"vLLM engine of {self._model!r} died: {error}") from error
        except VLLMClientError as error:
            raise Refusal(f"vLLM refused the request: {error}") from error
        if final is None:
            raise EngineDead(f"vLLM engine of {self._model!r} gave no answer to a request")
        return final

    def close(self) -> None:
        """Ends the engine's processes."""
        self._engine.shutdown(timeout=10)


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


def _set_environment(runtime: RuntimeConfig) -> None:
    """Settings that vLLM reads from the environment before its first import."""
    os.environ["OMP_NUM_THREADS"] = str(runtime.threads)
    os.environ["VLLM_CPU_OMP_THREADS_BIND"] = "nobind"  # else two actors share one core
    os.environ.setdefault("VLLM_LOGGING_LEVEL", "WARNING")
    os.environ.setdefault("VLLM_NO_USAGE_STATS", "1")


def _start(
    cfg: GeneratorConfig,
    logprobs_mode: str,
    max_logprobs: int,
    processors: tuple[str, str] | None,
) -> tuple[Any, int]:
    """The running engine and the size of its vocabulary."""
    from vllm.engine.arg_utils import AsyncEngineArgs
    from vllm.v1.engine.async_llm import AsyncLLM

    runtime, gib = cfg.runtime, cfg.runtime.kv_cache_gib
    stat_loggers = _stat_loggers(runtime)
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
        logprobs_mode=logprobs_mode,
        max_logprobs=max_logprobs,
        disable_log_stats=not stat_loggers,
    )
    try:
        config = args.create_engine_config()
    except (OSError, ValueError) as error:
        raise ModelNotFound(f"model {cfg.model!r}: {first_line(error)}") from error
    if processors is not None:
        config.model_config.logits_processors = [processors[bool(config.use_v2_model_runner)]]
    engine = AsyncLLM.from_vllm_config(
        config, stat_loggers=stat_loggers, disable_log_stats=not stat_loggers
    )
    return engine, config.model_config.get_vocab_size()


def _stat_loggers(runtime: RuntimeConfig) -> list[Any]:
    """What hands vLLM's metrics to Ray's endpoint. vLLM asks Ray Serve for it, and where that is
    installed every start of Ray takes ten seconds more, so it is no dependency of the package."""
    if not runtime.engine_metrics:
        return []
    from vllm.v1.metrics import ray_wrappers

    if ray_wrappers.ray_serve is None:
        raise ModelNotFound(
            "runtime.engine_metrics needs Ray Serve, which the extra gpu brings: "
            f"pip install 'ray[serve]=={version('ray')}', or set it to false"
        )
    return [ray_wrappers.RayPrometheusStatLogger]
