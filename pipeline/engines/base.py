"""What the pipeline asks of a model or an index, and how they fail.

T steps of a rollout, K top entries of a step, J values of K in a trace (core.uncertainty.TRACE_KS).
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from pipeline.core import uncertainty
from pipeline.prompts.render import Prompt

Floats = NDArray[np.float32]


class Refusal(ValueError):
    """An engine will not serve this request; the message is the row's reason."""


class EngineDead(RuntimeError):
    """An engine is lost with all its requests; the actor that holds it must end."""


class ModelNotFound(ValueError):
    """A model or index that cannot be loaded; the message is one line for the user."""


@dataclass(frozen=True)
class Rollout:
    """One greedy probe: T >= 1 tokens, the end token included where it was reached."""

    token_ids: tuple[int, ...]
    u_T: Floats  # normalised top-K entropy of each step, in [0, 1]
    margin_T: Floats  # top-1 minus top-2 logit, >= 0
    trace_JT: Floats | None


@dataclass(frozen=True)
class Completion:
    """One greedy answer. `answer_tokens` counts the end token where it was reached."""

    text: str
    prompt_tokens: int
    answer_tokens: int
    finish_reason: Literal["stop", "length"]


class Tokenizer(Protocol):
    """The generator's own tokenizer with its chat template."""

    @property
    def stop_ids(self) -> tuple[int, ...]:
        """The ids that end an answer."""

    def encode(self, prompt: Prompt) -> list[int]:
        """Token ids of a raw text, or of messages through the chat template with the turn
        of the assistant opened. Refusal when there is no chat template."""

    def ids(self, text: str) -> list[int]:
        """Token ids of a text alone, without special tokens."""

    def count(self, text: str) -> int:
        """Tokens of a text alone, without special tokens."""

    def decode(self, token_ids: Sequence[int]) -> str:
        """Text without special tokens, stripped."""


class Generator(Protocol):
    """A causal language model under greedy decoding that ends at any id of `stop_ids`.

    Requests may be made at once from many coroutines; the engine batches them. Every method
    raises Refusal for a request that it cannot serve and EngineDead when it is lost.
    """

    @property
    def tokenizer(self) -> Tokenizer:
        """The model's own."""

    @property
    def max_model_len(self) -> int:
        """The window in tokens, prompt and answer together."""

    async def rollout(self, prompt_ids: Sequence[int], *, u_limit: float = math.inf) -> Rollout:
        """One probe with the engine's K and MT.

        It may end at any step after which its u sum to more than `u_limit`, with an end token in
        place of that step's own.
        """

    async def complete(self, prompt_ids: Sequence[int], *, max_tokens: int) -> Completion:
        """One answer of at most `max_tokens` tokens."""

    def close(self) -> None:
        """Ends whatever the engine started."""


@runtime_checkable
class Constrained(Protocol):
    """What a generator has that can be held to a regular expression."""

    async def complete_matching(
        self, prompt_ids: Sequence[int], pattern: str, *, max_tokens: int
    ) -> Completion:
        """One greedy answer whose text matches the pattern whole, unless `max_tokens` cut it."""


class LanguageScorer(Protocol):
    """A causal language model that says how likely given tokens are, in nats.

    Requests may be made at once from many coroutines; the engine batches them. Every method
    raises Refusal for a request that it cannot serve and EngineDead when it is lost.
    """

    @property
    def tokenizer(self) -> Tokenizer:
        """The model's own."""

    @property
    def max_model_len(self) -> int:
        """The window in tokens; one of them is kept free for a token that is sampled."""

    async def log_likelihood(self, prefix_ids: Sequence[int], target_ids: Sequence[int]) -> Floats:
        """(L,) log p of each of the L target tokens given the prefix and the targets before it."""

    async def next_token(self, prompt_ids: Sequence[int], token_ids: Sequence[int]) -> Floats:
        """(J,) log p of each of J tokens as the one that follows the prompt."""

    def close(self) -> None:
        """Ends whatever the engine started."""


class CrossEncoder(Protocol):
    """A model that reads a question and a passage together."""

    def score(self, pairs: Sequence[tuple[str, str]]) -> tuple[Floats, list[int]]:
        """The logit of each (question, passage), higher is better, and the tokens read of it."""


class Verdict(NamedTuple):
    """Whether a text entails a claim. `tokens` were read and written; `cut` says that the text was
    shortened to the window, `unread` that the model said neither yes nor no, taken for no."""

    entailed: bool
    tokens: int
    cut: bool
    unread: bool


class Entailment(Protocol):
    """A model of natural language inference."""

    def judge(self, pairs: Sequence[tuple[str, str]]) -> list[Verdict]:
        """Of each (text, claim). Refusal where a claim alone fills the window."""


class Passage(NamedTuple):
    """One passage of a corpus."""

    passage_id: str
    title: str
    text: str


@dataclass(frozen=True)
class Hit:
    """One retrieved passage; `score` is the retriever's own, higher is better."""

    passage_id: str
    title: str
    text: str
    score: float


class Retriever(Protocol):
    """A first-stage index."""

    @property
    def fingerprint(self) -> str:
        """Of what the index holds, as its manifest says."""

    def search(self, questions: Sequence[str], *, n: int) -> list[list[Hit]]:
        """At most n passages for each question, best first; ties by passage id."""

    def score(self, question: str, passages: Sequence[Passage]) -> list[float]:
        """The retriever's own score of each given passage for a question, higher is better.

        Refusal where one cannot be scored, such as a passage that a lexical index lacks.
        """


def rollout_of(token_ids: Sequence[int], logits_TK: Floats, *, k: int, with_trace: bool) -> Rollout:
    """A rollout from the k largest logits, or log-probabilities, of each step, largest first."""
    if not np.isfinite(logits_TK[:, 0]).all():
        raise Refusal("the model's logits are not finite")
    return Rollout(
        token_ids=tuple(token_ids),
        u_T=uncertainty.step_uncertainty(logits_TK, k=k).astype(np.float32),
        margin_T=(logits_TK[:, 0] - logits_TK[:, 1]).astype(np.float32),
        trace_JT=uncertainty.trace(logits_TK) if with_trace else None,
    )


def check_window(prompt_tokens: int, max_tokens: int, max_model_len: int) -> None:
    """Refusal when a prompt and its answer do not fit the model's window."""
    if prompt_tokens + max_tokens > max_model_len:
        raise Refusal(
            f"prompt of {prompt_tokens} tokens and {max_tokens} new ones exceed the window "
            f"of {max_model_len} tokens"
        )


def check_scored(prompt_ids: Sequence[int], wanted_ids: Sequence[int]) -> None:
    """Refusal unless there is a prompt and something to score after it."""
    if not prompt_ids or not wanted_ids:
        raise Refusal(
            f"nothing to score: {len(wanted_ids)} tokens after a prompt of {len(prompt_ids)}"
        )


def checked_logprobs(values: Floats) -> Floats:
    """The log-probabilities themselves; Refusal where one is NaN, which an overflow leaves."""
    if np.isnan(values).any():
        raise Refusal("the model's log-probabilities are not numbers")
    return values


def first_line(error: Exception) -> str:
    """An error's message cut to one line, or its kind where it has none."""
    lines = str(error).strip().splitlines()
    return lines[0] if lines else type(error).__name__


def split_contents(contents: str) -> tuple[str, str]:
    """Title and text of a FlashRAG `contents`: first line, often in double quotes, and the rest.

    One enclosing pair of quotes is dropped from the title, no other. A single line is all text,
    with an empty title.
    """
    first, newline, rest = contents.partition("\n")
    if not newline:
        return "", first.strip()
    title = first.strip()
    quoted = len(title) >= 2 and title[0] == title[-1] == '"'
    return (title[1:-1] if quoted else title), rest.strip()
