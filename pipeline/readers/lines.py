"""Text files line by line, and how a line that cannot be used is named: file, line, reason.

Local paths or URIs; names that end in .gz are unpacked. A reader is a parse function, from an
entry to a row or a ValueError with the reason, under `checked`.
"""

import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeVar

from pipeline.paths import locate

Row = dict[str, Any]
T = TypeVar("T")


class InputError(ValueError):
    """Input that cannot be used; the message is one line for the user."""


class Place(NamedTuple):
    """Where an entry stands: its line from 1 (of a table: its row), and its number from 0 among
    the file's entries where lines do not tell entries apart. Messages count entries from 1."""

    path: str
    line: int
    entry: int | None = None

    @property
    def name(self) -> str:
        """The place within the input."""
        return f"line {self.line}" if self.entry is None else f"entry {self.entry + 1}"


@dataclass(frozen=True)
class BadLine:
    """A line or an entry that is not what its format asks for."""

    path: str
    line: int
    reason: str
    entry: int | None = None

    @property
    def place(self) -> str:
        """See Place.name."""
        return Place(self.path, self.line, self.entry).name

    def __str__(self) -> str:
        entry = "" if self.entry is None else f"{self.place}: "
        return f"{self.path}:{self.line}: {entry}{self.reason}"


OnBad = Callable[[BadLine], None]


def refuse(bad: BadLine) -> None:
    """The default answer to a bad line: InputError."""
    raise InputError(str(bad))


def checked(
    entries: Iterable[tuple[Place, T]], parse: Callable[[T], Row], key: str, on_bad: OnBad
) -> Iterator[Row]:
    """The rows of the good entries; bad ones and repeated keys go to `on_bad`.

    A row without the key is known by its entry's number from 0.
    """
    first: dict[Any, str] = {}
    for number, (place, raw) in enumerate(entries):
        try:
            row = {key: str(number)} | parse(raw)
            if row[key] in first:
                raise ValueError(f"id {row[key]!r} stands already in {first[row[key]]}")
        except ValueError as error:
            on_bad(BadLine(place.path, place.line, str(error), place.entry))
        else:
            first[row[key]] = place.name
            yield row


def of_json(parse: Callable[[Mapping[str, Any]], Row]) -> Callable[[bytes], Row]:
    """A parse function of a JSON object as one of its bytes."""
    return lambda raw: parse(json_object(raw))


def json_object(raw: bytes) -> dict[str, Any]:
    """The JSON object of an entry; ValueError with the reason where it is none."""
    try:
        value = json.loads(decoded(raw))
        if b"\\ud" in raw or b"\\uD" in raw:  # half a pair alone could not be stored as UTF-8
            json.dumps(value, ensure_ascii=False).encode("utf-8")
    except UnicodeEncodeError:
        raise ValueError("not Unicode: an escape is half a surrogate pair") from None
    except json.JSONDecodeError as error:
        line = "" if error.lineno == 1 else f"line {error.lineno}, "
        raise ValueError(f"not JSON: {error.msg} at {line}column {error.colno}") from None
    except RecursionError:
        raise ValueError("not JSON that can be read: nested too deeply") from None
    if not isinstance(value, dict):
        raise ValueError(f"expected an object, got {type(value).__name__}")
    return value


def decoded(raw: bytes) -> str:
    """An entry's text; ValueError where it is not UTF-8."""
    try:
        return raw.decode("utf-8")
    except UnicodeDecodeError as error:
        raise ValueError(f"not UTF-8 at byte {error.start} of the line") from None


def lines(path: str) -> Iterator[tuple[Place, bytes]]:
    """Every line that is not blank, with its place; a carriage return at its end stays."""
    rest, number = b"", 0
    for chunk in chunks(path):
        *whole, rest = (rest + chunk).split(b"\n")
        for line in whole:
            number += 1
            if line.strip():
                yield Place(path, number), line
    if rest.strip():
        yield Place(path, number + 1), rest


def chunks(path: str) -> Iterator[bytes]:
    """A file's bytes, unpacked by the name's ending; InputError where it cannot be read."""
    try:
        filesystem, name = locate(path)
        with filesystem.open_input_stream(name) as stream:
            while chunk := stream.read(1 << 20):
                yield bytes(chunk)
    except FileNotFoundError:
        raise InputError(f"{path}: no such file") from None
    except (OSError, ValueError) as error:
        raise InputError(f"{path}: cannot be read: {error}") from None


def first_byte(path: str) -> bytes:
    """The first byte that is not blank; none in an empty file."""
    for chunk in chunks(path):
        if start := chunk.lstrip():
            return start[:1]
    return b""
