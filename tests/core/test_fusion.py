"""Reciprocal rank fusion: a value by hand, and what no ranking can change."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeline.core.fusion import reciprocal_rank_fusion

RANKING = st.lists(st.sampled_from("abcdefgh"), unique=True, max_size=8)
RANKINGS = st.lists(RANKING, max_size=4)


def test_the_score_is_the_sum_of_reciprocal_ranks() -> None:
    # k = 60: a = 1/61 + 1/63, b = 1/62 + 1/61, c = 1/63, d = 1/62.
    fused = reciprocal_rank_fusion([["a", "b", "c"], ["b", "d", "a"]], k=60)
    assert [passage_id for passage_id, _ in fused] == ["b", "a", "d", "c"]
    assert dict(fused) == pytest.approx(
        {"a": 124 / 3843, "b": 123 / 3782, "c": 1 / 63, "d": 1 / 62}
    )


def test_equal_scores_stand_in_the_order_of_ids() -> None:
    assert [i for i, _ in reciprocal_rank_fusion([["b"], ["a"]], k=60)] == ["a", "b"]


def test_a_passage_that_stands_twice_in_a_ranking_is_refused() -> None:
    with pytest.raises(ValueError, match="passage 'a' stands twice"):
        reciprocal_rank_fusion([["b"], ["a", "c", "a"]], k=60)


def test_no_rankings_and_empty_rankings_give_nothing() -> None:
    assert reciprocal_rank_fusion([], k=60) == reciprocal_rank_fusion([[], []], k=60) == []


@given(rankings=RANKINGS, k=st.integers(1, 100), data=st.data())
def test_the_order_of_the_retrievers_does_not_matter(
    rankings: list[list[str]], k: int, data: st.DataObject
) -> None:
    shuffled = data.draw(st.permutations(rankings))
    assert reciprocal_rank_fusion(shuffled, k=k) == reciprocal_rank_fusion(rankings, k=k)


@given(ranking=RANKING, copies=st.integers(1, 3), k=st.integers(1, 100))
def test_retrievers_that_agree_keep_their_order(ranking: list[str], copies: int, k: int) -> None:
    fused = reciprocal_rank_fusion([ranking] * copies, k=k)
    assert [passage_id for passage_id, _ in fused] == ranking


@given(rankings=RANKINGS, k=st.integers(1, 100))
def test_a_passage_never_behind_another_scores_no_less(rankings: list[list[str]], k: int) -> None:
    scores = dict(reciprocal_rank_fusion(rankings, k=k))
    assert scores.keys() == {passage_id for ranking in rankings for passage_id in ranking}
    places = [{passage_id: rank for rank, passage_id in enumerate(r)} for r in rankings]
    for one in scores:
        for other in scores:
            if all(p.get(one, len(p)) <= p.get(other, len(p)) for p in places):
                assert scores[one] >= scores[other]
