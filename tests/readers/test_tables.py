"""Tests of pipeline.readers.tables: Parquet in our own schema, and tables like it."""

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from pipeline import readers, schema
from pipeline.readers import BadLine
from tests.readers.files import refusal
from tests.readers.test_lists import entry

ROWS: list[dict[str, Any]] = [
    {
        "question_id": f"q{i}",
        "question": f"Question {i}?",
        "golden_answers": ["so"],
        "metadata": '{"split": "dev"}',
        "judgements": [{"passage_id": "a", "relevance": 1, "label": None, "answer": None}],
        "candidates": [
            {"passage_id": "a", "title": "T", "text": "x", "score": 1.5},
            {"passage_id": "b", "title": "", "text": "y", "score": None},
        ],
    }
    for i in range(3)
]
COLUMNS = pa.schema([*schema.SOURCE, schema.JUDGEMENTS, schema.CANDIDATES])


def store(path: Path, rows: list[dict[str, Any]], columns: pa.Schema | None = None) -> str:
    """Writes rows as Parquet; the path."""
    path.parent.mkdir(exist_ok=True)
    pq.write_table(pa.Table.from_pylist(rows, schema=columns), path)
    return str(path)


def questions(path: str) -> list[dict[str, Any]]:
    """The rows of a table's questions."""
    return list(readers.questions(path, format="parquet"))


def test_a_folder_of_parts_is_read_in_the_order_of_their_names(tmp_path: Path) -> None:
    store(tmp_path / "contexts" / "part-000001.parquet", ROWS[2:], COLUMNS)
    store(tmp_path / "contexts" / "part-000000.parquet", ROWS[:2], COLUMNS)
    (tmp_path / "contexts" / "note.txt").write_text("not a part")
    folder = str(tmp_path / "contexts")
    names = [f"{folder}/part-00000{i}.parquet" for i in (0, 1)]
    assert readers.question_files(folder, "parquet") == names
    assert readers.candidate_files(folder) == names
    found = questions(folder)
    assert [row["question_id"] for row in found] == ["q0", "q1", "q2"]
    assert found[0] == {
        "question_id": "q0",
        "question": "Question 0?",
        "golden_answers": ["so"],
        "metadata": {"split": "dev"},
        "judgements": ROWS[0]["judgements"],
    }
    assert list(readers.candidates(folder))[2] == {
        "question_id": "q2",
        "candidates": [entry("a", score=1.5, contents="T\nx"), entry("b", contents="\ny")],
    }


def test_a_question_is_enough_and_has_its_number_for_an_id(tmp_path: Path) -> None:
    path = store(tmp_path / "q.parquet", [{"question": "Who?"}, {"question": "Why?", "extra": 1}])
    assert questions(path) == [
        {
            "question_id": str(i),
            "question": question,
            "golden_answers": [],
            "metadata": {},
            "judgements": None,
        }
        for i, question in enumerate(["Who?", "Why?"])
    ]


def test_other_names_of_ids_contents_and_metadata_are_understood(tmp_path: Path) -> None:
    rows = [
        {
            "id": 7,
            "question": "Who?",
            "metadata": {"split": "dev"},
            "candidates": [{"id": 1, "contents": "T\nx"}],
        }
    ]
    path = store(tmp_path / "q.parquet", rows)
    (question,) = questions(path)
    assert (question["question_id"], question["metadata"]) == ("7", {"split": "dev"})
    (row,) = readers.candidates(path)
    assert row == {"question_id": "7", "candidates": [entry("1", contents="T\nx")]}


def test_a_corpus_may_be_a_table(tmp_path: Path) -> None:
    plain = store(tmp_path / "a.parquet", [{"id": "1", "contents": "T\nx"}])
    titled = store(tmp_path / "b.parquet", [{"id": "1", "title": "T", "text": "x"}])
    assert (
        list(readers.passages(plain))
        == list(readers.passages(titled))
        == [{"passage_id": "1", "contents": "T\nx"}]
    )
    twice = store(tmp_path / "c.parquet", [{"id": "1", "contents": "x"}] * 2)
    assert refusal(readers.passages, twice) == ":2: entry 2: id '1' stands already in entry 1"


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"question": None}, "question must be a text that is not empty, got None"),
        ({"question": " "}, "question must be a text that is not empty, got ' '"),
        ({"question_id": "q0"}, "id 'q0' stands already in entry 1"),
        ({"golden_answers": [None]}, "golden_answers must be a list of texts, got [None]"),
        ({"metadata": "{"}, "not JSON"),
    ],
)
def test_a_bad_row_is_named_by_part_and_row(
    tmp_path: Path, change: dict[str, Any], reason: str
) -> None:
    store(tmp_path / "t" / "a.parquet", ROWS[:1], COLUMNS)
    part = store(tmp_path / "t" / "b.parquet", [ROWS[1], {**ROWS[2], **change}], COLUMNS)
    folder = str(tmp_path / "t")
    message = refusal(questions, folder)
    assert message.startswith("/b.parquet:2: entry 3: ") and reason in message
    bad: list[BadLine] = []
    assert len(list(readers.questions(folder, bad.append, format="parquet"))) == 2
    assert (bad[0].path, bad[0].place) == (part, "entry 3")


def test_bad_candidates_are_named_by_row(tmp_path: Path) -> None:
    blank = {**ROWS[1], "candidates": [{"passage_id": "a", "title": "T", "text": " "}]}
    path = store(tmp_path / "t.parquet", [ROWS[0], blank], COLUMNS)
    assert refusal(readers.candidates, path).startswith(":2: entry 2: text must be a text")


def test_golden_answers_that_are_no_list_are_refused(tmp_path: Path) -> None:
    path = store(tmp_path / "t.parquet", [{"question": "Who?", "golden_answers": "Ada"}])
    assert refusal(questions, path).startswith(":1: entry 1: golden_answers must be a list")


def test_what_is_no_such_table_is_refused_by_name(tmp_path: Path) -> None:
    assert refusal(questions, str(tmp_path / "gone.parquet")) == ": no such file"
    (tmp_path / "text.parquet").write_text("no table")
    assert "cannot be read as Parquet" in refusal(questions, str(tmp_path / "text.parquet"))
    (tmp_path / "empty").mkdir()
    assert refusal(questions, str(tmp_path / "empty")) == ": holds no file that ends in .parquet"
    path = store(tmp_path / "t.parquet", [{"id": 1, "query": "Who?"}])
    assert refusal(questions, path) == ": has no column 'question', only id, query"
    assert refusal(readers.candidates, path) == ": has no column 'candidates', only id, query"
