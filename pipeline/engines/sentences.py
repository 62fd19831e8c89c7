"""Sentences of a passage, by the library sentencex: rules for some 300 languages, no model."""

import re
from importlib.metadata import version
from typing import Any


def describe(language: str) -> dict[str, Any]:
    """What decides where sentences end, for fingerprints."""
    return {"splitter": "sentencex", "version": version("sentencex"), "language": language}


def split(text: str, language: str) -> list[str]:
    """The sentences of a text in order, single blanks between words; none without a letter or
    digit. A language that the library has no rules for takes those of a related one."""
    import sentencex

    found = (re.sub(r"\s+", " ", one).strip() for one in sentencex.segment(language, text))
    return [sentence for sentence in found if any(map(str.isalnum, sentence))]
