"""Tests of pipeline.core.duplicates: containment of word 3-grams and the gain penalty."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeline.core.admission import admit
from pipeline.core.duplicates import containment, near_duplicates, penalise, word_grams

GAINS = st.lists(st.none() | st.floats(-1, 1), max_size=8)
TEXTS = st.lists(st.sampled_from(["one", "two", "three", "four"]), max_size=12).map(" ".join)


def test_grams_are_words_without_case_and_punctuation() -> None:
    assert word_grams("The lake, the LAKE froze.") == {
        ("the", "lake", "the"),
        ("lake", "the", "lake"),
        ("the", "lake", "froze"),
    }
    assert word_grams("Two words") == {("two", "words")}
    assert word_grams(" -- ") == frozenset()


def test_a_cut_of_a_longer_text_is_its_duplicate() -> None:
    # 3 grams of 5 words, 2 of them in the text of 8 words: 2/3.
    long, cut = "the ferry crosses the fjord every second hour", "once the ferry crosses the"
    assert containment(word_grams(long), word_grams(cut)) == pytest.approx(2 / 3)
    assert near_duplicates([long, "another matter altogether", cut]) == [(0, 2)]
    assert near_duplicates([long, cut], threshold=0.7) == []


def test_texts_without_words_are_duplicates_of_nothing() -> None:
    assert near_duplicates(["", "--", "", "one word"]) == []


@given(one=TEXTS, other=TEXTS)
def test_containment_is_symmetric_and_full_for_a_text_and_itself(one: str, other: str) -> None:
    a, b = word_grams(one), word_grams(other)
    assert containment(a, b) == containment(b, a)
    assert 0 <= containment(a, b) <= 1
    assert containment(a, a) == float(bool(a))


def test_the_penalty_falls_on_the_repeat_of_an_admitted_candidate_alone() -> None:
    # By gain: 1 (.6), 0 (.5), 2 (.4), 3 (.3). 0 repeats 1: .5 - .3 = .2, below Tp = .25, so it
    # is out and 3, which repeats 0 alone, keeps its gain. 2 repeats nothing.
    left = penalise([0.5, 0.6, 0.4, 0.3, None], [(0, 1), (0, 3)], penalty=0.3, threshold=0.25)
    assert left == pytest.approx([0.2, 0.6, 0.4, 0.3, None])
    assert admit(left, threshold=0.25) == [1, 2, 3]


def test_a_candidate_that_repeats_two_loses_the_penalty_once() -> None:
    left = penalise([0.9, 0.8, 0.7], [(0, 2), (1, 2)], penalty=0.1, threshold=0.0)
    assert left == pytest.approx([0.9, 0.8, 0.6])


def test_without_a_threshold_every_better_candidate_counts_as_admitted() -> None:
    left = penalise([-0.5, -0.1, None], [(0, 1), (0, 2)], penalty=1.0, threshold=-math.inf)
    assert left == [-1.5, -0.1, None]


@given(gains=GAINS, penalty=st.floats(0, 1), threshold=st.floats(-1, 1), data=st.data())
def test_the_penalty_never_admits_more_and_never_touches_the_best(
    gains: list[float | None], penalty: float, threshold: float, data: st.DataObject
) -> None:
    places = st.integers(0, max(len(gains) - 1, 0))
    pairs = data.draw(st.lists(st.tuples(places, places).map(sorted).map(tuple), max_size=6))
    left = penalise(
        gains, [(i, j) for i, j in pairs if i != j], penalty=penalty, threshold=threshold
    )
    before, after = admit(gains, threshold=threshold), admit(left, threshold=threshold)
    assert set(after) <= set(before)
    assert after[:1] == before[:1]
    for old, new in zip(gains, left, strict=True):
        assert new == old or (old is not None and new == old - penalty)


def test_numbers_outside_their_ranges_are_refused() -> None:
    with pytest.raises(ValueError, match="penalty = inf"):
        penalise([0.1], [], penalty=math.inf, threshold=0)
    with pytest.raises(ValueError, match=r"penalty = -0\.1"):
        penalise([0.1], [], penalty=-0.1, threshold=0)
    with pytest.raises(ValueError, match="threshold = nan"):
        penalise([0.1], [], penalty=0.1, threshold=math.nan)
    with pytest.raises(ValueError, match="threshold = 0; allowed: above 0"):
        near_duplicates(["a", "b"], threshold=0)


def test_a_copy_in_another_unicode_form_is_a_duplicate() -> None:
    text = "the caf\u00e9 on the quay closes at dusk"
    assert near_duplicates([text, text.replace("\u00e9", "e\u0301")], threshold=1) == [(0, 1)]
