"""The index job as a command line."""

import json
from pathlib import Path

import pytest

from jobs import build_index
from pipeline import driver
from pipeline.config import BuildIndexConfig
from tests.jobs.runs import REPOSITORY

DEMO = REPOSITORY / "conf" / "build_index" / "demo.yaml"


def run(arguments: list[str]) -> int:
    return driver.main("", BuildIndexConfig, build_index.run, [str(DEMO), *arguments])


@pytest.mark.engine
def test_the_demo_index_is_built_once(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    corpus = REPOSITORY / "examples" / "corpus.jsonl"
    arguments = [f"corpus={corpus}", f"index={tmp_path / 'index'}"]
    for _ in range(2):
        assert run(arguments) == driver.DONE
        assert "156 passages" in capsys.readouterr().out
    assert json.loads((tmp_path / "index" / "winnow.json").read_text())["passages"] == 156


def test_a_missing_corpus_is_a_usage_error(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = ["corpus=/nowhere/corpus.jsonl", f"index={tmp_path / 'index'}"]
    assert run(arguments) == driver.USAGE
    assert "/nowhere/corpus.jsonl: no such file" in capsys.readouterr().err
