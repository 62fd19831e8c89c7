"""A language model by script, and the sections of a config that scorers depend on."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from pipeline.config import GeneratorConfig, ProbeConfig, ScorersConfig
from pipeline.engines.base import Floats, Refusal
from pipeline.engines.fake import FakeTokenizer


@dataclass
class Root:
    """See stages.score.Root."""

    generator: GeneratorConfig = field(
        default_factory=lambda: GeneratorConfig(engine="fake", model="fake")
    )
    probe: ProbeConfig = field(
        default_factory=lambda: ProbeConfig(template="literal", top_k=8, max_tokens=4)
    )
    scorers: ScorersConfig = field(default_factory=ScorersConfig)


class ScriptedScorer:
    """See engines.base.LanguageScorer: a token that was read before has log p -1, another -3.

    `next_words` gives the probability of a word as the next token by a word that only this
    prompt holds, the last match winning; `refuse` holds the words that make a request refused.
    """

    def __init__(
        self,
        next_words: Mapping[str, Mapping[str, float]] | None = None,
        *,
        refuse: Sequence[str] = (),
    ) -> None:
        self.tokenizer = FakeTokenizer()
        self.max_model_len = 1000
        self.asked: list[tuple[str, str]] = []
        self._next, self._refuse = next_words or {}, refuse

    async def log_likelihood(self, prefix_ids: Sequence[int], target_ids: Sequence[int]) -> Floats:
        """-1 or -3 for each word of the target."""
        self._hear(prefix_ids, target_ids)
        ids, start = [*prefix_ids, *target_ids], len(prefix_ids)
        values = [-1 if ids[end] in ids[:end] else -3 for end in range(start, len(ids))]
        return np.array(values, np.float32)

    async def next_token(self, prompt_ids: Sequence[int], token_ids: Sequence[int]) -> Floats:
        """The scripted probabilities' logarithms."""
        words = self._hear(prompt_ids, token_ids)
        p = [found for word, found in self._next.items() if word in words][-1]
        asked = [self.tokenizer.decode([token]) for token in token_ids]
        return np.log(np.array([p[word] for word in asked], np.float32))

    def close(self) -> None:
        """Nothing to end."""

    def _hear(self, prompt_ids: Sequence[int], wanted_ids: Sequence[int]) -> list[str]:
        prompt, wanted = self.tokenizer.decode(prompt_ids), self.tokenizer.decode(wanted_ids)
        self.asked.append((prompt, wanted))
        words = prompt.split()
        if found := [word for word in self._refuse if word in words]:
            raise Refusal(f"the engine will not hear {found[0]!r}")
        return words
