"""Ask: a model's reply under a grammar, asked for once more where it cannot be read.

The second request is the first one with the reply's opening bracket given, since the same prompt
would be answered alike; after that `on_malformed` decides. Equal prompts run once.
"""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Generic, Literal, Protocol, TypeVar

from pipeline.core import replies
from pipeline.engines.base import Completion, Constrained, Generator, Refusal
from pipeline.prompts.render import Prompt

OPENING = "["


class Read(Protocol):
    """What a grammar makes of a reply."""

    @property
    def malformed(self) -> bool:
        """Whether it could not be read."""

    @property
    def repairs(self) -> dict[str, int]:
        """What had to be bent, by kind."""


R = TypeVar("R", bound=Read)


@dataclass(frozen=True)
class Grammar(Generic[R]):
    """How a reply is read: `pattern` gives a regular expression of it, where one is asked for, and
    `sought` says in messages what it did not hold."""

    read: Callable[[str], R]
    pattern: Callable[[], str]
    sought: str


class Asking(Protocol):
    """The settings of a model that is asked."""

    @property
    def max_tokens(self) -> int:
        """Reply length limit."""

    @property
    def constrained(self) -> bool:
        """Whether nothing but the grammar can be decoded."""

    @property
    def on_malformed(self) -> Literal["keep_all", "dead_letter"]:
        """What becomes of a second reply that cannot be read."""


class Record:
    """What the requests of one row came to; the repairs are of the replies that were taken."""

    def __init__(self) -> None:
        self.calls = self.retries = self.malformed = self.tokens = 0
        self.replies: list[str] = []
        self.repairs: list[dict[str, int]] = []

    def plain(self, kinds: Sequence[str]) -> dict[str, Any]:
        """The counts and replies as the row's columns hold them, the repairs by kind."""
        names = ("calls", "retries", "malformed", "tokens", "replies")
        counts = {name: getattr(self, name) for name in names}
        return {**counts, "repairs": replies.total(self.repairs, kinds)}


class Asker:
    """Asks one model on behalf of the rows of one block."""

    def __init__(self, generator: Generator, cfg: Asking) -> None:
        check_constrained(generator, cfg)
        self._generator, self._cfg = generator, cfg
        self._running: dict[tuple[int, ...], asyncio.Task[Completion]] = {}

    async def ask(self, prompt: Prompt, grammar: Grammar[R], record: Record) -> R:
        """The reply as it was read, malformed or not; Refusal where the question is to end."""
        tokenizer = self._generator.tokenizer
        prompt_ids = tokenizer.encode(prompt)
        record.calls += 1
        reply = await self._reply(prompt_ids, "", grammar, record)
        if reply.malformed:
            record.retries += 1
            again = [*prompt_ids, *tokenizer.ids(OPENING)]
            reply = await self._reply(again, OPENING, grammar, record)
        if reply.malformed and self._cfg.on_malformed == "dead_letter":
            raise Refusal(f"no {grammar.sought} in the reply {record.replies[-1]!r}")
        record.repairs.append(reply.repairs)
        record.malformed += reply.malformed
        return reply

    async def _reply(
        self, prompt_ids: list[int], begun: str, grammar: Grammar[R], record: Record
    ) -> R:
        """The reply to a prompt that has begun it with the text `begun`."""
        key = tuple(prompt_ids)
        if key not in self._running:
            self._running[key] = asyncio.ensure_future(self._complete(prompt_ids, grammar))
        made = await self._running[key]
        text = _continued(begun, made.text)
        record.replies.append(text)
        record.tokens += made.prompt_tokens + made.answer_tokens
        return grammar.read(text)

    async def _complete(self, prompt_ids: Sequence[int], grammar: Grammar[R]) -> Completion:
        limit = self._cfg.max_tokens
        if self._cfg.constrained and isinstance(self._generator, Constrained):
            pattern = grammar.pattern()
            return await self._generator.complete_matching(prompt_ids, pattern, max_tokens=limit)
        return await self._generator.complete(prompt_ids, max_tokens=limit)


def _continued(begun: str, text: str) -> str:
    """A reply to a prompt that has begun it; some models begin it once more."""
    own = text.lstrip()
    return own if begun and own.startswith(begun) else begun + text


def check_constrained(generator: Generator, cfg: Asking) -> None:
    """TypeError where the model is to be held to a grammar and cannot be."""
    if cfg.constrained and not isinstance(generator, Constrained):
        raise TypeError(f"{type(generator).__name__} cannot be held to a grammar")
