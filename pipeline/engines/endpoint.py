"""A model behind an OpenAI-compatible server, as generator and as teacher.

Prompts go to /completions as token ids, made here with the model's own tokenizer and chat template:
what the server reads is what budgets count and what the other engines read, and a server that
tokenizes again is found out by its own count. Rollouts and grammars need what vLLM's server knows
beside the API (endpoint.extensions vllm): the ids that were made, the end token among them, and end
tokens as a list; without it a server's own end tokens end an answer. T steps, K top entries.
"""

import math
from collections.abc import Mapping, Sequence
from typing import Any, Literal

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
    rollout_of,
)
from pipeline.engines.endpoint_client import EndpointClient, Reply, Usage
from pipeline.engines.tokenizer import HfTokenizer


class EndpointGenerator:
    """See engines.base.Generator and engines.base.Constrained."""

    def __init__(self, cfg: GeneratorConfig, probe: ProbeConfig) -> None:
        if cfg.endpoint is None:
            raise ValueError("engine endpoint needs the section endpoint")
        self.tokenizer = HfTokenizer(cfg)
        self.max_model_len = cfg.max_model_len
        self._probe, self._extended = probe, cfg.endpoint.extensions == "vllm"
        self._client = EndpointClient(cfg.endpoint, model=cfg.endpoint.model or cfg.model)

    @property
    def usage(self) -> Usage:
        """Requests and tokens so far, as the server counted them."""
        return self._client.usage

    async def rollout(self, prompt_ids: Sequence[int], *, u_limit: float = math.inf) -> Rollout:
        """One probe, whole: a server knows no limit.

        ModelNotFound where it gives fewer than K log-probabilities of a token.
        """
        self._check_extended("rollouts")
        k = self._probe.top_k
        # Entries are keyed by token: by its id, or two of the same text would be one entry.
        asked = {"logprobs": k, "return_tokens_as_token_ids": True}
        reply = await self._run(prompt_ids, self._probe.max_tokens, asked)
        _end(reply)
        token_ids = self._token_ids(reply)
        logprobs_TK = self._table(reply, len(token_ids), k)
        return rollout_of(token_ids, logprobs_TK, k=k, with_trace=self._probe.trace)

    async def complete(self, prompt_ids: Sequence[int], *, max_tokens: int) -> Completion:
        """One answer; its tokens are as many as the server counted."""
        return self._completion(await self._run(prompt_ids, max_tokens, {}))

    async def complete_matching(
        self, prompt_ids: Sequence[int], pattern: str, *, max_tokens: int
    ) -> Completion:
        """See engines.base.Constrained; by the structured output of vLLM's server."""
        self._check_extended("a grammar")
        held = {"structured_outputs": {"regex": pattern}}
        return self._completion(await self._run(prompt_ids, max_tokens, held))

    def close(self) -> None:
        """Nothing to end: the server is not ours, and connections go with their event loop."""

    async def _run(
        self, prompt_ids: Sequence[int], max_tokens: int, settings: Mapping[str, Any]
    ) -> Reply:
        """The server's reply to one greedy request, once it has read as many tokens as we sent."""
        check_window(len(prompt_ids), max_tokens, self.max_model_len)
        greedy: dict[str, Any] = {"max_tokens": max_tokens, "temperature": 0}
        if self._extended:
            greedy |= {
                "stop_token_ids": list(self.tokenizer.stop_ids),
                "ignore_eos": True,  # those are the whole list
                "repetition_penalty": 1.0,  # a model's own default would bend greedy decoding
                "return_token_ids": True,
            }
        reply = await self._client.complete(prompt_ids, {**greedy, **settings})
        if reply.prompt_tokens != len(prompt_ids):
            raise ModelNotFound(
                f"{self._client.where} read {reply.prompt_tokens} tokens where {len(prompt_ids)} "
                "were sent: it does not take token ids as they are"
            )
        return reply

    def _completion(self, reply: Reply) -> Completion:
        end = _end(reply)
        if self._extended:
            text = self.tokenizer.decode(self._token_ids(reply))
        else:
            text = reply.choice["text"].strip()
        return Completion(text, reply.prompt_tokens, reply.completion_tokens, end)

    def _token_ids(self, reply: Reply) -> list[int]:
        """The ids that were made, the end token among them; Refusal where there is none."""
        token_ids = reply.choice.get("token_ids")
        if token_ids is None:
            raise ModelNotFound(
                f"{self._client.where} gives no token_ids, as vLLM's server does: "
                "set generator.endpoint.extensions to none"
            )
        if not token_ids:
            raise Refusal(f"{self._client.where} ended without a token")
        return list(token_ids)

    def _table(self, reply: Reply, steps: int, k: int) -> Floats:
        """(T, K) the largest log-probabilities of each step, largest first."""
        rows = (reply.choice.get("logprobs") or {}).get("top_logprobs") or []
        if rows and len(rows) != steps:
            raise RuntimeError(
                f"{self._client.where} gave log-probabilities of {len(rows)} steps for {steps}"
            )
        fewest = min((len(row or ()) for row in rows), default=0)
        if fewest < k:
            raise ModelNotFound(
                f"{self._client.where} gave {fewest} log-probabilities of a token where "
                f"probe.top_k asks for {k}: set generator.max_logprobs to what it gives, and "
                "probe.allow_smaller_k"
            )
        return np.array([sorted(row.values(), reverse=True)[:k] for row in rows], dtype=np.float32)

    def _check_extended(self, what: str) -> None:
        if not self._extended:
            raise ModelNotFound(
                f"{self._client.where}: {what} needs generator.endpoint.extensions vllm, and a "
                "server of vLLM"
            )


def _end(reply: Reply) -> Literal["stop", "length"]:
    """How the completion ended; EngineDead where the server gave it up, Refusal for another end."""
    reason = reply.choice.get("finish_reason")
    if reason == "stop":
        return "stop"
    if reason == "length":
        return "length"
    if reason in ("abort", "error"):
        raise EngineDead(f"the endpoint gave a request up: {reason}")
    raise Refusal(f"the endpoint ended with {reason!r}")
