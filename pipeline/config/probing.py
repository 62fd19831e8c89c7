"""What a generator's engine can give of a probe, known before any model is loaded."""

from typing import Any

from pipeline.config.models import GeneratorConfig
from pipeline.config.policy import ProbeConfig

TRACE_KS = (2, 4, 8, 16, 32, 64, 128)
"""The K of a trace; core.uncertainty.TRACE_KS, which a test holds equal."""
ENDPOINT_LOGPROBS = 20
"""Log-probabilities of a token that most servers give at most."""


def check_probe(generator: GeneratorConfig, probe: ProbeConfig) -> None:
    """ValueError where the engine cannot make such a rollout."""
    if generator.engine == "vllm":
        _check_vllm(generator, probe)
    if generator.engine == "endpoint":
        _check_endpoint(generator, probe)


def check_rollouts(generator: GeneratorConfig, *, where: str) -> None:
    """ValueError where the policy called `where` needs rollouts, and an endpoint has none."""
    endpoint = generator.endpoint
    if generator.engine == "endpoint" and endpoint is not None and endpoint.extensions == "none":
        raise ValueError(
            f"{where} needs rollouts, whose token ids and end tokens only vLLM's server gives: "
            "set generator.endpoint.extensions to vllm where that is the server"
        )


def with_smaller_k(values: Any) -> Any:
    """A job's raw sections with probe.top_k cut to what the generator's endpoint gives, where
    probe.allow_smaller_k says so. Whatever else is wrong with them is left for their own checks.

    The K that is cut is the K of the run: everything that records or compares one sees it.
    """
    if not isinstance(values, dict):
        return values
    generator, probe = values.get("generator"), values.get("probe")
    if _get(generator, "engine") != "endpoint" or _get(probe, "allow_smaller_k") is not True:
        return values
    cap, k = _get(generator, "max_logprobs") or ENDPOINT_LOGPROBS, _get(probe, "top_k")
    if not isinstance(cap, int) or not isinstance(k, int) or k <= cap:
        return values
    if isinstance(probe, ProbeConfig):
        return {**values, "probe": probe.model_copy(update={"top_k": cap})}
    return {**values, "probe": {**dict(probe or {}), "top_k": cap}}


def _get(section: Any, key: str) -> Any:
    return section.get(key) if isinstance(section, dict) else getattr(section, key, None)


def _check_vllm(generator: GeneratorConfig, probe: ProbeConfig) -> None:
    mode, cap, k = generator.probe_mode, generator.max_logprobs, probe.top_k
    if probe.early_stop_threshold is not None and mode != "in_engine":
        raise ValueError(
            f"probe.early_stop_threshold needs generator.probe_mode in_engine, got {mode}"
        )
    smaller = sum(other < k for other in TRACE_KS) if probe.trace else 0
    needed = k if mode == "flat_logprobs" else 2 + smaller  # u at K, the margin
    if cap is not None and cap < needed:
        raise ValueError(
            f"generator.max_logprobs {cap} is below the {needed} that a probe with "
            f"probe_mode {mode} and top_k {k} returns"
        )


def _check_endpoint(generator: GeneratorConfig, probe: ProbeConfig) -> None:
    cap, k = generator.max_logprobs or ENDPOINT_LOGPROBS, probe.top_k
    if probe.early_stop_threshold is not None:
        raise ValueError("probe.early_stop_threshold: an endpoint ends no rollouts; set it to null")
    if k > cap:
        raise ValueError(
            f"probe.top_k {k} is above the {cap} log-probabilities that the endpoint gives: set "
            f"probe.allow_smaller_k for K = {cap}, or generator.max_logprobs where it gives more"
        )
