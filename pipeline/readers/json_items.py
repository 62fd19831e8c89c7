"""One large JSON value in a file, an array or an object, taken apart entry by entry.

Such files (DPR, ALCE, FlashRAG's retrieval cache) reach gigabytes. Only the brackets, quotes and
commas are looked at here, so memory holds one entry and each entry knows its line; what stands
between them is parsed, and refused, like a line of JSON Lines. (ijson streams too, but cannot say
on which line an entry or an error stands.)
"""

import re
from collections.abc import Iterator

from pipeline.readers.lines import InputError, Place, chunks, first_byte, lines

_MARK = re.compile(  # what is no bracket and no comma, whole texts included, and then one of them
    rb'(?:[^"\[\]{},]++|"[^"\\]*+(?:\\.[^"\\]*+)*+")*+(["\[\]{},])', re.DOTALL
)
_IN_TEXT = re.compile(rb'[^"\\]*+(["\\])')  # of a text that a chunk's end has cut


def rows(path: str) -> Iterator[tuple[Place, bytes]]:
    """The objects of a JSON array, or of JSON Lines, whichever the file holds."""
    return elements(path) if first_byte(path) == b"[" else lines(path)


def elements(path: str) -> Iterator[tuple[Place, bytes]]:
    """The elements of a JSON array. InputError where the file is no whole array."""
    yield from _Splitter(path, b"[", "array").items()


def members(path: str) -> Iterator[tuple[Place, bytes]]:
    """The members of a JSON object, each as an object of its own. InputError as `elements`."""
    for place, raw in _Splitter(path, b"{", "object").items():
        yield place, b"{" + raw + b"}"


class _Splitter:
    """The state of a scan: `_buffer` begins with the entry under way, `_at` is the next byte to
    look at, `_line` the line on which the buffer begins."""

    def __init__(self, path: str, opening: bytes, kind: str) -> None:
        self._path, self._opening, self._kind = path, opening, kind
        self._buffer, self._at, self._line = b"", 0, 1
        self._depth, self._in_text, self._entry, self._closed = 0, False, 0, False

    def items(self) -> Iterator[tuple[Place, bytes]]:
        """Every entry at the first depth, blank around it cut off."""
        for chunk in chunks(self._path):
            self._buffer += chunk
            while match := (_IN_TEXT if self._in_text else _MARK).match(self._buffer, self._at):
                self._at = match.end()
                if self._ends_entry(match[1]):
                    item = self._cut()
                    if item[1] or not self._closed or self._entry > 1:  # `[]` has no entry
                        yield item
            self._at = max(self._at, len(self._buffer))  # an escape may reach over the end
        if not self._closed:
            end = (
                f", entry {self._entry + 1}, is not closed" if self._depth else " has no beginning"
            )
            raise InputError(f"{self._path}:{self._begin()}: the {self._kind}{end}")
        if self._buffer.strip():
            raise self._stray()

    def _ends_entry(self, mark: bytes) -> bool:
        """Takes one mark in; whether it is the comma or bracket behind an entry."""
        if self._in_text:
            self._at += mark == b"\\"
            self._in_text = mark == b"\\"
            return False
        if self._depth == 0 and (
            self._closed or mark != self._opening or self._buffer[: self._at - 1].strip()
        ):
            raise self._stray()
        self._in_text = mark == b'"'
        if mark in b"[{":
            self._depth += 1
            if self._depth == 1:
                self._drop()
        elif mark in b"]}":
            self._depth -= 1
            self._closed = self._depth == 0
            return self._closed
        return mark == b"," and self._depth == 1

    def _cut(self) -> tuple[Place, bytes]:
        item = Place(self._path, self._begin(), self._entry), self._buffer[: self._at - 1].strip()
        self._entry += 1
        self._drop()
        return item

    def _drop(self) -> None:
        """Forgets what lies before `_at`."""
        self._line += self._buffer.count(b"\n", 0, self._at)
        self._buffer, self._at = self._buffer[self._at :], 0

    def _begin(self) -> int:
        """The line on which the buffer's first byte that is not blank stands."""
        blank = len(self._buffer) - len(self._buffer.lstrip())
        return self._line + self._buffer.count(b"\n", 0, blank)

    def _stray(self) -> InputError:
        what = f"behind the {self._kind}" if self._closed else f"where an {self._kind} must begin"
        return InputError(f"{self._path}:{self._begin()}: something stands {what}")
