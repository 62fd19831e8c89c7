"""Small blocks made by hand, and a generator that remembers what it was asked."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from pipeline import schema
from pipeline.engines.base import Completion, Refusal, Rollout
from pipeline.engines.fake import FakeTokenizer


def candidate(passage_id: str, text: str, title: str = "") -> dict[str, Any]:
    """One retrieved passage."""
    return {"passage_id": passage_id, "title": title, "text": text, "score": None}


def table(rows: Sequence[Mapping[str, Any]], columns: Sequence[str]) -> pa.Table:
    """Rows as a block with the given columns of the schema."""
    kept = pa.schema([schema.COLUMNS[name] for name in columns])
    return pa.Table.from_pylist([dict(row) for row in rows], schema=kept)


class ScriptedGenerator:
    """See engines.base.Generator: says what its script holds for a prompt, and counts.

    A prompt is known by its words. `u` gives a rollout's uncertainties by a word that only this
    prompt holds, the last match winning; `refuse` holds the words that make a prompt refused.
    """

    def __init__(
        self, u: Mapping[str, Sequence[float]] | None = None, *, refuse: Sequence[str] = ()
    ) -> None:
        self.tokenizer = FakeTokenizer()
        self.max_model_len = 1000
        self.prompts: list[str] = []
        self.limits: list[float] = []
        self._u, self._refuse = u or {}, refuse

    async def rollout(self, prompt_ids: Sequence[int], *, u_limit: float = math.inf) -> Rollout:
        """One probe: the scripted uncertainties, its words the prompt's last ones."""
        self.limits.append(u_limit)
        words = self._heard(prompt_ids)
        u_T = [u for word, u in self._u.items() if word in words][-1]
        ids = [*prompt_ids[-len(u_T) + 1 :], 0] if len(u_T) > 1 else [0]
        return Rollout(
            tuple(ids), np.array(u_T, np.float32), np.full(len(u_T), 2, np.float32), None
        )

    async def complete(self, prompt_ids: Sequence[int], *, max_tokens: int) -> Completion:
        """One answer: the prompt's number of words."""
        words = self._heard(prompt_ids)
        return Completion(f"{len(words)} words", len(words), 3, "stop")

    def close(self) -> None:
        """Nothing to end."""

    def _heard(self, prompt_ids: Sequence[int]) -> list[str]:
        prompt = self.tokenizer.decode(prompt_ids)
        self.prompts.append(prompt)
        words = prompt.split()
        if found := [word for word in self._refuse if word in words]:
            raise Refusal(f"the engine will not hear {found[0]!r}")
        return words
