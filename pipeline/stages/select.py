"""Select: the evidence of every arm, and the identity of the prompt that it leads to.

Arms of the main job: `igp` (the policy under test); `retriever`, the same budget in retrieval
order; `retriever_top1`; two controls with as many passages per question as igp kept,
`retriever_same_size` (retrieval prefix) and `random_same_size` (a seeded subset, in retrieval
order); `no_evidence` (the document prompt with an empty block) and `closed_book`.
"""

import hashlib
import json
import random
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import pyarrow as pa

from pipeline import schema
from pipeline.config import AnswerConfig, SelectionConfig
from pipeline.core.admission import admit
from pipeline.core.budget import truncate
from pipeline.engines.base import Tokenizer
from pipeline.engines.table import Engines
from pipeline.prompts import render
from pipeline.prompts.render import PassageFormat
from pipeline.stages.stage import Stage, Transform, add_columns

ADDS = pa.schema([schema.ARMS])
ARMS = (
    "igp",
    "retriever",
    "retriever_top1",
    "retriever_same_size",
    "random_same_size",
    "no_evidence",
    "closed_book",
)
PROBED_ARMS = ("igp", "retriever_same_size", "random_same_size")
"""Arms that cannot be formed without the probes, and so pay for them in `NTE with probes`."""


def stage(
    cfg: SelectionConfig,
    answer: AnswerConfig,
    *,
    passage_format: PassageFormat,
    seed: int,
    generator: Mapping[str, Any],
) -> Stage:
    """The stage for one policy; `answer` and `generator` go into the prompts' identities."""

    def build(engines: Engines) -> Transform:
        select = Select(cfg, answer, passage_format, seed, generator, engines.tokenizer)
        return select

    return Stage(
        name="select",
        needs=("question", "candidates", "gains"),
        adds=ADDS,
        depends_on={
            **cfg.plain(),
            "seed": seed,
            "passage_format": passage_format,
            "answer": answer.plain(),
            "generator": generator,
            "prompts": render.fingerprint(render.ANSWER_TEMPLATES),
        },
        build=build,
        pool="generator",
        counts=_counts,
    )


class Select:
    """The transform; it needs the generator's tokenizer for the token guard, not the model."""

    def __init__(
        self,
        cfg: SelectionConfig,
        answer: AnswerConfig,
        passage_format: PassageFormat,
        seed: int,
        generator: Mapping[str, Any],
        tokenizer: Tokenizer,
    ) -> None:
        self._cfg, self._answer, self._format = cfg, answer, passage_format
        self._seed, self._tokenizer = seed, tokenizer
        self._identity = json.dumps([answer.plain(), generator], sort_keys=True)

    def __call__(self, table: pa.Table) -> pa.Table:
        """The block with every arm's evidence."""
        arms = [self._row(row) for row in table.to_pylist()]
        return add_columns(table, {schema.ARMS: arms})

    def _row(self, row: Mapping[str, Any]) -> list[dict[str, Any]]:
        candidates = row["candidates"]
        texts = [passage_text(candidate, self._format) for candidate in candidates]
        tokens = [self._tokenizer.count(text) for text in texts]
        arms = []
        policies = self._policies(row["question_id"], row["gains"], tokens)
        for name, positions, admitted, frame in policies:
            evidence = [{"position": p, "text": None, "tokens": tokens[p]} for p in positions]
            arm: dict[str, Any] = {"arm": name, "evidence": evidence}
            arm |= {"admitted": admitted, "frame": frame}
            prompt = arm_prompt(row["question"], candidates, arm, self._answer, self._format)
            arms.append({**arm, "prompt_id": None if prompt is None else self._prompt_id(prompt)})
        return arms

    def _policies(
        self, question_id: str, gains: Sequence[float | None], tokens: Sequence[int]
    ) -> Iterator[tuple[str, list[int], int, str]]:
        """(arm, positions in prompt order, admitted, frame) in the order of ARMS.

        `admitted` counts the passages before the empty-context rule; the size-matched controls
        carry the policy's count.
        """
        everything = range(len(gains))
        kept = self._budget(admit(gains, threshold=self._cfg.threshold), tokens)
        admitted = len(kept)
        rule = self._cfg.empty_context
        if not kept and rule == "top1":
            kept = self._budget(everything[:1], tokens)
        empty_frame = "documents" if rule in ("frame", "top1") else rule
        frame = "documents" if kept else empty_frame
        chance = random.Random(f"{self._seed}:{question_id}").sample(everything, len(kept))
        in_order, top1 = self._budget(list(everything), tokens), list(everything[:1])
        yield "igp", kept, admitted, frame
        yield "retriever", in_order, len(in_order), "documents"
        yield "retriever_top1", top1, len(top1), "documents"
        yield "retriever_same_size", list(everything[: len(kept)]), admitted, frame
        yield "random_same_size", sorted(chance), admitted, frame
        yield "no_evidence", [], 0, "documents"
        yield "closed_book", [], 0, "closed_book"

    def _budget(self, positions: Sequence[int], tokens: Sequence[int]) -> list[int]:
        return truncate(
            positions,
            top_m=self._cfg.top_m,
            tokens=tokens,
            token_guard=self._cfg.token_guard,
            guard_rule=self._cfg.guard_rule,
        )

    def _prompt_id(self, prompt: render.Prompt) -> str:
        text = json.dumps(prompt, sort_keys=True)
        return hashlib.sha256(f"{self._identity}\n{text}".encode()).hexdigest()[:24]


def passage_text(candidate: Mapping[str, Any], passage_format: PassageFormat) -> str:
    """A candidate as the prompts show it."""
    return render.passage(candidate["title"], candidate["text"], passage_format)


def arm_prompt(
    question: str,
    candidates: Sequence[Mapping[str, Any]],
    arm: Mapping[str, Any],
    answer: AnswerConfig,
    passage_format: PassageFormat,
) -> render.Prompt | None:
    """The final prompt of an arm; None where it abstains."""
    if arm["frame"] == "abstain":
        return None
    if arm["frame"] == "closed_book":
        return render.closed_book(question, answer.template)
    texts = [
        passage_text(candidates[piece["position"]], passage_format)
        if piece["text"] is None
        else piece["text"]
        for piece in arm["evidence"]
    ]
    return render.answer(question, texts, answer.template)


def _counts(table: pa.Table) -> dict[str, float]:
    rows = [arms for arms in table[schema.ARMS.name].to_pylist() if arms is not None]
    admitted = [arms[0]["admitted"] for arms in rows]
    return {"admitted": sum(admitted), "empty": admitted.count(0)}
