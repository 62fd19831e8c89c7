"""Select: the evidence of every arm, and the identity of the prompt that it leads to."""

import hashlib
import json
import random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from pipeline import schema
from pipeline.config import AnswerConfig, SelectionConfig
from pipeline.core.blend import Blend, signals_of, to_json
from pipeline.core.refusals import REFUSAL_PATTERNS_VERSION, is_refusal
from pipeline.engines.base import Tokenizer
from pipeline.engines.table import Engines
from pipeline.prompts import render
from pipeline.prompts.render import PassageFormat
from pipeline.stages import clues, signals
from pipeline.stages.arms import Arm, policy_under_test
from pipeline.stages.decide import Choice, Given, Piece, Unit, decide
from pipeline.stages.stage import Stage, Transform, add_columns

ADDS = pa.schema([schema.ARMS, schema.CANDIDATE_TOKENS])
_TO_JSON = json.JSONEncoder(sort_keys=True).encode  # made once: json.dumps makes one a call


@dataclass(frozen=True)
class Settings:
    """What all arms share. `blends` are by the path that policies name; `generator` (from
    engines.models.for_answers) and `answer` go into the prompts' identities."""

    answer: AnswerConfig
    passage_format: PassageFormat
    seed: int
    generator: Mapping[str, Any]
    blends: Mapping[str, Blend]
    refusal_patterns: Sequence[str] = ()

    @cached_property
    def identity(self) -> str:
        """What makes equal prompts mean equal answers."""
        return json.dumps([self.answer.plain(), self.generator], sort_keys=True)


def stage(arms: Sequence[Arm], settings: Settings) -> Stage:
    """The stage for some arms; it needs what their selectors read."""

    def build(engines: Engines) -> Transform:
        return Select(arms, settings, engines.tokenizer)

    policies = [arm.policy for arm in arms if arm.policy is not None]
    refusals = any(policy.on_refusal != "keep" for policy in policies)
    return Stage(
        name="select",
        needs=("question", "candidates", *_columns(policies, settings.blends)),
        adds=ADDS,
        depends_on={
            "arms": [_identity(arm, settings.blends) for arm in arms],
            "seed": settings.seed,
            "passage_format": settings.passage_format,
            "identity": settings.identity,
            "refusals": [REFUSAL_PATTERNS_VERSION, *settings.refusal_patterns] if refusals else [],
            "prompts": render.fingerprint(render.ANSWER_TEMPLATES[settings.answer.task]),
        },
        build=build,
        pool="generator",
        counts=partial(_counts, tested=_tested(arms)),
    )


def _identity(arm: Arm, blends: Mapping[str, Blend]) -> dict[str, Any]:
    """The arm for fingerprints: its blend's weights stand in place of the path that names them."""
    plain = arm.plain()
    if arm.policy is not None and arm.policy.blend is not None:
        plain["policy"]["blend"] = to_json(blends[arm.policy.blend])
    return plain


def _columns(policies: Sequence[SelectionConfig], blends: Mapping[str, Blend]) -> tuple[str, ...]:
    needed: dict[str, None] = {}
    for policy in policies:
        for selector in (policy.selector, policy.fallback, policy.order_by, policy.veto):
            needed |= dict.fromkeys(() if selector is None else signals.columns(selector))
        needed |= dict.fromkeys(clues.columns(policy))
        if policy.probed:
            needed |= dict.fromkeys(("probes", "gains"))
    for blend in blends.values():
        for name in signals_of(blend.features):
            needed |= dict.fromkeys(("probes",) if name == "neg_nu" else signals.columns(name))
    return tuple(needed)


class Select:
    """The transform; it needs the generator's tokenizer for the token guard, not the model."""

    def __init__(self, arms: Sequence[Arm], settings: Settings, tokenizer: Tokenizer) -> None:
        self._arms, self._settings, self._tokenizer = arms, settings, tokenizer
        self._refuses = partial(is_refusal, extra_patterns=settings.refusal_patterns)

    def __call__(self, table: pa.Table) -> pa.Table:
        """The block with every arm's evidence, and the tokens of all its candidates."""
        rows = table.to_pylist()
        given = [self._given(row) for row in rows]
        tokens = [[piece.tokens for piece in one.passages] for one in given]
        arms = [self._row(one) for one in given]
        return add_columns(table, {schema.ARMS: arms, schema.CANDIDATE_TOKENS: tokens})

    def _given(self, row: dict[str, Any]) -> Given:
        count = self._tokenizer.count
        texts = [passage_text(c, self._settings.passage_format) for c in row["candidates"]]
        if "probes" in row:
            row = {**row, "refused": self._refuses(row["probes"]["answers"][0])}
        return Given(
            row,
            texts,
            [Piece(position, None, count(text)) for position, text in enumerate(texts)],
            [
                Piece(one["position"], one["text"], count(one["text"]))
                for one in row.get(schema.SENTENCES.name, ())
            ],
        )

    def _row(self, given: Given) -> list[dict[str, Any]]:
        row = given.row
        made: list[dict[str, Any]] = []
        prompt_ids: dict[tuple[str, Unit, tuple[int, ...]], str | None] = {}
        for name, choice in self._choices(given):
            pieces = given.pieces(choice.unit)
            evidence = [pieces[place]._asdict() for place in choice.places]
            arm: dict[str, Any] = {"arm": name, "evidence": evidence, "order": choice.order}
            arm |= {"admitted": choice.admitted, "frame": choice.frame, "certain": choice.certain}
            key = choice.frame, choice.unit, tuple(choice.places)
            if key not in prompt_ids:
                prompt_ids[key] = self._prompt_id(row["question"], row["candidates"], arm)
            made.append({**arm, "prompt_id": prompt_ids[key]})
        return made

    def _choices(self, given: Given) -> Iterator[tuple[str, Choice]]:
        """(name, choice) of every arm.

        The oracle is one arm `single[i]` per candidate, or itself where there is none. A control
        takes as many pieces as the arm that it copies, of the same kind.
        """
        seed, by_policy = self._settings.seed, dict[str, Choice]()
        for arm in self._arms:
            if arm.kind == "policy" and arm.policy is not None:
                made = decide(arm.policy, given, self._settings.blends, seed=seed)
                by_policy[arm.name] = made
                yield arm.name, made
            elif arm.kind in ("same_size", "random_same_size"):
                copied = by_policy[str(arm.of)]
                pool: Sequence[int] = range(len(given.pieces(copied.unit)))
                if arm.kind == "random_same_size":
                    chance = random.Random(f"{seed}:{given.row['question_id']}")
                    pool = chance.sample(pool, len(pool))
                places = sorted(pool[: len(copied.places)])
                yield arm.name, replace(copied, places=places, order=None)
            elif arm.kind == "oracle":
                for i in range(len(given.passages)):
                    yield single(i), Choice([i], 1, "documents", None)
                if not given.passages:
                    yield arm.name, Choice([], 0, "documents", None)
            else:
                frame = "closed_book" if arm.kind == "closed_book" else "documents"
                yield arm.name, Choice([], 0, frame, None)

    def _prompt_id(
        self, question: str, candidates: Sequence[Mapping[str, Any]], arm: Mapping[str, Any]
    ) -> str | None:
        settings = self._settings
        prompt = arm_prompt(question, candidates, arm, settings.answer, settings.passage_format)
        if prompt is None:
            return None
        text = _TO_JSON(prompt)
        return hashlib.sha256(f"{settings.identity}\n{text}".encode()).hexdigest()[:24]


def single(position: int) -> str:
    """Name of the arm that shows one candidate alone, of which the oracle takes the best."""
    return f"single[{position}]"


def is_single(arm: str) -> bool:
    """Whether `single` made an arm's name."""
    return arm.startswith("single[")


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
        return render.closed_book(question, answer.template, answer.task)
    texts = evidence_texts(candidates, arm, passage_format)
    return render.answer(question, texts, answer.template, answer.task)


def evidence_texts(
    candidates: Sequence[Mapping[str, Any]], arm: Mapping[str, Any], passage_format: PassageFormat
) -> list[str]:
    """What an arm's evidence shows, in prompt order."""
    return [
        passage_text(candidates[piece["position"]], passage_format)
        if piece["text"] is None
        else piece["text"]
        for piece in arm["evidence"]
    ]


def _tested(arms: Sequence[Arm]) -> str:
    """The name of the policy under test, of the first arm where there is none."""
    tested = policy_under_test([arm.plain() for arm in arms])
    return arms[0].name if tested is None else str(tested["arm"])


def _counts(part: pa.Table, *, tested: str) -> dict[str, float]:
    """Of the policy under test."""
    arms = part[schema.ARMS.name].combine_chunks().flatten()
    own = arms.filter(pc.equal(pc.struct_field(arms, "arm"), tested))
    admitted = pc.struct_field(own, "admitted").to_pylist()
    return {"admitted": sum(admitted), "empty": admitted.count(0)}
