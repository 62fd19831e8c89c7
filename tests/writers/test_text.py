"""Tests of pipeline.writers.text: files by their path or URI."""

import json
import math
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeline.writers import write_lines


@given(texts=st.lists(st.text()))
def test_any_rows_come_back_line_by_line(
    texts: list[str], tmp_path_factory: pytest.TempPathFactory
) -> None:
    path = tmp_path_factory.mktemp("lines") / "rows.jsonl"
    rows = [{"id": i, "text": text, "list": [text, None]} for i, text in enumerate(texts)]
    write_lines(str(path), rows)
    lines = path.read_bytes().split(b"\n")
    assert lines.pop() == b"" and [json.loads(line) for line in lines] == rows


def test_a_number_that_is_none_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "rows.jsonl"
    with pytest.raises(ValueError, match="not JSON compliant"):
        write_lines(str(path), [{"nu0": math.nan}])
    assert not path.exists()
