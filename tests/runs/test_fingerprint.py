"""Tests of pipeline.runs.fingerprint: equal inputs, equal hash; other inputs, another one."""

import gzip
import hashlib
import json
from pathlib import Path

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from pipeline.runs.fingerprint import digest, file_digest

SCALAR = (
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=5)
)
VALUE = st.recursive(
    SCALAR,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner),
    max_leaves=8,
)


def test_the_digest_is_the_start_of_the_sha_256_of_the_sorted_json() -> None:
    expected = hashlib.sha256('{"a": 1, "b": [null, "é"]}'.encode()).hexdigest()[:16]
    assert digest({"b": [None, "é"], "a": 1}) == expected


def test_the_digest_of_a_known_value_never_changes() -> None:
    # Stage directories are named by it: another value here loses every finished probe.
    # printf '["probe", 1, {"threshold": -Infinity}]' | sha256sum
    assert digest(["probe", 1, {"threshold": float("-inf")}]) == "1874c47041b6bd08"


@given(value=st.dictionaries(st.text(max_size=3), VALUE, max_size=4))
def test_the_order_of_keys_does_not_matter(value: dict[str, object]) -> None:
    assert digest(dict(reversed(value.items()))) == digest(value)


@given(one=VALUE, other=VALUE)
def test_other_values_have_other_digests(one: object, other: object) -> None:
    assume(json.dumps(one, sort_keys=True) != json.dumps(other, sort_keys=True))
    assert digest(one) != digest(other)


def test_a_value_that_is_not_json_is_refused() -> None:
    with pytest.raises(TypeError):
        digest({"a": {1, 2}})


def test_a_file_is_known_by_its_size_and_contents(tmp_path: Path) -> None:
    path = tmp_path / "file"
    data = b"x" * ((1 << 20) + 1)
    path.write_bytes(data)
    assert file_digest(str(path)) == (len(data), hashlib.sha256(data).hexdigest())
    assert file_digest(f"file://{path}") == file_digest(str(path))


def test_a_packed_file_is_hashed_as_it_lies_on_disk(tmp_path: Path) -> None:
    path = tmp_path / "file.gz"
    path.write_bytes(gzip.compress(b"text"))
    packed = path.read_bytes()
    assert file_digest(str(path)) == (len(packed), hashlib.sha256(packed).hexdigest())


def test_an_empty_file_has_a_digest_and_a_missing_one_an_error(tmp_path: Path) -> None:
    (tmp_path / "empty").touch()
    assert file_digest(str(tmp_path / "empty")) == (0, hashlib.sha256(b"").hexdigest())
    with pytest.raises(FileNotFoundError):
        file_digest(str(tmp_path / "gone"))
