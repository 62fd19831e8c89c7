"""The words of a text, for signals that compare texts word by word."""

import re
import sys
import unicodedata
from functools import cache


def words(text: str) -> list[str]:
    """Runs of letters, digits and combining marks, letters lowered, in the order of the text.

    Equal texts in different Unicode forms have equal words: texts are composed (NFC) first, and a
    mark that no composed letter holds, such as a vowel sign of Hindi, belongs to its word. In
    scripts without blanks between words a clause is one word.
    """
    lowered = unicodedata.normalize("NFC", text).lower()  # lowering may decompose: Turkish dotted I
    return _run().findall(unicodedata.normalize("NFC", lowered).replace("_", " "))


@cache
def _run() -> re.Pattern[str]:
    every = map(chr, range(sys.maxunicode + 1))
    marks = "".join(character for character in every if unicodedata.category(character)[0] == "M")
    return re.compile(rf"[\w{marks}]+")
