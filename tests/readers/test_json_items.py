"""Tests of pipeline.readers.json_items: arrays and objects taken apart, compared with json."""

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from pipeline.readers import json_items
from tests.readers.files import Write, refusal

VALUE = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(alphabet='ab\\"[]{},: \né', max_size=6),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.text(alphabet='a"[,', max_size=3), inner, max_size=3)
    ),
    max_leaves=8,
)
INDENT = st.sampled_from([None, 0, 2])
FIXTURE = settings(suppress_health_check=[HealthCheck.function_scoped_fixture])


@FIXTURE
@given(values=st.lists(VALUE, max_size=5), indent=INDENT, ascii_only=st.booleans())
def test_the_elements_are_those_that_json_reads(
    tmp_path: Path, values: list[Any], indent: int | None, ascii_only: bool
) -> None:
    path = tmp_path / "array.json"
    text = f" \n{json.dumps(values, indent=indent, ensure_ascii=ascii_only)}\n "
    path.write_text(text, encoding="utf-8")
    found = list(json_items.elements(str(path)))
    assert [json.loads(raw) for _, raw in found] == values
    assert [place.entry for place, _ in found] == list(range(len(values)))
    lines = text.split("\n")
    assert all(raw.decode().split("\n")[0] in lines[place.line - 1] for place, raw in found)


@FIXTURE
@given(values=st.dictionaries(st.text(alphabet='a"[,\\'), VALUE, max_size=4), indent=INDENT)
def test_the_members_are_those_that_json_reads(
    tmp_path: Path, values: dict[str, Any], indent: int | None
) -> None:
    path = tmp_path / "object.json"
    path.write_text(json.dumps(values, indent=indent, ensure_ascii=False), encoding="utf-8")
    made: dict[str, Any] = {}
    for _, raw in json_items.members(str(path)):
        made |= json.loads(raw)
    assert made == values


@pytest.mark.parametrize("shift", range(6))
def test_an_entry_over_many_chunks_is_whole_wherever_an_escape_is_cut(
    tmp_path: Path, shift: int
) -> None:
    chunk = 1 << 20
    text = "x" * (chunk - 5 + shift) + '\\"]},' + "y" * chunk
    path = tmp_path / "array.json"
    path.write_text(json.dumps([{"a": text}, {"b": 1}]), encoding="utf-8")
    first, second = (json.loads(raw) for _, raw in json_items.elements(str(path)))
    assert (first, second) == ({"a": text}, {"b": 1})


def test_entries_know_the_lines_they_begin_on(write: Write) -> None:
    path = write("[", '{"a":', "1},", "", '  {"b": 2}, {"c": 3}', "]", name="x.json")
    places = [place for place, _ in json_items.elements(path)]
    assert [(place.line, place.entry) for place in places] == [(2, 0), (5, 1), (5, 2)]


def test_rows_are_an_array_s_elements_or_lines(write: Write) -> None:
    array = list(json_items.rows(write("", '[{"a": 1},', '{"a": 2}]')))
    assert [(p.line, p.entry, raw) for p, raw in array] == [
        (2, 0, b'{"a": 1}'),
        (3, 1, b'{"a": 2}'),
    ]
    lines = list(json_items.rows(write('{"a": 1}', "", '{"a": 2}')))
    assert [(p.line, p.entry, raw) for p, raw in lines] == [
        (1, None, b'{"a": 1}'),
        (3, None, b'{"a": 2}'),
    ]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('[{"a": 1},\n{"b": [}', ":2: the array, entry 2, is not closed"),
        ('[{"a": 1}, "x', ":1: the array, entry 2, is not closed"),
        ("[1]\n\n, 2", ":3: something stands behind the array"),
        ("[1]\nx", ":2: something stands behind the array"),
        ("x [1]", ":1: something stands where an array must begin"),
        ('{"a": 1}', ":1: something stands where an array must begin"),
        ("", ":2: the array has no beginning"),
    ],
)
def test_a_file_that_is_no_whole_array_is_refused(write: Write, text: str, message: str) -> None:
    assert refusal(json_items.elements, write(text, name="x.json")) == message


def test_the_empty_array_has_no_entry_and_a_trailing_comma_an_empty_one(write: Write) -> None:
    assert list(json_items.elements(write("[ ]"))) == []
    assert [raw for _, raw in json_items.elements(write("[1, ]"))] == [b"1", b""]
