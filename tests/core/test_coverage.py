"""Tests of pipeline.core.coverage."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeline.core.coverage import STOP_WORDS, content_words, coverage

WORDS = st.lists(
    st.sampled_from(["harbour", "lantern", "1874", "the", "of", "Élan", "keeper"]), max_size=8
).map(" ".join)


def test_content_words_are_lowered_distinct_and_without_stop_words() -> None:
    assert content_words("Who kept the Lantern, the OLD lantern?") == {"kept", "lantern", "old"}


def test_punctuation_and_underscores_part_words_and_digits_are_words() -> None:
    assert content_words("north_west: pier-head (1874)") == {
        "north",
        "west",
        "pier",
        "head",
        "1874",
    }


def test_the_ends_of_shortened_words_do_not_count() -> None:
    assert content_words("Who's the keeper that doesn't sleep?") == {"keeper", "doesn", "sleep"}


def test_coverage_is_the_share_of_the_questions_words_in_the_passage() -> None:
    # Content words: keeper, lit, lantern; the passage has keeper and lantern: 2 of 3.
    found = coverage("Which keeper lit the lantern?", "The Lantern had a keeper, Oda Brill.")
    assert found == pytest.approx(2 / 3)


def test_a_word_that_is_part_of_another_is_not_covered() -> None:
    assert coverage("lantern", "lanterns everywhere") == 0.0


@pytest.mark.parametrize("question", ["", "?!", "Who was it?"])
def test_a_question_without_content_words_has_no_coverage(question: str) -> None:
    assert math.isnan(coverage(question, "Anything at all."))


def test_the_stop_words_are_written_as_texts_are_read() -> None:
    assert all(word == word.lower() and word.isalpha() for word in STOP_WORDS)


@given(question=WORDS, passage=WORDS, more=WORDS)
def test_more_text_never_covers_less_and_the_question_covers_itself(
    question: str, passage: str, more: str
) -> None:
    share = coverage(question, passage)
    if math.isnan(share):
        assert not content_words(question)
        return
    assert 0 <= share <= coverage(question, f"{passage} {more}") <= 1
    assert coverage(question, question) == 1


def test_the_country_us_is_no_stop_word() -> None:
    assert content_words("Which US state borders us?") == {"us", "state", "borders"}


def test_a_word_is_covered_in_whatever_unicode_form_it_is_written() -> None:
    assert coverage("e\u0301lan", "\u00c9lan vital") == 1
    assert coverage("\u00e9lan", "elan") == 0
