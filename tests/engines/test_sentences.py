"""Tests of pipeline.engines.sentences: where sentences end, and what is none."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeline.engines.sentences import describe, split


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("Dr. Ada Lund lives in St. Ives. She paints.", 2),
        ("It cost 3.5 million in the U.S. alone. Nobody paid.", 2),
        ("First line without an end\n\nSecond paragraph", 2),
        ("One sentence\nover two lines.", 1),
        ("", 0),
        (" \n ", 0),
        ("... !", 0),
    ],
)
def test_a_text_has_as_many_sentences_as_a_reader_counts(text: str, expected: int) -> None:
    assert len(split(text, "en")) == expected


def test_blanks_within_a_sentence_are_single_and_a_language_has_its_own_marks() -> None:
    assert split(" One  sentence\nover two  lines. ", "en") == ["One sentence over two lines."]
    assert len(split("\u6e56\u306f\u5e83\u3044\u3002\u9ce5\u304c\u3044\u308b\u3002", "ja")) == 2


@given(text=st.text(max_size=200))
def test_no_letter_is_lost_and_none_is_made(text: str) -> None:
    kept = re.sub(r"\s+", "", "".join(split(text, "en")))
    letters = "".join(filter(str.isalnum, text))
    assert "".join(filter(str.isalnum, kept)) == letters


def test_the_library_s_version_and_the_language_are_in_the_fingerprint() -> None:
    assert describe("en") != describe("de")
    assert describe("en")["version"].count(".") >= 1
