"""Tests of pipeline.core.words."""

import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeline.core.words import words


def test_words_are_lowered_and_parted_by_marks_blanks_and_underscores() -> None:
    assert words("North_West: pier-head (1874), don't!") == [
        *("north", "west", "pier", "head", "1874", "don", "t"),
    ]


def test_a_combining_mark_belongs_to_its_word_whether_or_not_a_letter_holds_it() -> None:
    assert words("E\u0301lan elan") == ["\u00e9lan", "elan"]
    # HA, vowel sign I, NA, virama, DA, vowel sign II: three letters and three marks, one word.
    hindi = "\u0939\u093f\u0928\u094d\u0926\u0940"
    assert words(f"{hindi} {hindi}") == [hindi, hindi]


def test_without_blanks_between_words_a_clause_is_one_word() -> None:
    assert words("\u6771\u4eac\u90fd\u3001\u5927\u962a") == ["\u6771\u4eac\u90fd", "\u5927\u962a"]


@pytest.mark.parametrize("form", ["NFC", "NFD"])
@given(text=st.text(max_size=30))
def test_the_words_of_a_text_do_not_depend_on_its_unicode_form(form: str, text: str) -> None:
    assert words(unicodedata.normalize(form, text)) == words(text)  # type: ignore[arg-type]


@given(text=st.text(max_size=30))
def test_words_of_words_are_themselves(text: str) -> None:
    assert words(" ".join(words(text))) == words(text)
