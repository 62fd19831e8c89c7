"""Spots assistant refusals and disclaimers, whose boilerplate has an entropy near zero.

Precision before recall: a pattern needs the verb of a refusal, because real answers open alike
("I Can't Help Myself", "Sorry"). An abstention ("I don't know") is an answer, not a refusal.
"""

import re
from collections.abc import Sequence

# Raise with every change of the patterns: flags of different versions do not compare.
REFUSAL_PATTERNS_VERSION: str = "1"

_CANNOT = r"(?:can't|cannot|can not|could not|couldn't)"
_AM = r"(?:i'm|i am)"
_APOLOGY = rf"(?:{_AM} (?:\w+ )?sorry|i (?:\w+ )?apologi[sz]e|(?:my )?apologies)"

REFUSAL_PATTERNS: tuple[str, ...] = (
    # I'm sorry, but ... | I apologize for the confusion, but ...
    rf"{_APOLOGY}(?: for [\w ]{{1,40}})?,? (?:but|however)\b",
    # Sorry, I can't ... | Unfortunately, I do not have ...
    rf"(?:{_APOLOGY}|sorry|unfortunately)[,.:;!]? (?:but )?(?:i {_CANNOT}"
    rf"|i (?:don't|do not) (?:have|understand)|i (?:won't|will not) be able"
    rf"|{_AM} (?:unable|not able))\b",
    # I cannot provide ... | I can't help you with that
    rf"i {_CANNOT} (?:\w+ly )?(?:assist|provide|answer|fulfill?|comply|determine|access|browse"
    r"|verify|confirm|discuss|respond to|help with|help you with)\b",
    # I'm unable to ... | I am currently not able to ...
    rf"{_AM} (?:\w+ly )?(?:unable|not able) to\b",
    # I don't have access to ... | I do not currently have enough information ...
    r"i (?:\w+ly )?(?:don't|do not) (?:\w+ly )?have (?:[\w-]+ ){0,3}"
    r"(?:access|information|knowledge|data|details|context|ability|capability)\b",
    # As an AI language model ... | I'm just a large language model ...
    rf"(?:as|{_AM}) (?:\w+ )?an? (?:\w+ )?(?:ai|artificial intelligence|language model)\b",
)

_REFUSAL = re.compile("|".join(f"(?:{pattern})" for pattern in REFUSAL_PATTERNS), re.IGNORECASE)
_APOSTROPHES = str.maketrans("\u2018\u2019\u02bc", "'''")
_OPENING_QUOTES = " \"'`*\u201c\u201d\u00ab\u00bb"


def is_refusal(text: str, *, extra_patterns: Sequence[str] = ()) -> bool:
    """Whether the text opens as a refusal or disclaimer of an assistant, in any letter case.

    Patterns, the caller's extra ones too, are regular expressions matched at the start of the
    text with white space collapsed, apostrophes straightened and opening quotes dropped.
    ValueError on an extra pattern that does not compile.
    """
    opening = " ".join(text.split()).translate(_APOSTROPHES).lstrip(_OPENING_QUOTES)
    extra = [_compiled(pattern) for pattern in extra_patterns]
    return any(pattern.match(opening) for pattern in (_REFUSAL, *extra))


def _compiled(pattern: str) -> re.Pattern[str]:
    try:
        return re.compile(pattern, re.IGNORECASE)
    except re.error as error:
        raise ValueError(
            f"refusal pattern {pattern!r} is not a regular expression: {error}"
        ) from error
