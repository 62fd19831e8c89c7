"""Tests of pipeline.calibration.folds: questions stay whole."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeline.calibration.folds import question_folds

IDS = st.lists(st.integers(0, 30).map(str), min_size=2, max_size=60)


@given(ids=IDS, folds=st.integers(2, 6), seed=st.integers(0, 99), data=st.data())
def test_every_question_has_one_fold_whatever_the_order_and_sizes_differ_by_one(
    ids: list[str], folds: int, seed: int, data: st.DataObject
) -> None:
    if len(set(ids)) < folds:
        with pytest.raises(ValueError, match=f"folds = {folds} needs as many questions"):
            question_folds(ids, folds=folds, seed=seed)
        return
    made = question_folds(ids, folds=folds, seed=seed)
    assert sorted(made["question_id"]) == sorted(set(ids))
    sizes = made["fold"].value_counts()["count"]
    assert len(sizes) == folds and max(sizes) - min(sizes) <= 1
    shuffled = data.draw(st.permutations(ids))
    assert made.equals(question_folds(shuffled, folds=folds, seed=seed))


def test_another_seed_makes_other_folds_and_one_fold_is_none() -> None:
    ids = [str(i) for i in range(20)]
    one, other = (question_folds(ids, folds=4, seed=seed) for seed in (1, 2))
    assert not one.sort("question_id").equals(other.sort("question_id"))
    with pytest.raises(ValueError, match="folds = 1; allowed: 2 or more"):
        question_folds(ids, folds=1, seed=1)
