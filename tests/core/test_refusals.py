"""Tests of pipeline.core.refusals: boilerplate is found, answers that sound alike are not."""

import hashlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeline.core.refusals import REFUSAL_PATTERNS, REFUSAL_PATTERNS_VERSION, is_refusal

REFUSALS = [
    "I'm sorry, but I can't assist with that.",
    "I\u2019m sorry, but I can\u2019t assist with that.",
    "I am very sorry, but the question is unclear.",
    "  I'm sorry,\nbut I cannot help.",
    '"I apologize, but I cannot."',
    "\u201cI\u2019m sorry, but no.\u201d",
    "I apologize, but I do not have that information.",
    "I apologise for the confusion, but I need more context.",
    "My apologies, but this is beyond me.",
    "Sorry, I can't do that.",
    "Sorry, but I can't do that.",
    "I'm sorry, I don't understand the question.",
    "Unfortunately, I do not have access to that document.",
    "I cannot provide an answer.",
    "I can't directly access the internet.",
    "I can't help you with that.",
    "I cannot fulfill this request.",
    "I don't have access to real-time data.",
    "I do not currently have enough specific information to answer.",
    "I don't have the ability to browse.",
    "As an AI, I have no opinions.",
    "As an AI language model, I cannot know.",
    "As a large language model, I cannot know.",
    "I'm just a language model.",
    "I am an AI assistant.",
    "I am unable to answer this question.",
    "I'm currently unable to answer.",
    "I am not able to answer.",
    "I'M SORRY, BUT I CAN'T ASSIST WITH THAT.",
]

ANSWERS = [
    "",
    "Sorry (Justin Bieber song)",
    "Sorry",
    "Sorry Not Sorry",
    "Sorry, Wrong Number",
    "Sorry Seems to Be the Hardest Word",
    "I'm Sorry",
    "I'm Sorry, I Love You",
    "I Apologize",
    "Apologies to the Queen Mary",
    "I, Robot",
    "I Am Legend",
    "I Am a Rock",
    "I Am an Island",
    "Unable Are the Loved to Die",
    "As I Lay Dying",
    "As a Man Thinketh",
    "As an aide to Churchill",
    "As a language teacher",
    "Ai Weiwei",
    "The answer is 42",
    "I Can't Help Myself (Sugar Pie, Honey Bunch)",
    "I Can't Help It (If I'm Still in Love with You)",
    "I Can't Give You Anything but Love",
    "I Can't Make You Love Me",
    "I Don't Have the Heart",
    "I Don't Want to Miss a Thing",
    "I don't know",
    "I Cannot Hide",
    "Unfortunately Named",
    "He said: I'm sorry, but I can't.",
]


@pytest.mark.parametrize("text", REFUSALS)
def test_a_refusal_or_disclaimer_is_found(text: str) -> None:
    assert is_refusal(text)


@pytest.mark.parametrize("text", ANSWERS)
def test_a_real_answer_is_not_taken_for_a_refusal(text: str) -> None:
    assert not is_refusal(text)


@given(refusal=st.sampled_from(REFUSALS), rest=st.text(max_size=40))
def test_whatever_follows_a_refusal_does_not_hide_it(refusal: str, rest: str) -> None:
    assert is_refusal(f"{refusal} {rest}")


@pytest.mark.parametrize("refusal", REFUSALS)
def test_a_refusal_after_an_answer_is_no_refusal(refusal: str) -> None:
    assert not is_refusal(f"The answer is 42. {refusal}")


@given(refusal=st.sampled_from(REFUSALS), space=st.text(" \n\t", max_size=3))
def test_letter_case_and_surrounding_space_do_not_matter(refusal: str, space: str) -> None:
    assert is_refusal(f"{space}{refusal.upper()}{space}")


def test_extra_patterns_match_at_the_start_in_any_case() -> None:
    assert is_refusal("No Comment.", extra_patterns=[r"no comment\b"])
    assert not is_refusal("There was no comment.", extra_patterns=[r"no comment\b"])


def test_extra_patterns_do_not_replace_the_versioned_ones() -> None:
    assert is_refusal("I cannot provide that.", extra_patterns=[r"no comment\b"])


def test_an_extra_pattern_that_does_not_compile_is_refused_by_name() -> None:
    with pytest.raises(ValueError, match=r"refusal pattern '\(oops'"):
        is_refusal("Paris", extra_patterns=["fine", "(oops"])


def test_a_change_of_the_patterns_raises_their_version() -> None:
    digest = hashlib.sha256("\n".join(REFUSAL_PATTERNS).encode()).hexdigest()[:12]
    assert (REFUSAL_PATTERNS_VERSION, digest) == ("1", "cfd7898a7115")
