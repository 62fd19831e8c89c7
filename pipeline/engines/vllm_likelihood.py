"""Likelihoods through vLLM: an engine of its own, whose log-probabilities are the raw ones.

A prefix that other requests share is read from vLLM's prefix cache, which saves its forward
pass; so what is shared, the passage, comes first. L tokens of a target, J wanted ids.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np

from pipeline.config import GeneratorConfig
from pipeline.engines.base import Floats, Refusal, check_scored, check_window, checked_logprobs
from pipeline.engines.tokenizer import HfTokenizer
from pipeline.engines.vllm_engine import VllmEngine, checked

MAX_WANTED = 128
"""The longest list of ids that vLLM takes for one position."""


class VllmScorer:
    """See engines.base.LanguageScorer. Building it loads the model into a process of its own."""

    def __init__(self, cfg: GeneratorConfig) -> None:
        self.tokenizer = HfTokenizer(cfg)
        self.max_model_len = cfg.max_model_len
        self._engine = VllmEngine(cfg, logprobs_mode="raw_logprobs", max_logprobs=MAX_WANTED)

    async def log_likelihood(self, prefix_ids: Sequence[int], target_ids: Sequence[int]) -> Floats:
        """(L,) log p of each target token."""
        ids = [*prefix_ids, *target_ids]
        check_scored(prefix_ids, target_ids)
        check_window(len(ids), 1, self.max_model_len)
        output = await self._read(ids, cached=True)
        if output.num_cached_tokens >= len(prefix_ids):
            # vLLM has no value for a token whose predecessor came from the cache: what it
            # returns there is uninitialised memory, and the target may not lie in it.
            output = await self._read(ids, cached=False)
        return checked_logprobs(target_values(output, tokens=len(ids), target=len(target_ids)))

    async def next_token(self, prompt_ids: Sequence[int], token_ids: Sequence[int]) -> Floats:
        """(J,) log p of each id after the prompt."""
        check_scored(prompt_ids, token_ids)
        check_window(len(prompt_ids), 1, self.max_model_len)
        if len(token_ids) > MAX_WANTED:
            raise Refusal(f"{len(token_ids)} ids wanted at one position; allowed: {MAX_WANTED}")
        output = await self._engine.run(
            prompt_ids, max_tokens=1, logprob_token_ids=list(token_ids), flat_logprobs=True
        )
        found = checked(output.outputs[0]).logprobs  # the sampled token's, then those asked for
        if list(found.token_ids[1:]) != list(token_ids):
            raise RuntimeError(f"vLLM returned ids {found.token_ids[1:]}, not {list(token_ids)}")
        return checked_logprobs(np.asarray(found.logprobs[1:], dtype=np.float32))

    def close(self) -> None:
        """Ends the engine's processes."""
        self._engine.close()

    async def _read(self, ids: Sequence[int], *, cached: bool) -> Any:
        """The vLLM RequestOutput of a prompt with the log-probability of each of its tokens."""
        output = await self._engine.run(
            ids,
            max_tokens=1,
            prompt_logprobs=0,
            flat_logprobs=True,
            skip_reading_prefix_cache=not cached,
        )
        checked(output.outputs[0])
        return output


def target_values(output: Any, *, tokens: int, target: int) -> Floats:
    """(target,) the values of the last tokens of a prompt, from a vLLM RequestOutput.

    vLLM's first model runner has a row for every token but the first, which has no predecessor;
    its second one has none for tokens whose predecessor it read from its cache. RuntimeError on
    any other number of rows, and where the target's are not all there.
    """
    values = np.asarray(output.prompt_logprobs.logprobs, dtype=np.float32)
    computed = tokens - 1 - output.num_cached_tokens
    if len(values) not in (tokens - 1, computed) or len(values) < target:
        raise RuntimeError(
            f"vLLM returned {len(values)} values for a prompt of {tokens} tokens, "
            f"{output.num_cached_tokens} of them cached; expected {tokens - 1} or {computed}"
        )
    return values[-target:]
