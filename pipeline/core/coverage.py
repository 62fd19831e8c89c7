"""Lexical coverage: how much of a question a passage mentions. No weights, no model.

Words are what stands between blanks and marks, so in scripts without blanks between words, such
as Chinese, Japanese and Thai, a whole clause is one word and the signal says little.
"""

import math

from pipeline.core.words import words

_STOP_TEXT = """
    a an the this that these those it its he she him her his they them their we our you your i
    me my and or but nor if then than as of in on at to from by with for about into over after
    before between during through is are was were be been being am do does did done has have had
    having can could will would shall should may might must not no so such there here who whom
    whose which what when where why how s t
"""
STOP_WORDS = frozenset(_STOP_TEXT.split())
"""Words that say nothing of a question's subject; s and t are the ends of "who's" and "don't".
Not "us": lowered, the country looks the same."""


def content_words(text: str) -> frozenset[str]:
    """The distinct words of a text, letters lowered, without punctuation and stop words."""
    return frozenset(words(text)) - STOP_WORDS


def coverage(question: str, passage: str) -> float:
    """Share of the question's distinct content words that occur in the passage, in [0, 1].

    NaN where the question has no content word: there is nothing to cover.
    """
    wanted = content_words(question)
    return len(wanted & content_words(passage)) / len(wanted) if wanted else math.nan
