"""A deterministic stand-in for a language model: the whole pipeline runs in seconds on it.

It has words for tokens and a hash for a mind. What it says and how sure it seems depend on the
prompt alone, never on batch, process or time: an answer is a run of words of the prompt's
passages, and u falls with the share of words that the prompt repeats.

Its `model` names its temper, for tests of what goes wrong: any text, or comma-separated
`delay=SECONDS` (every request takes as long), `die_once=FILE` (the engine is lost at its first
request, unless the file says that this has happened), `kill_once=FILE` (the same, and the whole
process is killed, as where memory is short), `refuse_while=FILE:WORD` (while the file is there, a
prompt with the word is refused), `raise_at=WORD` and `hang_at=WORD` (a prompt with the word raises
what no engine announces, or is never answered).
"""

import asyncio
import hashlib
import math
import os
import signal
from array import array
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from pipeline.config import CrossEncoderConfig, GeneratorConfig, NliConfig, ProbeConfig
from pipeline.core.uncertainty import TRACE_KS, first_step_over
from pipeline.engines.base import (
    Completion,
    EngineDead,
    Floats,
    Refusal,
    Rollout,
    Verdict,
    check_scored,
    check_window,
)
from pipeline.prompts.render import Prompt

_END = 0
_TRACE_SCALE_J = np.linspace(0.5, 1, len(TRACE_KS), dtype=np.float32)


class FakeTokenizer:
    """Words for tokens; an id is a hash of the word, remembered so that it can be decoded."""

    stop_ids: tuple[int, ...] = (_END,)

    def __init__(self) -> None:
        self._numbers = _Numbers()

    def encode(self, prompt: Prompt) -> list[int]:
        """See engines.base.Tokenizer; a message is its role and its content."""
        if not isinstance(prompt, str):
            turns = [f"<{message['role']}> {message['content']}" for message in prompt]
            prompt = " ".join([*turns, "<assistant>"])
        return self.ids(prompt)

    def ids(self, text: str) -> list[int]:
        """See engines.base.Tokenizer."""
        return list(map(self._numbers.__getitem__, text.split()))

    def count(self, text: str) -> int:
        """See engines.base.Tokenizer."""
        return len(text.split())

    def decode(self, token_ids: Sequence[int]) -> str:
        """See engines.base.Tokenizer; only ids that this tokenizer has made."""
        return " ".join(self._numbers.words[i] for i in token_ids if i != _END)


class _Numbers(dict[str, int]):
    """Ids by word, each hashed once; `words` leads back."""

    def __init__(self) -> None:
        super().__init__()
        self.words: dict[int, str] = {}

    def __missing__(self, word: str) -> int:
        number = _number(word)
        self.words[number] = word
        self[word] = number
        return number


def _number(word: str) -> int:
    return 1 + int.from_bytes(hashlib.sha256(word.encode()).digest()[:4], "big")


class FakeGenerator:
    """See engines.base.Generator."""

    def __init__(self, cfg: GeneratorConfig, probe: ProbeConfig) -> None:
        self.tokenizer = FakeTokenizer()
        self.max_model_len = cfg.max_model_len
        self._probe = probe
        self._temper = _Temper(cfg.model)

    async def rollout(self, prompt_ids: Sequence[int], *, u_limit: float = math.inf) -> Rollout:
        """One probe: between 1 and MT steps."""
        check_window(len(prompt_ids), self._probe.max_tokens, self.max_model_len)
        await self._temper.live(prompt_ids)
        random = _random(prompt_ids)
        start = random.bit_generator.state
        ids = _speak(prompt_ids, random, self._probe.max_tokens)
        random.bit_generator.state = start  # as a second one made of the prompt, at half its cost
        repeated = 1 - len(set(prompt_ids)) / len(prompt_ids)
        u_T = (random.random(len(ids)) * (1 - repeated)).astype(np.float32)
        margin_T = (random.random(len(ids)) * 5).astype(np.float32)
        trace_JT = _TRACE_SCALE_J[:, None] * u_T if self._probe.trace else None
        if (steps := first_step_over(u_T, limit=u_limit)) is not None:
            ids, u_T, margin_T = [*ids[: steps - 1], _END], u_T[:steps], margin_T[:steps]
        return Rollout(tuple(ids), u_T, margin_T, trace_JT)

    async def complete(self, prompt_ids: Sequence[int], *, max_tokens: int) -> Completion:
        """One answer."""
        check_window(len(prompt_ids), max_tokens, self.max_model_len)
        await self._temper.live(prompt_ids)
        ids = _speak(prompt_ids, _random(prompt_ids), max_tokens)
        text = self.tokenizer.decode(ids)
        stopped = ids[-1] == _END
        return Completion(text, len(prompt_ids), len(ids), "stop" if stopped else "length")

    def close(self) -> None:
        """Nothing to end."""


class FakeScorer:
    """See engines.base.LanguageScorer: a word is likelier where it has been read before."""

    def __init__(self, cfg: GeneratorConfig) -> None:
        self.tokenizer = FakeTokenizer()
        self.max_model_len = cfg.max_model_len
        self._temper = _Temper(cfg.model)

    async def log_likelihood(self, prefix_ids: Sequence[int], target_ids: Sequence[int]) -> Floats:
        """(L,) each target's value by what stands before it."""
        check_scored(prefix_ids, target_ids)
        check_window(len(prefix_ids) + len(target_ids), 1, self.max_model_len)
        await self._temper.live([*prefix_ids, *target_ids])
        ids, start = [*prefix_ids, *target_ids], len(prefix_ids)
        values = [_log_p(ids[:end], ids[end]) for end in range(start, len(ids))]
        return np.array(values, np.float32)

    async def next_token(self, prompt_ids: Sequence[int], token_ids: Sequence[int]) -> Floats:
        """(J,) each id's value after the prompt."""
        check_scored(prompt_ids, token_ids)
        check_window(len(prompt_ids), 1, self.max_model_len)
        await self._temper.live(prompt_ids)
        return np.array([_log_p(prompt_ids, token) for token in token_ids], np.float32)

    def close(self) -> None:
        """Nothing to end."""


class FakeCrossEncoder:
    """See engines.base.CrossEncoder: the share of the question's words in the passage."""

    def __init__(self, cfg: CrossEncoderConfig) -> None:
        self._max_tokens = cfg.max_tokens

    def score(self, pairs: Sequence[tuple[str, str]]) -> tuple[Floats, list[int]]:
        """In [0, 1]; a token is a word."""
        scores, tokens = np.zeros(len(pairs), np.float32), []
        for row, (question, passage) in enumerate(pairs):
            words, others = question.lower().split(), passage.lower().split()
            scores[row] = len({*words} & {*others}) / max(1, len({*words}))
            tokens.append(min(len(words) + len(others), self._max_tokens))
        return scores, tokens


class FakeNli:
    """See engines.base.Entailment: a text entails a claim whose words it all holds."""

    def __init__(self, cfg: NliConfig) -> None:
        self._max_tokens = cfg.max_tokens

    def judge(self, pairs: Sequence[tuple[str, str]]) -> list[Verdict]:
        """A token is a word."""
        verdicts = []
        for text, claim in pairs:
            claimed = claim.lower().split()
            if len(claimed) >= self._max_tokens:
                raise Refusal(f"a claim of {len(claimed)} tokens fills the window")
            words = text.lower().split()
            kept = words[: self._max_tokens - len(claimed)]
            read = len(kept) + len(claimed)
            verdicts.append(Verdict({*claimed} <= {*kept}, read, len(kept) < len(words), False))
        return verdicts


class _Temper:
    """What a fake's `model` says of its behaviour."""

    def __init__(self, model: str) -> None:
        pairs = (part.partition("=") for part in model.split(","))
        temper = {key: value for key, _, value in pairs}
        self._delay_seconds = float(temper.get("delay", 0))
        self._died = Path(temper["die_once"]) if "die_once" in temper else None
        self._killed = Path(temper["kill_once"]) if "kill_once" in temper else None
        self._at = {_number(temper[key]): key for key in ("raise_at", "hang_at") if key in temper}
        # Kept here: a task that waits for what nothing else holds is garbage, and may be collected.
        self._never = asyncio.Event()
        while_there, _, word = temper.get("refuse_while", "").rpartition(":")
        self._refused = (Path(while_there), _number(word)) if while_there else None

    async def live(self, prompt_ids: Sequence[int]) -> None:
        """Waits, refuses, raises, or is lost, as told."""
        if self._died is not None and not self._died.exists():
            self._died.touch()
            raise EngineDead("the fake engine was told to die once")
        if self._killed is not None and not self._killed.exists():
            self._killed.touch()
            os.kill(os.getpid(), signal.SIGKILL)
        for number, what in self._at.items():
            if number in prompt_ids and what == "raise_at":
                raise RuntimeError("the fake engine was told to raise")
            if number in prompt_ids:
                await self._never.wait()
        await asyncio.sleep(self._delay_seconds)
        if self._refused is not None:
            file, number = self._refused
            if number in prompt_ids and file.exists():
                raise Refusal(f"the fake engine was told to refuse while {file.name} is there")


def _log_p(read_ids: Sequence[int], token: int) -> float:
    """In (-2, 0) for a token that was read before, in (-8, -6) for another; in nats."""
    noise = 2 * float(_random([*read_ids, token]).random())
    return -noise if token in read_ids else -6 - noise


def _speak(prompt_ids: Sequence[int], random: np.random.Generator, max_tokens: int) -> list[int]:
    start = int(random.integers(len(prompt_ids)))
    length = int(random.integers(1, 9))
    return [*prompt_ids[start : start + length], _END][:max_tokens]


def _random(prompt_ids: Sequence[int]) -> np.random.Generator:
    digest = hashlib.sha256(array("q", prompt_ids).tobytes()).digest()
    seed = int.from_bytes(digest[:8], "big")
    return np.random.Generator(np.random.PCG64(seed))  # default_rng takes a third longer
