"""Tests of pipeline.readers.fields: titles and texts as `contents`, and back."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeline.engines.base import split_contents
from pipeline.readers import fields


@pytest.mark.parametrize(
    ("title", "text", "contents"),
    [
        ("Ada", "She wrote.", "Ada\nShe wrote."),
        ("", "One.\nTwo.", "\nOne.\nTwo."),
        ('"Heroes"', "An album.", '""Heroes""\nAn album.'),
        ("A\nB", "Text.", "A B\nText."),
    ],
)
def test_the_title_stands_on_the_first_line(title: str, text: str, contents: str) -> None:
    assert fields.joined(title, text) == contents


@given(title=st.text(), text=st.text().filter(lambda text: bool(text.strip())))
def test_contents_taken_apart_give_title_and_text_back(title: str, text: str) -> None:
    assert split_contents(fields.joined(title, text)) == (" ".join(title.split()), text.strip())


@pytest.mark.parametrize("title", [{}, {"title": None}, {"title": ""}])
def test_a_text_without_a_title_keeps_its_first_line(title: dict[str, str | None]) -> None:
    contents = fields.contents_of({"text": "One.\nTwo."} | title)
    assert split_contents(contents) == ("", "One.\nTwo.")


def test_equal_contents_share_an_id_and_others_do_not() -> None:
    assert fields.content_id("a\nb") == fields.content_id("a\nb")
    assert fields.content_id("a\nb") != fields.content_id("a\nc")
