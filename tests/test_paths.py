"""Tests of pipeline.paths: local names, whatever their letters, and URIs."""

import os
from pathlib import Path

import pyarrow.fs as pafs
import pytest

from pipeline.paths import absolute, locate


def test_a_relative_path_becomes_absolute(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert absolute("out/../q.jsonl") == f"{tmp_path}/q.jsonl"


def test_a_tilde_is_the_home_folder() -> None:
    assert absolute("~/q.jsonl") == os.path.join(os.path.expanduser("~"), "q.jsonl")


@pytest.mark.parametrize("uri", ["s3://bucket/a/../b", "hdfs://host:8020/x", "file:///tmp/x"])
def test_a_uri_stays_as_it_is(uri: str) -> None:
    assert absolute(uri) == uri


@pytest.mark.parametrize("name", ["plain", "a b", "50%", "100%20", "what?", "no#1", "café", "a:b"])
def test_a_local_name_is_taken_letter_by_letter(tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_bytes(b"here")
    filesystem, found = locate(str(tmp_path / name))
    with filesystem.open_input_file(found) as file:
        assert file.read() == b"here"


def test_a_file_uri_is_the_local_file_system() -> None:
    filesystem, name = locate("file:///tmp/x/")
    assert isinstance(filesystem, pafs.LocalFileSystem)
    assert name == "/tmp/x"


def test_a_uri_of_an_unknown_scheme_is_refused_by_name() -> None:
    with pytest.raises(ValueError, match="nosuch://bucket"):
        locate("nosuch://bucket/x")
