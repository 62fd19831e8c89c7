"""Files for the readers' tests."""

from pathlib import Path
from typing import Any

import pytest

from tests.readers.files import Write, encoded


@pytest.fixture
def write(tmp_path: Path) -> Write:
    """Writes lines (objects, texts or bytes) as a file; its path."""

    def write_lines(*lines: Any, name: str = "in.jsonl") -> str:
        path = tmp_path / name
        path.write_bytes(b"".join(encoded(line) + b"\n" for line in lines))
        return str(path)

    return write_lines
