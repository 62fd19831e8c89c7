"""The grammar of listwise replies: "[2] > [1] > [5]", best first; "[0]" says that no passage helps.

Models write more than they are asked for, so everything that had to be bent is counted by kind, and
what cannot be read is `malformed` and never an empty list. Source: AdaRankLLM, section III-B, says
identifiers and "[0]"; the rest of the grammar is our own. Identifiers count from 1.
"""

import re
import unicodedata
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

GRAMMAR_VERSION = 1
"""Raised when a reply comes to be read differently."""
REPAIRS = (
    "thinking",
    "prose",
    "bare",
    "grouped",
    "digits",
    "unread",
    "truncated",
    "out_of_range",
    "zeros",
    "after_zero",
    "duplicates",
    "missing",
)
"""Kinds of repair, as `Reply.repairs` counts them.

thinking      1 where a block before "</think>", or one that was never closed, was cut off
prose         1 where letters or digits stand outside the brackets
bare          1 where a list of numbers stood without brackets
grouped       brackets that held several identifiers, as "[1, 2]"
digits        brackets, or bare lists, written in another script's digits
unread        brackets that hold a digit and are no list of identifiers, as "[1-3]" or "[Doc 2]"
truncated     1 where the reply ends inside a bracket
out_of_range  identifiers above n, dropped
zeros         "[0]" among other identifiers, ignored
after_zero    identifiers after a leading "[0]", ignored
duplicates    identifiers named before, dropped
missing       of a full order: identifiers not named, put last in the given order
"""

_BRACKETS = str.maketrans(
    "\N{FULLWIDTH LEFT SQUARE BRACKET}\N{FULLWIDTH RIGHT SQUARE BRACKET}"
    "\N{LEFT BLACK LENTICULAR BRACKET}\N{RIGHT BLACK LENTICULAR BRACKET}"
    "\N{LEFT TORTOISE SHELL BRACKET}\N{RIGHT TORTOISE SHELL BRACKET}"
    "\N{FULLWIDTH GREATER-THAN SIGN}\N{FULLWIDTH COMMA}\N{IDEOGRAPHIC COMMA}\N{ARABIC COMMA}",
    "[][][]>,,,",
    "\\",  # of escaped Markdown
)
_GROUP = re.compile(r"\[([^\[\]]*)\]")
_SIGN = r"(?:[\s,;>|&\N{RIGHTWARDS ARROW}]|->|=>)"
_LIST = re.compile(rf"{_SIGN}*[0-9]+(?:{_SIGN}+[0-9]+)*{_SIGN}*")
_BULLET = re.compile(r"^[ \t]*[-*+\N{BULLET}][ \t]+", re.MULTILINE)
_CUT = re.compile(r"\[[\s\d,;>|]*\Z")
_AROUND = " \t\r\n*_`\"'."
LONGEST = 9
"""Digits of an identifier; a longer number is out of every range."""


@dataclass(frozen=True)
class Reply:
    """What a reply says.

    `ids` are in 1..n, best first, each once; they are empty where the reply says that no passage
    helps, or is `malformed`. `repairs` holds the kinds of REPAIRS that are not 0.
    """

    ids: tuple[int, ...]
    malformed: bool
    repairs: dict[str, int]


def parse(reply: str, n: int, *, dropout: bool = True) -> Reply:
    """The identifiers that a reply over n passages names; any text will do.

    Bracketed numbers are identifiers; where there are none, bare numbers are, if the reply is a
    list of numbers and nothing else. A "[0]" that comes before every identifier in range is an
    empty set. Without `dropout` all n passages are to be ordered: "[0]" says nothing, and what was
    left out follows in the given order.
    """
    counts = dict.fromkeys(REPAIRS, 0)
    numbers = list(_numbers(spoken(reply, counts), counts))
    ids = [number for number in numbers if number <= n]
    counts["out_of_range"] = len(numbers) - len(ids)
    if dropout and ids and ids[0] == 0:
        counts["after_zero"] = sum(number > 0 for number in ids)
        return Reply((), False, _found(counts))
    counts["zeros"] = ids.count(0)
    named = [number for number in ids if number > 0]
    order = list(dict.fromkeys(named))
    counts["duplicates"] = len(named) - len(order)
    if order and not dropout:
        left = [number for number in range(1, n + 1) if number not in {*order}]
        counts["missing"] = len(left)
        order += left
    return Reply(tuple(order), not order, _found(counts))


def pattern(n: int, *, dropout: bool = True) -> str:
    """A regular expression of the replies over n >= 1 passages that need no repair but `duplicates`
    and `missing`: a set of identifiers or "[0]", or without `dropout` n of them.

    ValueError for n < 1. That no identifier comes twice is beyond a regular expression of this
    size.
    """
    if n < 1:
        raise ValueError(f"n = {n}; allowed: at least 1 passage")
    identifier = rf"\[({'|'.join(map(str, range(1, n + 1)))})\]"
    more = f"0,{n - 1}" if dropout else f"{n - 1}"
    ranked = f"{identifier}( > {identifier}){{{more}}}" if n > 1 else identifier
    return rf"\[0\]|{ranked}" if dropout else ranked


def total(counted: Sequence[dict[str, int]], kinds: Sequence[str] = REPAIRS) -> dict[str, int]:
    """The repairs of several replies, summed by every kind."""
    return {kind: sum(counts.get(kind, 0) for counts in counted) for kind in kinds}


def spoken(reply: str, counts: dict[str, int]) -> str:
    """The reply without its thinking, in plain brackets."""
    _, closed, text = reply.rpartition("</think>")
    text, opened, _ = text.partition("<think>")
    counts["thinking"] = int(bool(closed or opened))
    return text.translate(_BRACKETS)


def _numbers(text: str, counts: dict[str, int]) -> Iterator[int]:
    """Every identifier as written, out of range or not."""
    counts["truncated"] = int(_CUT.search(text) is not None)
    groups = [group for group in _GROUP.findall(text) if _has_digit(group)]
    lists = [group for group in groups if _LIST.fullmatch(ascii_digits(group))]
    counts["unread"] = len(groups) - len(lists)
    if not lists and not groups:
        bare = _BULLET.sub("", text).strip(_AROUND)
        if _LIST.fullmatch(ascii_digits(bare)):
            counts["bare"] = 1
            lists = [bare]
    if not counts["bare"]:
        outside = _CUT.sub("", _GROUP.sub("", text))
        counts["prose"] = int(any(map(str.isalnum, outside)))
    for group in lists:
        numbers = re.findall("[0-9]+", ascii_digits(group))
        counts["grouped"] += len(numbers) > 1 and not counts["bare"]
        counts["digits"] += ascii_digits(group) != group
        for number in numbers:
            significant = number.lstrip("0") or "0"
            yield int(significant[: LONGEST + 1])


def ascii_digits(text: str) -> str:
    """The text with every digit of another script, or in a circle, as 0 to 9; same length."""
    return text if text.isascii() else "".join(map(_ascii_digit, text))


def _ascii_digit(character: str) -> str:
    digit = unicodedata.digit(character, None)
    return character if digit is None else str(digit)


def _has_digit(text: str) -> bool:
    return any(map(str.isdigit, text))


def _found(counts: dict[str, int]) -> dict[str, int]:
    return {kind: count for kind, count in counts.items() if count}
