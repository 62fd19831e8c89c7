"""Tests of pipeline.core.budget: TopM and the token guard."""

from itertools import accumulate
from typing import TypedDict, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeline.core.budget import GuardRule, truncate

TOKENS = st.lists(st.integers(0, 300), max_size=10)
RULE: st.SearchStrategy[GuardRule] = st.sampled_from(("prefix", "skip"))


class Budget(TypedDict, total=False):
    """Keyword arguments of truncate."""

    top_m: int
    tokens: list[int]
    token_guard: int


@st.composite
def ordered_tokens(draw: st.DrawFn) -> tuple[list[int], list[int]]:
    """Token counts of some candidates and an admitted order over part of them."""
    tokens = draw(TOKENS)
    shuffled = draw(st.permutations(range(len(tokens))))
    return list(shuffled[: draw(st.integers(0, len(tokens)))]), tokens


def test_top_m_keeps_the_first_m() -> None:
    assert truncate([4, 0, 2], top_m=2) == [4, 0]
    assert truncate([4, 0, 2], top_m=0) == []
    assert truncate([4, 0, 2], top_m=9) == [4, 0, 2]


def test_the_prefix_rule_stops_at_the_first_passage_that_does_not_fit() -> None:
    # Order 2, 0, 1 has 100, 150, 40 tokens. Guard 200: 100 fits, 100 + 150 = 250 does not, stop.
    assert truncate([2, 0, 1], top_m=3, tokens=[150, 40, 100], token_guard=200) == [2]


def test_the_skip_rule_leaves_out_what_does_not_fit_and_goes_on() -> None:
    # As above, and then 100 + 40 = 140 fits.
    kept = truncate([2, 0, 1], top_m=3, tokens=[150, 40, 100], token_guard=200, guard_rule="skip")
    assert kept == [2, 1]


def test_a_skipped_passage_is_not_replaced_from_beyond_top_m() -> None:
    kept = truncate([0, 1, 2], top_m=2, tokens=[10, 99, 10], token_guard=30, guard_rule="skip")
    assert kept == [0]


def test_a_passage_that_fills_the_guard_exactly_fits() -> None:
    assert truncate([0, 1], top_m=2, tokens=[60, 40], token_guard=100) == [0, 1]


def test_tokens_without_a_guard_change_nothing() -> None:
    assert truncate([1, 0], top_m=2, tokens=[10**6, 10**6]) == [1, 0]


@given(case=ordered_tokens(), top_m=st.integers(0, 12), guard=st.integers(0, 900))
def test_the_prefix_rule_returns_the_longest_prefix_that_fits(
    case: tuple[list[int], list[int]], top_m: int, guard: int
) -> None:
    positions, tokens = case
    kept = truncate(positions, top_m=top_m, tokens=tokens, token_guard=guard)
    totals = accumulate(tokens[position] for position in positions[:top_m])
    assert kept == positions[: sum(total <= guard for total in totals)]


@given(case=ordered_tokens(), top_m=st.integers(0, 12), guard=st.integers(0, 900), rule=RULE)
def test_what_is_kept_fits_both_budgets_and_keeps_its_order(
    case: tuple[list[int], list[int]], top_m: int, guard: int, rule: GuardRule
) -> None:
    positions, tokens = case
    kept = truncate(positions, top_m=top_m, tokens=tokens, token_guard=guard, guard_rule=rule)
    assert len(kept) <= top_m
    assert sum(tokens[position] for position in kept) <= guard
    assert kept == [position for position in positions if position in kept]


@given(case=ordered_tokens(), top_m=st.integers(0, 12), guard=st.integers(0, 900))
def test_the_skip_rule_extends_the_prefix_rule_and_refuses_only_what_does_not_fit(
    case: tuple[list[int], list[int]], top_m: int, guard: int
) -> None:
    positions, tokens = case
    prefix = truncate(positions, top_m=top_m, tokens=tokens, token_guard=guard)
    kept = truncate(positions, top_m=top_m, tokens=tokens, token_guard=guard, guard_rule="skip")
    assert kept[: len(prefix)] == prefix
    total = sum(tokens[position] for position in kept)
    for position in set(positions[:top_m]) - set(kept):
        assert total + tokens[position] > guard


@given(case=ordered_tokens(), top_m=st.integers(0, 12), guard=st.integers(0, 900), rule=RULE)
def test_positions_and_tokens_are_left_as_they_were(
    case: tuple[list[int], list[int]], top_m: int, guard: int, rule: GuardRule
) -> None:
    positions, tokens = list(case[0]), list(case[1])
    truncate(positions, top_m=top_m, tokens=tokens, token_guard=guard, guard_rule=rule)
    assert (positions, tokens) == case


@pytest.mark.parametrize(
    ("budget", "message"),
    [
        ({"top_m": -1}, "top_m = -1; allowed: 0 or more"),
        ({"top_m": 1, "tokens": [5], "token_guard": -2}, "token_guard = -2; allowed: 0 or more"),
        ({"top_m": 1, "token_guard": 9}, "token_guard = 9 needs tokens"),
        ({"top_m": 1, "tokens": [], "token_guard": 9}, "position 0 has no count among 0 tokens"),
    ],
)
def test_a_budget_that_cannot_be_applied_is_refused(budget: Budget, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        truncate([0], **budget)


def test_a_negative_position_does_not_count_from_the_end() -> None:
    with pytest.raises(ValueError, match="position -1 has no count"):
        truncate([-1], top_m=1, tokens=[5], token_guard=9)


def test_an_unknown_rule_is_refused_with_the_allowed_ones_even_without_a_guard() -> None:
    with pytest.raises(ValueError, match="'cut'; allowed: prefix, skip"):
        truncate([0], top_m=1, guard_rule=cast(GuardRule, "cut"))
