"""Tests of pipeline.core.cost: TK, NTE, compression and break-even."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeline.core.cost import (
    break_even_uses,
    compression_ratio,
    mean_tokens,
    nte,
    nte_with_probes,
)

F1 = st.floats(0.001, 1)
TK = st.floats(1, 1e4)


def test_tk_is_the_mean_number_of_prompt_tokens() -> None:
    # (200 + 100 + 60) / 3 = 120
    assert mean_tokens([200, 100, 60]) == 120.0


def test_tk_of_no_questions_is_undefined() -> None:
    assert math.isnan(mean_tokens([]))


@given(tokens=st.lists(st.integers(0, 10**6), min_size=1, max_size=50))
def test_tk_lies_between_the_shortest_and_the_longest_prompt(tokens: list[int]) -> None:
    assert min(tokens) <= mean_tokens(tokens) <= max(tokens)


def test_nte_of_the_papers_table_4_top_1_row() -> None:
    # BM25 .221 at 216.6 tokens, IGP(0.05) .312 at 115.3:
    # (.312 / .221) / (115.3 / 216.6) = 1.41176 / 0.53232 = 2.652; the paper prints 2.7.
    value = nte(0.312, 115.3, baseline_f1=0.221, baseline_tk=216.6)
    assert value == pytest.approx(2.652, abs=5e-4)


def test_nte_with_probes_adds_their_tokens_to_the_arm_alone() -> None:
    # F1 doubled at half the tokens: NTE = 2 / (50 / 100) = 4; with 150 probe tokens
    # 2 / ((50 + 150) / 100) = 1.
    assert nte(0.4, 50, baseline_f1=0.2, baseline_tk=100) == pytest.approx(4)
    with_probes = nte_with_probes(0.4, 50, 150, baseline_f1=0.2, baseline_tk=100)
    assert with_probes == pytest.approx(1)


@given(f1=F1, tk=TK)
def test_the_baseline_has_nte_one(f1: float, tk: float) -> None:
    assert nte(f1, tk, baseline_f1=f1, baseline_tk=tk) == 1.0


@given(f1=F1, tk=TK, baseline_f1=F1, baseline_tk=TK)
def test_nte_is_the_quotient_of_answer_quality_per_token(
    f1: float, tk: float, baseline_f1: float, baseline_tk: float
) -> None:
    value = nte(f1, tk, baseline_f1=baseline_f1, baseline_tk=baseline_tk)
    assert value == pytest.approx((f1 / tk) / (baseline_f1 / baseline_tk))


@given(f1=F1, tk=TK, probes=st.floats(0, 1e4), baseline_f1=F1, baseline_tk=TK)
def test_probes_never_raise_nte(
    f1: float, tk: float, probes: float, baseline_f1: float, baseline_tk: float
) -> None:
    without = nte(f1, tk, baseline_f1=baseline_f1, baseline_tk=baseline_tk)
    counted = nte_with_probes(f1, tk, probes, baseline_f1=baseline_f1, baseline_tk=baseline_tk)
    assert counted <= without


def test_an_arm_without_a_correct_token_has_nte_zero() -> None:
    assert nte(0.0, 50, baseline_f1=0.2, baseline_tk=100) == 0.0


@pytest.mark.parametrize(
    ("f1", "tk", "baseline_f1", "baseline_tk"),
    [
        (0.4, 50, 0.0, 100),
        (0.4, 0, 0.2, 100),
        (0.4, 50, 0.2, 0),
        (math.nan, 50, 0.2, 100),
        (0.4, math.nan, 0.2, 100),
        (0.4, 50, math.nan, 100),
        (0.4, 50, 0.2, math.nan),
        (0.0, 0.0, 0.0, 0.0),
    ],
)
def test_nte_without_a_meaning_is_nan(
    f1: float, tk: float, baseline_f1: float, baseline_tk: float
) -> None:
    assert math.isnan(nte(f1, tk, baseline_f1=baseline_f1, baseline_tk=baseline_tk))


def test_unknown_probe_tokens_leave_nte_undefined() -> None:
    value = nte_with_probes(0.4, 50, math.nan, baseline_f1=0.2, baseline_tk=100)
    assert math.isnan(value)


def test_a_negative_input_is_refused_by_name() -> None:
    with pytest.raises(ValueError, match="tk = -1; allowed: 0 or more"):
        nte(0.4, -1, baseline_f1=0.2, baseline_tk=100)


def test_the_compression_ratio_is_original_over_kept_and_undefined_for_nothing_kept() -> None:
    assert compression_ratio(900, 300) == 3.0
    assert compression_ratio(0, 300) == 0.0
    assert math.isnan(compression_ratio(900, 0))
    with pytest.raises(ValueError, match="compressed_tokens = -1; allowed: 0 or more"):
        compression_ratio(900, -1)


def test_the_uses_until_selection_is_repaid_by_hand() -> None:
    # 1,152 probe tokens, prompts of 792 cut to 361: 1152 / 431 = 2.67 answers from one context.
    uses = break_even_uses(1152, baseline_prompt_tokens=792, pruned_prompt_tokens=361)
    assert uses == pytest.approx(2.673, abs=5e-4)


@pytest.mark.parametrize(
    ("selection", "baseline", "pruned", "expected"),
    [
        (100, 50, 50, math.inf),
        (100, 50, 60, math.inf),
        (0, 50, 60, math.inf),
        (0, 50, 50, 0.0),
        (0, 50, 10, 0.0),
    ],
)
def test_what_saves_nothing_is_never_repaid_and_what_costs_nothing_at_once(
    selection: float, baseline: float, pruned: float, expected: float
) -> None:
    uses = break_even_uses(selection, baseline_prompt_tokens=baseline, pruned_prompt_tokens=pruned)
    assert uses == expected


@pytest.mark.parametrize("unknown", range(3))
def test_break_even_of_an_unknown_is_undefined(unknown: int) -> None:
    tokens = [math.nan if i == unknown else 10.0 * (3 - i) for i in range(3)]
    uses = break_even_uses(
        tokens[0], baseline_prompt_tokens=tokens[1], pruned_prompt_tokens=tokens[2]
    )
    assert math.isnan(uses)


@given(selection=st.floats(1, 1e5), pruned=TK, saved=st.floats(1, 1e4))
def test_after_so_many_uses_both_ways_have_cost_the_same(
    selection: float, pruned: float, saved: float
) -> None:
    uses = break_even_uses(
        selection, baseline_prompt_tokens=pruned + saved, pruned_prompt_tokens=pruned
    )
    assert selection + uses * pruned == pytest.approx(uses * (pruned + saved), rel=1e-6)


def test_negative_tokens_never_break_even() -> None:
    with pytest.raises(ValueError, match="selection_tokens = -1; allowed: 0 or more"):
        break_even_uses(-1, baseline_prompt_tokens=2, pruned_prompt_tokens=1)
