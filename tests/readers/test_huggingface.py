"""Tests of pipeline.readers.huggingface, with a data set in a local folder: `datasets` takes a
folder for a name of the hub where one is there."""

import datetime
import json
import sys
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from pipeline import readers
from pipeline.readers import huggingface
from tests.readers.files import refusal

LINES = [
    '{"id": "a", "question": "Who?", "golden_answers": ["Ada"]}',
    '{"id": "b", "question": "Why?"}',
]


@pytest.fixture
def hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of a data set called org/log, in the current folder."""
    pytest.importorskip("datasets", reason="NOT CHECKED: the optional package datasets is absent")
    import datasets.config

    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", tmp_path / "cache")
    monkeypatch.chdir(tmp_path)
    folder = tmp_path / "org" / "log"
    folder.mkdir(parents=True)
    (folder / "test.jsonl").write_text("\n".join(LINES) + "\n", encoding="utf-8")
    return folder


def questions(path: str) -> list[dict[str, object]]:
    """The rows of a data set."""
    return list(readers.questions(path, format="huggingface"))


@pytest.mark.usefixtures("hub")
def test_a_data_set_is_read_by_name_and_split() -> None:
    blank: dict[str, object] = {"metadata": {}, "judgements": None}
    assert questions("hf://org/log/test") == [
        {"question_id": "a", "question": "Who?", "golden_answers": ["Ada"], **blank},
        {"question_id": "b", "question": "Why?", "golden_answers": [], **blank},
    ]


def test_its_digest_is_that_of_its_rows(hub: Path) -> None:
    before = huggingface.digest("hf://org/log/test")
    assert huggingface.digest("hf://org/log/test") == before
    (hub / "test.jsonl").write_text(LINES[0] + "\n", encoding="utf-8")
    assert huggingface.digest("hf://org/log/test") != before


def test_the_digest_is_of_the_columns_that_are_read(hub: Path) -> None:
    name = "hf://org/log/test"
    before = huggingface.digest(name)
    seen = [json.loads(line) | {"picture": f"at {place}"} for place, line in enumerate(LINES)]
    (hub / "test.jsonl").write_text("\n".join(map(json.dumps, seen)) + "\n", encoding="utf-8")
    assert huggingface.digest(name) == before
    assert all("picture" not in row for row in huggingface.rows(name))


def test_a_value_that_json_cannot_hold_is_refused_with_its_row(hub: Path) -> None:
    (hub / "test.jsonl").unlink()
    asked = datetime.datetime(2024, 3, 1, 12)
    table = pa.table({"question": ["Who?"], "metadata": [{"asked": asked}]})
    pq.write_table(table, hub / "test.parquet")
    message = refusal(huggingface.digest, "hf://org/log/test")
    assert message == ":1: entry 1: Object of type datetime is not JSON serializable"


def test_a_data_set_without_questions_is_refused_with_its_columns(hub: Path) -> None:
    (hub / "test.jsonl").write_text('{"id": "a", "query": "Who?"}\n', encoding="utf-8")
    expected = ": has no column 'question', only id, query"
    assert refusal(questions, "hf://org/log/test") == expected


def test_a_bad_row_is_named(hub: Path) -> None:
    (hub / "test.jsonl").write_text(LINES[0] + '\n{"id": "b", "question": ""}\n', encoding="utf-8")
    assert refusal(questions, "hf://org/log/test").startswith(":2: entry 2: question must be")


@pytest.mark.usefixtures("hub")
def test_what_the_hub_does_not_have_is_refused_by_name() -> None:
    assert ": cannot be loaded: " in refusal(questions, "hf://org/log/train")
    assert ": cannot be loaded: " in refusal(questions, "hf://org/gone/test")


@pytest.mark.parametrize("path", ["hf://log", "hf://org/log", "hf://a/b/c/d/e"])
def test_a_name_without_its_parts_is_refused(path: str) -> None:
    expected = ": expected hf://organisation/name[/configuration]/split"
    assert refusal(questions, path) == expected


def test_without_the_package_the_way_to_install_it_is_named(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(sys.modules, "datasets", None)
    message = refusal(questions, "hf://org/log/test")
    assert message == ": needs the package datasets: pip install 'winnow-rag[huggingface]'"
