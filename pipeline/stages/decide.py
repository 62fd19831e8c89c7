"""Decide: the evidence that one policy takes of one row, passages or sentences of them."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

from pipeline.config import SelectionConfig
from pipeline.config.listwise import LISTWISE
from pipeline.core import duplicates
from pipeline.core.admission import admit, admit_rounds, order
from pipeline.core.blend import Blend
from pipeline.core.budget import truncate
from pipeline.stages import clues, signals

Unit = Literal["passages", "sentences"]


class Piece(NamedTuple):
    """A piece of evidence as schema.EVIDENCE has it; `text` is None for a whole passage."""

    position: int
    text: str | None
    tokens: int


@dataclass(frozen=True)
class Given:
    """A row with all that can be shown of it. `texts` are those of its passages in prompts."""

    row: Mapping[str, Any]
    texts: Sequence[str]
    passages: Sequence[Piece]
    sentences: Sequence[Piece]

    def pieces(self, unit: Unit) -> Sequence[Piece]:
        """Everything of a kind."""
        return self.passages if unit == "passages" else self.sentences


@dataclass(frozen=True)
class Choice:
    """An arm's evidence on one row: places among the pieces of its `unit`, in prompt order.

    `admitted` counts them before the empty-context rule; `order` is the selector's order of all
    candidates, None where the arm has none; `certain` says that NU(q) alone handed over to the
    fallback.
    """

    places: list[int]
    admitted: int
    frame: str
    order: list[int] | None
    certain: bool = False
    unit: Unit = "passages"


def decide(
    policy: SelectionConfig, given: Given, blends: Mapping[str, Blend], *, seed: int
) -> Choice:
    """Paper Algorithm 1, with gates before it and the empty-context rule after it."""
    row = given.row
    unit: Unit = "passages"
    in_order: list[int] | None = None
    certain = signals.is_certain(row, policy)
    if policy.selector == "clues":
        unit, admissible = "sentences", clues.kept(row, policy, seed=seed)
        kept, left = len(admissible), len(given.sentences) - len(admissible)
        signal: signals.Signal = [*[math.inf] * kept, *[None] * left]
    else:
        signal = _signal(policy, given, blends)
        admissible, in_order = _admissible(policy, row, signal)
    if certain or signals.hands_over(row, policy, signal):
        plain = signals.plain(row, policy.fallback)
        unit, in_order = "passages", _ordered(policy.fallback, plain)
        admissible = admit(plain, threshold=-math.inf)
    elif policy.order_by is not None:
        admissible = _reordered(admissible, signals.plain(row, policy.order_by))
        in_order = in_order and [*admissible, *(i for i in in_order if i not in admissible)]
    if policy.veto is not None and not row[f"ranking_{policy.veto}"]["positions"]:
        admissible = []
    kept_places = _budget(policy, admissible, given.pieces(unit))
    admitted, rule = len(kept_places), policy.empty_context
    if not kept_places and rule == "top1":
        unit, kept_places = "passages", _budget(policy, [0][: len(given.texts)], given.passages)
    empty_frame = "documents" if rule in ("frame", "top1") else rule
    frame = "documents" if kept_places else empty_frame
    return Choice(kept_places, admitted, frame, in_order, certain, unit)


def _admissible(
    policy: SelectionConfig, row: Mapping[str, Any], signal: signals.Signal
) -> tuple[list[int], list[int] | None]:
    """The candidates that the policy's own selector admits, best first, and its order of all."""
    if policy.selector != "set_aware":
        return admit(signal, threshold=policy.threshold), _ordered(policy.selector, signal)
    rounds, gains = row["sets"]["positions"], row["sets"]["gains"]
    left = [i for i in range(len(row["candidates"])) if i not in rounds]
    in_order = [*rounds, *left] if rounds else None
    return admit_rounds(rounds, gains, threshold=policy.threshold), in_order


def _signal(policy: SelectionConfig, given: Given, blends: Mapping[str, Blend]) -> signals.Signal:
    blend = None if policy.blend is None else blends[policy.blend]
    signal = signals.of_row(given.row, policy, blend)
    if not policy.duplicate_penalty:
        return signal
    return duplicates.penalise(
        signal,
        duplicates.near_duplicates(given.texts),
        penalty=policy.duplicate_penalty,
        threshold=policy.threshold,
    )


def _ordered(selector: str, signal: Sequence[float | None]) -> list[int] | None:
    """The order of all candidates; None where one was not measured, or there is none.

    What a listwise selector left out was judged, too: it comes last, by rank.
    """
    unknown = None in signal and selector not in LISTWISE
    return None if not signal or unknown else order(signal)


def _reordered(positions: Sequence[int], signal: signals.Signal) -> list[int]:
    """The positions in the order of another signal; those that have none last, as they came."""
    return [positions[i] for i in order([signal[position] for position in positions])]


def _budget(policy: SelectionConfig, places: Sequence[int], pieces: Sequence[Piece]) -> list[int]:
    return truncate(
        places,
        top_m=policy.top_m,
        tokens=[piece.tokens for piece in pieces],
        token_guard=policy.token_guard,
        guard_rule=policy.guard_rule,
    )
