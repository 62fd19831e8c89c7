"""Tests of pipeline.writers.flashrag: files that its reader, and ours, take back."""

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from pipeline import readers
from pipeline.engines.base import split_contents
from pipeline.writers import write_cache, write_questions

TEXT = st.text(alphabet=st.characters(exclude_categories=["Cs"]))
FILLED = TEXT.filter(lambda text: bool(text.strip()))
FIXTURE = settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
PASSAGE = {"passage_id": "a", "title": '"Heroes"', "text": "An album.", "score": 1.5}


def test_contexts_stand_under_their_question_with_id_contents_and_score(tmp_path: Path) -> None:
    path = tmp_path / "cache.json"
    write_cache(str(path), [("Who?", [PASSAGE, {**PASSAGE, "passage_id": "b", "score": None}])])
    contents = '""Heroes""\nAn album.'
    assert json.loads(path.read_text()) == {
        "Who?": [
            {"id": "a", "contents": contents, "score": 1.5},
            {"id": "b", "contents": contents, "score": None},
        ]
    }


def test_sentences_of_one_passage_are_entries_of_their_own_without_its_title(
    tmp_path: Path,
) -> None:
    path = str(tmp_path / "cache.json")
    names = ("a", "b", "a")
    pieces = [{**PASSAGE, "passage_id": name, "sentence": True} for name in names]
    write_cache(path, [("Who?", pieces)])
    (made,) = readers.candidates(path)
    assert [one["passage_id"] for one in made["candidates"]] == ["a#1", "b#1", "a#2"]
    assert {split_contents(one["contents"]) for one in made["candidates"]} == {("", "An album.")}


@FIXTURE
@given(
    contexts=st.dictionaries(
        FILLED,
        st.lists(
            st.fixed_dictionaries(
                {"title": TEXT, "text": FILLED, "score": st.none() | st.floats(-9, 9)}
            ),
            max_size=3,
        ),
        max_size=3,
    )
)
def test_any_contexts_come_back_equal(
    tmp_path: Path, contexts: dict[str, list[dict[str, Any]]]
) -> None:
    path = str(tmp_path / "cache.json")
    numbered = {
        q: [{"passage_id": f"p{i}", **p} for i, p in enumerate(ps)] for q, ps in contexts.items()
    }
    write_cache(path, numbered.items())
    found = {row["question"]: row["candidates"] for row in readers.candidates(path)}
    assert list(found) == list(contexts)
    for question, passages in numbered.items():
        for given_passage, read in zip(passages, found[question], strict=True):
            assert (read["passage_id"], read["score"]) == (
                given_passage["passage_id"],
                given_passage["score"],
            )
            title, text = split_contents(read["contents"])
            assert title == " ".join(given_passage["title"].split())
            assert text == given_passage["text"].strip()


def test_equal_questions_share_a_list_and_may_not_differ(tmp_path: Path) -> None:
    path = str(tmp_path / "cache.json")
    write_cache(path, [("Who?", [PASSAGE]), ("Who?", [PASSAGE])])
    assert len(list(readers.candidates(path))) == 1
    with pytest.raises(ValueError, match=r"'Who\?' stands twice, with different passages"):
        write_cache(path, [("Who?", [PASSAGE]), ("Who?", [])])


@FIXTURE
@given(
    rows=st.lists(
        st.fixed_dictionaries(
            {
                "question": FILLED,
                "golden_answers": st.lists(TEXT, max_size=3),
                "metadata": st.dictionaries(TEXT, st.integers() | TEXT, max_size=2),
            }
        ),
        max_size=4,
    ),
    as_json=st.booleans(),
)
def test_any_questions_come_back_equal(
    tmp_path: Path, rows: list[dict[str, Any]], as_json: bool
) -> None:
    path = str(tmp_path / "questions.jsonl")
    numbered = [{"question_id": f"q{i}", **row} for i, row in enumerate(rows)]
    stored = [
        {**row, "metadata": json.dumps(row["metadata"]) if as_json else row["metadata"]}
        for row in numbered
    ]
    write_questions(path, stored)
    assert list(readers.questions(path)) == numbered
