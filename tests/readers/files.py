"""What the readers' tests share: how files are written, and how a refusal must look."""

import json
from collections.abc import Callable
from typing import Any

import pytest

from pipeline.readers import InputError

Write = Callable[..., str]


def encoded(line: Any) -> bytes:
    """A line's bytes: bytes as they are, a text in UTF-8, anything else as JSON."""
    if isinstance(line, bytes):
        return line
    return (line if isinstance(line, str) else json.dumps(line, ensure_ascii=False)).encode()


def refusal(read: Callable[[str], Any], path: str) -> str:
    """The message with which reading a file stops, without the path before it."""
    with pytest.raises(InputError) as caught:
        list(read(path))
    message = str(caught.value)
    assert message.startswith(path)
    assert "\n" not in message
    return message.removeprefix(path)
