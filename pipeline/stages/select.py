"""Select: the evidence of every arm, and the identity of the prompt that it leads to."""

import hashlib
import json
import math
import random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from pipeline import schema
from pipeline.config import AnswerConfig, SelectionConfig
from pipeline.config.listwise import LISTWISE
from pipeline.core import duplicates
from pipeline.core.admission import admit, admit_rounds, order
from pipeline.core.blend import Blend, signals_of, to_json
from pipeline.core.budget import truncate
from pipeline.core.refusals import REFUSAL_PATTERNS_VERSION, is_refusal
from pipeline.engines.base import Tokenizer
from pipeline.engines.table import Engines
from pipeline.prompts import render
from pipeline.prompts.render import PassageFormat
from pipeline.stages import signals
from pipeline.stages.arms import Arm, policy_under_test
from pipeline.stages.stage import Stage, Transform, add_columns

ADDS = pa.schema([schema.ARMS])
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


@dataclass(frozen=True)
class Choice:
    """An arm's evidence on one row, its positions in prompt order.

    `admitted` counts the passages before the empty-context rule; `order` is the selector's order
    of all candidates, None where the arm has no selector or it measured nothing; `certain` says
    that NU(q) alone handed over to the fallback.
    """

    positions: list[int]
    admitted: int
    frame: str
    order: list[int] | None
    certain: bool = False


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
            "prompts": render.fingerprint(render.ANSWER_TEMPLATES),
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
        for selector in (policy.selector, policy.fallback):
            needed |= dict.fromkeys(signals.columns(selector))
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
        """The block with every arm's evidence."""
        return add_columns(table, {schema.ARMS: [self._row(row) for row in table.to_pylist()]})

    def _row(self, row: dict[str, Any]) -> list[dict[str, Any]]:
        settings, candidates = self._settings, row["candidates"]
        texts = [passage_text(candidate, settings.passage_format) for candidate in candidates]
        tokens = [self._tokenizer.count(text) for text in texts]
        if "probes" in row:
            row["refused"] = self._refuses(row["probes"]["answers"][0])
        made: list[dict[str, Any]] = []
        prompt_ids: dict[tuple[str, tuple[int, ...]], str | None] = {}
        for name, choice in self._choices(row, texts, tokens):
            evidence = [
                {"position": p, "text": None, "tokens": tokens[p]} for p in choice.positions
            ]
            arm: dict[str, Any] = {"arm": name, "evidence": evidence, "order": choice.order}
            arm |= {"admitted": choice.admitted, "frame": choice.frame, "certain": choice.certain}
            key = choice.frame, tuple(choice.positions)
            if key not in prompt_ids:
                prompt_ids[key] = self._prompt_id(row["question"], candidates, arm)
            made.append({**arm, "prompt_id": prompt_ids[key]})
        return made

    def _choices(
        self, row: Mapping[str, Any], texts: Sequence[str], tokens: Sequence[int]
    ) -> Iterator[tuple[str, Choice]]:
        """(name, choice) of every arm.

        The oracle is one arm `single[i]` per candidate, or itself where there is none.
        """
        everything = range(len(texts))
        chance = random.Random(f"{self._settings.seed}:{row['question_id']}").sample(
            everything, len(everything)
        )
        by_policy: dict[str, Choice] = {}
        for arm in self._arms:
            if arm.kind == "policy" and arm.policy is not None:
                by_policy[arm.name] = self._decide(arm.policy, row, texts, tokens)
                yield arm.name, by_policy[arm.name]
            elif arm.kind in ("same_size", "random_same_size"):
                copied = by_policy[str(arm.of)]
                pool = list(everything) if arm.kind == "same_size" else chance
                kept = sorted(pool[: len(copied.positions)])
                size, frame = copied.admitted, copied.frame
                yield arm.name, Choice(kept, size, frame, None, copied.certain)
            elif arm.kind == "oracle":
                for i in everything:
                    yield single(i), Choice([i], 1, "documents", None)
                if not texts:
                    yield arm.name, Choice([], 0, "documents", None)
            else:
                frame = "closed_book" if arm.kind == "closed_book" else "documents"
                yield arm.name, Choice([], 0, frame, None)

    def _decide(
        self,
        policy: SelectionConfig,
        row: Mapping[str, Any],
        texts: Sequence[str],
        tokens: Sequence[int],
    ) -> Choice:
        """Paper Algorithm 1, with gates before it and the empty-context rule after it."""
        signal = self._signal(policy, row, texts)
        in_order: list[int] | None
        certain = signals.is_certain(row, policy)
        if certain or signals.hands_over(row, policy, signal):
            fallback = signals.plain(row, policy.fallback)
            in_order = _ordered(policy.fallback, fallback)
            admissible = admit(fallback, threshold=-math.inf)
        elif policy.selector == "set_aware":
            rounds, gains = row["sets"]["positions"], row["sets"]["gains"]
            left = [i for i in range(len(texts)) if i not in rounds]
            in_order = [*rounds, *left] if rounds else None
            admissible = admit_rounds(rounds, gains, threshold=policy.threshold)
        else:
            in_order = _ordered(policy.selector, signal)
            admissible = admit(signal, threshold=policy.threshold)
        kept = _budget(policy, admissible, tokens)
        admitted, rule = len(kept), policy.empty_context
        if not kept and rule == "top1":
            kept = _budget(policy, list(range(len(texts)))[:1], tokens)
        empty_frame = "documents" if rule in ("frame", "top1") else rule
        return Choice(kept, admitted, "documents" if kept else empty_frame, in_order, certain)

    def _signal(
        self, policy: SelectionConfig, row: Mapping[str, Any], texts: Sequence[str]
    ) -> signals.Signal:
        blend = None if policy.blend is None else self._settings.blends[policy.blend]
        signal = signals.of_row(row, policy, blend)
        if not policy.duplicate_penalty:
            return signal
        return duplicates.penalise(
            signal,
            duplicates.near_duplicates(texts),
            penalty=policy.duplicate_penalty,
            threshold=policy.threshold,
        )

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


def _ordered(selector: str, signal: Sequence[float | None]) -> list[int] | None:
    """The order of all candidates; None where one was not measured, or there is none.

    What a listwise selector left out was judged, too: it comes last, by rank.
    """
    unknown = None in signal and selector not in LISTWISE
    return None if not signal or unknown else order(signal)


def _budget(policy: SelectionConfig, positions: Sequence[int], tokens: Sequence[int]) -> list[int]:
    return truncate(
        positions,
        top_m=policy.top_m,
        tokens=tokens,
        token_guard=policy.token_guard,
        guard_rule=policy.guard_rule,
    )


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
