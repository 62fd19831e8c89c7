"""A ranker by script, and one that knows the golden answers."""

import json
import math
import re
from collections.abc import Mapping, Sequence

from pipeline.core import answers
from pipeline.engines.base import Completion, Refusal, Rollout
from pipeline.engines.fake import FakeGenerator, FakeTokenizer
from tests.stages.plans import EXAMPLES


class ScriptedRanker:
    """See engines.base.Generator: replies as its script says for a word that the prompt holds.

    The last match wins. A prompt that has begun the reply has "[" for its last word, and gets what
    `again` holds. `refuse` holds the words that make a prompt refused.
    """

    def __init__(
        self,
        replies: Mapping[str, str],
        *,
        again: Mapping[str, str] | None = None,
        refuse: Sequence[str] = (),
    ) -> None:
        self.tokenizer = FakeTokenizer()
        self.max_model_len = 1000
        self.prompts: list[str] = []
        self._replies, self._again, self._refuse = replies, again or {}, refuse

    async def rollout(self, prompt_ids: Sequence[int], *, u_limit: float = math.inf) -> Rollout:
        """Part of the protocol alone: a test fails here where a ranker is probed."""
        raise AssertionError("a ranker was probed")

    async def complete(self, prompt_ids: Sequence[int], *, max_tokens: int) -> Completion:
        """The scripted reply, as long as its words."""
        prompt = self.tokenizer.decode(prompt_ids)
        self.prompts.append(prompt)
        words = prompt.split()
        if found := [word for word in self._refuse if word in words]:
            raise Refusal(f"the engine will not hear {found[0]!r}")
        script = self._again if words[-1] == "[" else self._replies
        reply = [said for word, said in script.items() if word in words][-1]
        return Completion(reply, len(words), len(reply.split()), "stop")

    def close(self) -> None:
        """Nothing to end."""


class ConstrainedRanker(ScriptedRanker):
    """One that can be held to a pattern, and remembers by which."""

    def __init__(self, replies: Mapping[str, str]) -> None:
        super().__init__(replies)
        self.patterns: list[str] = []

    async def complete_matching(
        self, prompt_ids: Sequence[int], pattern: str, *, max_tokens: int
    ) -> Completion:
        """The scripted reply."""
        self.patterns.append(pattern)
        return await self.complete(prompt_ids, max_tokens=max_tokens)


class Knowing(FakeGenerator):
    """Knows the golden answers of the examples: a perfect ranker, and a reader easily misled.

    It ranks the passages that hold an answer first, or names them alone; it copies the sentences
    that hold one, needs of ordered ones as many as the first of these; and it answers rightly where
    every document that it is shown holds an answer.
    """

    async def complete(self, prompt_ids: Sequence[int], *, max_tokens: int) -> Completion:
        """The ranking or the answer."""
        prompt = self.tokenizer.decode(prompt_ids)
        asked, golds = next(pair for pair in _EXAMPLES.items() if pair[0] in prompt)
        before, _, after = prompt.rpartition(asked)
        marked = re.split(r"\[(?:DOC )?(\d+)\] ", before)
        texts = {int(n): text for n, text in zip(marked[1::2], marked[2::2], strict=True)}
        held = {n: bool(answers.sub_exact_match(text, golds)) for n, text in texts.items()}
        if "identifiers alone" in after:
            first = [number for number, holds in held.items() if holds]
            rest = [] if "Leave out" in after else [n for n in held if n not in first]
            said = " > ".join(f"[{number}]" for number in (*first, *rest)) or "[0]"
        elif "word for word" in after:
            said = "\n".join(f"[{n}] {texts[n]}" for n, holds in held.items() if holds) or "[0]"
        elif "last sentence that is needed" in after:
            said = f"[{next((number for number, holds in held.items() if holds), 0)}]"
        else:
            said = golds[0] if held and all(held.values()) else "nobody knows"
        return Completion(said, len(prompt_ids), len(said.split()), "stop")


def _examples() -> dict[str, list[str]]:
    lines = (EXAMPLES / "questions.jsonl").read_text(encoding="utf-8").splitlines()
    return {row["question"]: row["golden_answers"] for row in map(json.loads, lines)}


_EXAMPLES = _examples()
