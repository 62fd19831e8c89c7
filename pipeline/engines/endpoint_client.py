"""Requests to one server behind an OpenAI-compatible API: how many at once, and what failures mean.

What a server says of one request (a 400: too long) is a Refusal. What concerns them all (the key,
the model's name, the address) is a ModelNotFound that names them. What may pass (429, 5xx, silence,
a reply that cannot be read) is tried again under a backoff, and at last the engine is dead. The key
comes from the environment and goes into no message.
"""

import asyncio
import json
import os
import random
from asyncio import sleep
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Any

from openai import APIConnectionError, APIStatusError, AsyncOpenAI

from pipeline.config import EndpointConfig
from pipeline.engines.base import EngineDead, ModelNotFound, Refusal, first_line

_AGAIN = (408, 409, 425, 429)  # and every 5xx
_NO_KEY = "none"  # the client asks for one
_SHOWN = 300  # characters of what a server says


@dataclass
class Usage:
    """What a server counted, over every reply that came whole."""

    requests: int = 0
    retries: int = 0
    prompt_tokens: int = 0
    cached_tokens: int = 0  # those of the prompt that the server had read before
    completion_tokens: int = 0


@dataclass(frozen=True)
class Reply:
    """One completion: its choice as the server sent it, with `text`, and its tokens as counted."""

    choice: Mapping[str, Any]
    prompt_tokens: int
    cached_tokens: int
    completion_tokens: int


class _Passing(Exception):
    """A failure that another try may not meet."""

    def __init__(self, reason: str, *, asked_seconds: float = 0.0) -> None:
        super().__init__(reason)
        self.asked_seconds = asked_seconds


class EndpointClient:
    """One model at one server. `usage` grows with every reply."""

    def __init__(self, cfg: EndpointConfig, *, model: str) -> None:
        self.usage = Usage()
        self.where = f"endpoint {cfg.base_url}"
        self._cfg, self._model, self._key = cfg, model, key_of(cfg)
        self._slots = asyncio.Semaphore(cfg.concurrency)
        self._openai = AsyncOpenAI(
            base_url=cfg.base_url, api_key=self._key or _NO_KEY, timeout=None, max_retries=0
        )

    async def complete(self, prompt_ids: Sequence[int], settings: Mapping[str, Any]) -> Reply:
        """The completion of a prompt of token ids; `settings` are the request's other fields.

        Refusal, ModelNotFound, or EngineDead after the last retry. A request that waits for its
        next try keeps its slot: the fewer are served, the fewer are sent.
        """
        attempt = 0
        async with self._slots:
            while True:
                try:
                    return await self._try(prompt_ids, settings)
                except _Passing as failure:
                    attempt += 1
                    if attempt > self._cfg.retries:
                        raise EngineDead(
                            f"{self.where}: given up after {attempt} tries: {failure}"
                        ) from None
                    self.usage.retries += 1
                    asked = failure.asked_seconds
                    await sleep(wait_seconds(attempt, asked, self._cfg, lot=random.random()))

    async def _try(self, prompt_ids: Sequence[int], settings: Mapping[str, Any]) -> Reply:
        completions = self._openai.completions.with_raw_response
        try:
            async with asyncio.timeout(self._cfg.timeout_seconds):
                raw = await completions.create(
                    model=self._model, prompt=list(prompt_ids), extra_body=dict(settings)
                )
        except TimeoutError:
            raise _Passing(f"no reply within {self._cfg.timeout_seconds:g} seconds") from None
        except APIConnectionError as error:
            cause = error.__cause__
            reason = first_line(cause if isinstance(cause, Exception) else error)
            raise _Passing(f"no connection: {reason}") from None
        except APIStatusError as error:
            raise self._failure(error, settings) from None
        reply = _parsed(raw.text)
        self.usage.requests += 1
        self.usage.prompt_tokens += reply.prompt_tokens
        self.usage.cached_tokens += reply.cached_tokens
        self.usage.completion_tokens += reply.completion_tokens
        return reply

    def _failure(self, error: APIStatusError, settings: Mapping[str, Any]) -> Exception:
        """What an HTTP status says of this request, or of all."""
        status, reason = error.status_code, self._reason(error)
        if status in _AGAIN or status >= 500:
            header = error.response.headers.get("retry-after")
            asked = retry_after_seconds(header, now=datetime.now(UTC))
            return _Passing(f"{status} ({reason})", asked_seconds=asked)
        variable = self._cfg.api_key_env
        key = f"the key in {variable}" if variable else "no key, for api_key_env names none"
        if status in (401, 402, 403):  # what the server says may quote the key
            return ModelNotFound(f"{self.where}: {status} for model {self._model!r} with {key}")
        if status == 404:
            return ModelNotFound(
                f"{self.where}: 404 for /completions, model {self._model!r}, with {key}: {reason}"
            )
        if "logprobs" in settings and "logprobs" in reason:
            return ModelNotFound(
                f"{self.where} gives no K = {settings['logprobs']} log-probabilities: {reason}; "
                "set generator.max_logprobs to what it gives, and probe.allow_smaller_k"
            )
        return Refusal(f"{self.where}: {status} ({reason})")

    def _reason(self, error: APIStatusError) -> str:
        """What the server said, in one line without the key."""
        said = error.body.get("message") if isinstance(error.body, dict) else error.body
        line = " ".join(str(said or "no reason given").split())[:_SHOWN]
        return line.replace(self._key, "***") if self._key else line


def key_of(cfg: EndpointConfig) -> str | None:
    """The key in the environment, None where none is asked for; ModelNotFound where it is unset."""
    if cfg.api_key_env is None:
        return None
    key = os.environ.get(cfg.api_key_env, "").strip()
    if not key:
        raise ModelNotFound(
            f"endpoint {cfg.base_url}: api_key_env: the environment variable {cfg.api_key_env} "
            "is not set"
        )
    return key


def wait_seconds(attempt: int, asked_seconds: float, cfg: EndpointConfig, *, lot: float) -> float:
    """The wait before retry `attempt`, from 1: the doubled backoff less up to half of it, by a lot
    in [0, 1), or what the server asks for where that is longer; at most cfg.max_wait_seconds."""
    backoff = cfg.backoff_seconds * 2.0 ** min(attempt - 1, 64) * (1 - lot / 2)
    return min(max(backoff, asked_seconds), cfg.max_wait_seconds)


def retry_after_seconds(header: str | None, *, now: datetime) -> float:
    """What a Retry-After header asks for, in seconds or until a date; 0 where it asks nothing that
    can be read (RFC 9110, 10.2.3)."""
    if header is None:
        return 0.0
    try:
        return max(0.0, float(header))
    except ValueError:
        pass
    try:
        until = parsedate_to_datetime(header)
    except ValueError:
        return 0.0
    return max(0.0, (until.replace(tzinfo=until.tzinfo or UTC) - now).total_seconds())


def _parsed(text: str) -> Reply:
    """The reply in a body; _Passing where it holds no completion with its token counts."""
    try:
        value = json.loads(text)
        choice, counted = dict(value["choices"][0]), value["usage"]
        if not isinstance(choice["text"], str):
            raise TypeError("a completion's text must be a text")
        cached = (counted.get("prompt_tokens_details") or {}).get("cached_tokens") or 0
        tokens = int(counted["prompt_tokens"]), int(cached), int(counted["completion_tokens"])
    except (AttributeError, LookupError, TypeError, ValueError):
        line = " ".join(text.split())[:_SHOWN]
        raise _Passing(f"no completion with its usage in the reply {line!r}") from None
    return Reply(choice, *tokens)
