"""The grammar of clue lists: an extractor's "[3] The sentence." lines, a truncator's one number.

A clue is a source sentence, never the model's own words: a line counts for the sentence whose
normalised text it gives, whatever number it carries and wherever that stands, so ranks and
identifiers are both understood. Text that is no source sentence is `unfaithful`. Numbers alone are
read by core.replies, and those within prose count where no line gives a sentence. What cannot be
read is `malformed` and never an empty list. Source: CompSelect; the grammar is our own.
"""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TypeAlias

from pipeline.core import answers, replies

GRAMMAR_VERSION = 2
"""Raised when a reply comes to be read differently."""
REPAIRS = (*replies.REPAIRS, "misnumbered", "snapped")
"""Kinds of repair: those of core.replies, and

misnumbered   lines whose number is not that of the sentence which they give
snapped       unfaithful lines taken for the nearest sentence
prose         here 1 where a line without a number stands among numbered ones and is no sentence,
              or words that are none stand before a line's numbers
truncated     here 1 where the last line is the beginning of one sentence alone
"""
NEAREST = 0.5
"""Least token F1 at which an unfaithful line is snapped to a sentence."""

_MARK = re.compile(r"\[\s*([0-9]+)\s*\][\s:.,;>*_`\"'-]*")
_BRACKETS = re.compile(r"\[[^\[\]]*\]")
_ITEM = re.compile(r"(?:[-*+\N{BULLET}]\s+|[*_]*[0-9]{1,3}[.):][*_]*\s+)+")
_AROUND = " \t*_`\"'>|"
_JOINTS = frozenset({"", "and", "or"})
_LEAST_WORDS = 4  # of a truncated line, so that it names one sentence and no mere beginning


_Named: TypeAlias = tuple[int, bool]
"""A number, and whether it stands in prose."""


@dataclass(frozen=True)
class Clues:
    """What an extractor's reply says.

    `ids` are in 1..n in the order of the reply, each once; they are empty where it says that no
    sentence helps, or is `malformed`. `lines` counts the lines that give a text, `unfaithful` those
    of them that give no source sentence. `repairs` holds the kinds of REPAIRS that are not 0.
    """

    ids: tuple[int, ...]
    malformed: bool
    lines: int
    unfaithful: int
    repairs: dict[str, int]


@dataclass(frozen=True)
class Cut:
    """What a truncator's reply says: `keep` of n sentences, in order; 0 also where malformed."""

    keep: int
    malformed: bool
    repairs: dict[str, int]


def parse(reply: str, sentences: Sequence[str], *, snap: bool = False) -> Clues:
    """The sentences that a reply gives, by number from 1; any text will do.

    A "[0]" without a sentence's text, before every sentence, is an empty set. With `snap` an
    unfaithful line counts for the sentence of the largest token F1, the first of equals, where
    that is at least NEAREST.
    """
    counts = dict.fromkeys(REPAIRS, 0)
    text = replies.spoken(reply, counts)
    if not any(map(str.isalpha, text)):
        return parse_numbers(reply, len(sentences))
    reading = _Reading(_Sentences(sentences), counts, snap=snap)
    ids = reading.ids([line for line in text.splitlines() if line.strip()])
    found = [number for number in ids if 0 < number <= len(sentences)]
    counts["out_of_range"] = sum(number > len(sentences) for number in ids)
    taken = [number for number in ids if number <= len(sentences)]
    empty = bool(taken) and taken[0] == 0
    counts["after_zero" if empty else "zeros"] = len(found) if empty else taken.count(0)
    order = () if empty else tuple(dict.fromkeys(found))
    counts["duplicates"] = 0 if empty else len(found) - len(order)
    repairs = {kind: count for kind, count in counts.items() if count}
    return Clues(order, not (order or empty), reading.lines, reading.unfaithful, repairs)


def parse_numbers(reply: str, n: int) -> Clues:
    """The sentences that a reply of numbers names; see core.replies.parse."""
    read = replies.parse(reply, n)
    return Clues(read.ids, read.malformed, 0, 0, read.repairs)


def cut(reply: str, n: int) -> Cut:
    """How many of n ordered sentences suffice, as the number of the last one that is needed.

    A list of numbers and nothing else asks for the prefix that holds them all; of numbers within
    prose the first one counts.
    """
    read = replies.parse(reply, n)
    text = replies.spoken(reply, {})
    outside = {*answers.normalise(_BRACKETS.sub(" ", text)).split()}
    listed = "prose" not in read.repairs or outside <= _JOINTS
    keep = max(read.ids, default=0) if listed else next(iter(read.ids), 0)
    return Cut(keep, read.malformed, read.repairs)


def cut_pattern(n: int) -> str:
    """A regular expression of the replies over n sentences that need no repair."""
    return rf"\[({'|'.join(map(str, range(n + 1)))})\]"


class _Sentences:
    """The source sentences, found by their normalised texts."""

    def __init__(self, texts: Sequence[str]) -> None:
        self.texts = [answers.normalise(replies.spoken(text, {})) for text in texts]

    @cached_property
    def number(self) -> dict[str, int]:
        numbered = {text: i for i, text in reversed([*enumerate(self.texts, 1)]) if text}
        return dict(sorted(numbered.items(), key=lambda pair: len(pair[0]), reverse=True))

    def run(self, text: str) -> list[int]:
        """The sentences that a normalised text is made of, one after the other; [] for others."""
        if text in self.number:
            return [self.number[text]]
        found: list[int] = []
        left = f"{text} "
        while left:
            fits = (n for own, n in self.number.items() if left.startswith(f"{own} "))
            if (number := next(fits, None)) is None:
                return []
            found.append(number)
            left = left[len(self.texts[number - 1]) + 1 :]
        return found

    def beginning(self, text: str) -> int | None:
        """The one sentence that a normalised text of some words is the beginning of."""
        fits = [n for own, n in self.number.items() if own.startswith(text)]
        return fits[0] if len(fits) == 1 and len(text.split()) >= _LEAST_WORDS else None

    def nearest(self, text: str) -> int | None:
        """The sentence of the largest token F1, if that is at least NEAREST."""
        scores = [answers.f1(text, [own]) if own else 0.0 for own in self.texts]
        best = max(scores, default=0.0)
        return scores.index(best) + 1 if best >= NEAREST else None


class _Reading:
    """One reply as it is read, line by line."""

    def __init__(self, source: _Sentences, counts: dict[str, int], *, snap: bool) -> None:
        self._source, self._counts, self._snap = source, counts, snap
        self.lines = self.unfaithful = 0
        self._given = False  # whether a line gives a sentence

    def ids(self, lines: Sequence[str]) -> list[int]:
        """The numbers of all lines, 0 and those out of range among them."""
        bare = [_bare(line) for line in lines]
        marks = [list(_MARK.finditer(replies.ascii_digits(text))) for _, text in bare]
        numbered = any(marks) or any(item for item, _ in bare)
        made: list[_Named] = []
        for place, ((item, text), own) in enumerate(zip(bare, marks, strict=True)):
            last = place == len(bare) - 1
            if own:
                made += self._marked(text, own, last=last)
            elif item or not numbered or self._source.run(answers.normalise(text)):
                made += self._said(text, None, last=last)
            else:
                self._counts["prose"] = 1
        return [number for number, prose in made if not (prose and self._given)]

    def _marked(self, text: str, marks: Sequence[re.Match[str]], *, last: bool) -> Iterator[_Named]:
        """A line with numbers: one sentence that may hold some itself, texts each with a number
        before or behind it, or numbers alone."""
        edges = [0, *(edge for mark in marks for edge in mark.span()), len(text)]
        head, *said = (text[i:j] for i, j in zip(edges[::2], edges[1::2], strict=True))
        numbers: list[int | None] = [_number(mark) for mark in marks]
        prose = answers.normalise(head) not in _JOINTS
        for whole in (text if prose else text[marks[0].end() :], " ".join([head, *said])):
            if answers.normalise(whole) in self._source.number:
                yield from self._said(whole, numbers[0], last=last)
                return
        pairs = [*zip(said, numbers, strict=True)]
        if self._source.run(answers.normalise(head)):
            pairs, prose = [*zip([head, *said], [*numbers, None], strict=True)], False
        self._counts["prose"] |= prose
        texts = [self._is_text(*pair) for pair in pairs]
        for place, (pair, is_text) in enumerate(zip(pairs, texts, strict=True)):
            if is_text:
                yield from self._said(*pair, last=last and place == len(pairs) - 1)
            elif pair[1] is not None and (pair[1] == 0 or not any(texts)):
                yield pair[1], prose

    def _is_text(self, said: str, number: int | None) -> bool:
        """Whether something is said, beside the reason why no sentence helps."""
        text = answers.normalise(said)
        return text not in _JOINTS and (number != 0 or bool(self._source.run(text)))

    def _said(self, said: str, number: int | None, *, last: bool) -> Iterator[_Named]:
        """A text with its number, if it has one."""
        text = answers.normalise(said)
        if text in _JOINTS:
            return
        self.lines += 1
        found = self._source.run(text)
        if not found and last and (begun := self._source.beginning(text)) is not None:
            self._counts["truncated"] = 1
            found = [begun]
        if not found:
            self.unfaithful += 1
            near = self._source.nearest(text) if self._snap else None
            self._counts["snapped"] += near is not None
            yield from () if near is None else ((near, False),)
            return
        self._given = True
        same = number is not None and self._equal(number, found[0])
        self._counts["misnumbered"] += number is not None and not same
        named = [number, *found[1:]] if same and number is not None else found
        yield from ((one, False) for one in named)

    def _equal(self, number: int, other: int) -> bool:
        """Whether a number is that of a sentence, or of one with the same text."""
        texts = self._source.texts
        return 0 < number <= len(texts) and texts[number - 1] == texts[other - 1]


def _bare(line: str) -> tuple[bool, str]:
    """Whether a line is an item of a list, and its text."""
    text = line.strip()
    item = _ITEM.match(replies.ascii_digits(text))
    own = text if item is None else text[item.end() :]
    return item is not None, own.strip(_AROUND)


def _number(mark: re.Match[str]) -> int:
    """The number in brackets; a very long one is out of every range."""
    significant = mark[1].lstrip("0") or "0"
    return int(significant[: replies.LONGEST + 1])
