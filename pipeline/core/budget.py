"""Cuts an ordered list of admitted positions to the evidence budget: TopM, then a token guard."""

from collections.abc import Sequence
from typing import Literal, get_args

GuardRule = Literal["prefix", "skip"]


def truncate(
    positions: Sequence[int],
    *,
    top_m: int,
    tokens: Sequence[int] | None = None,
    token_guard: int | None = None,
    guard_rule: GuardRule = "prefix",
) -> list[int]:
    """The first top_m positions whose tokens sum to at most token_guard, in the given order.

    tokens:     the generator's token count of every candidate, indexed by position.
    guard_rule: "prefix" stops at the first passage that does not fit; "skip" leaves it out
                and tries the next, so a skipped passage is not replaced from beyond top_m.

    ValueError on a negative budget, an unknown rule, or a guard without a count for a position.
    """
    if top_m < 0:
        raise ValueError(f"top_m = {top_m}; allowed: 0 or more")
    if guard_rule not in get_args(GuardRule):
        raise ValueError(f"guard_rule = {guard_rule!r}; allowed: {', '.join(get_args(GuardRule))}")
    first = list(positions[:top_m])
    if token_guard is None:
        return first
    if token_guard < 0:
        raise ValueError(f"token_guard = {token_guard}; allowed: 0 or more, or None")
    if tokens is None:
        raise ValueError(f"token_guard = {token_guard} needs tokens, one count per candidate")
    return _guarded(first, tokens, token_guard=token_guard, stop=guard_rule == "prefix")


def _guarded(
    positions: list[int], tokens: Sequence[int], *, token_guard: int, stop: bool
) -> list[int]:
    kept: list[int] = []
    left = token_guard
    for position in positions:
        if not 0 <= position < len(tokens):
            raise ValueError(f"position {position} has no count among {len(tokens)} tokens")
        if tokens[position] <= left:
            kept.append(position)
            left -= tokens[position]
        elif stop:
            break
    return kept
