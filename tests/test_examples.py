"""The example data set keeps the promises that its README makes."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

EXAMPLES = Path(__file__).resolve().parent.parent / "examples"
UNANSWERABLE = {"ex-q02", "ex-q14"}
CONTRADICTED = "ex-q19"
RIGHT, WRONG = "ex-p058", "ex-p059"


def read_jsonl(name: str) -> list[dict[str, Any]]:
    """The rows of one JSON Lines file of the example set."""
    with (EXAMPLES / name).open(encoding="utf-8") as lines:
        return [json.loads(line) for line in lines]


def read_qrels() -> list[tuple[str, str, str]]:
    """The rows of the qrels below the header, which is checked here."""
    header, *rows = (EXAMPLES / "qrels.tsv").read_text(encoding="utf-8").splitlines()
    assert header == "query-id\tcorpus-id\tscore"
    return [(query, passage, score) for query, passage, score in (row.split("\t") for row in rows)]


def passages() -> dict[str, str]:
    """The contents of each passage by its id."""
    return {row["id"]: row["contents"] for row in read_jsonl("corpus.jsonl")}


def relevant() -> dict[str, set[str]]:
    """The ids of the passages that answer each question."""
    found: dict[str, set[str]] = {}
    for query, passage, _ in read_qrels():
        found.setdefault(query, set()).add(passage)
    return found


def holds(contents: str, answers: list[str]) -> bool:
    """Whether one of the answers stands in the contents, whatever the case of its letters."""
    return any(answer.lower() in contents.lower() for answer in answers)


def answerable_questions() -> Iterator[dict[str, Any]]:
    """The questions that a passage of the corpus answers."""
    for question in read_jsonl("questions.jsonl"):
        if question["metadata"].get("answerable", True):
            yield question


def test_the_counts_are_those_of_the_readme() -> None:
    assert len(read_jsonl("corpus.jsonl")) == 156
    assert len(read_jsonl("questions.jsonl")) == 50
    assert len(read_qrels()) == 68


def test_ids_are_unique() -> None:
    for name in ("corpus.jsonl", "questions.jsonl"):
        ids = [row["id"] for row in read_jsonl(name)]
        assert len(ids) == len(set(ids))


def test_every_passage_has_a_title_line_and_a_text_of_fitting_length() -> None:
    for identifier, contents in passages().items():
        title, text = contents.split("\n")
        assert title.strip() == title != "", identifier
        assert 30 <= len(text.split()) <= 120, identifier


def test_no_two_passages_have_the_same_text() -> None:
    texts = [contents.split("\n")[1] for contents in passages().values()]
    assert len(texts) == len(set(texts))


def test_golden_answers_are_lists_of_strings_with_at_least_one() -> None:
    for question in read_jsonl("questions.jsonl"):
        answers = question["golden_answers"]
        assert isinstance(answers, list) and answers, question["id"]
        assert all(isinstance(answer, str) and answer.strip() for answer in answers), question["id"]


def test_every_question_has_a_topic_and_the_demo_split() -> None:
    for question in read_jsonl("questions.jsonl"):
        assert question["question"].endswith("?"), question["id"]
        assert question["metadata"]["topic"], question["id"]
        assert question["metadata"]["split"] == "demo", question["id"]


def test_qrels_name_questions_and_passages_that_exist_and_only_once() -> None:
    rows = read_qrels()
    questions = {question["id"] for question in read_jsonl("questions.jsonl")}
    assert {query for query, _, _ in rows} <= questions
    assert {passage for _, passage, _ in rows} <= set(passages())
    assert {score for _, _, score in rows} == {"1"}
    assert len(rows) == len(set(rows))


def test_every_relevant_passage_of_an_answerable_question_holds_an_answer() -> None:
    corpus, qrels = passages(), relevant()
    for question in answerable_questions():
        found = qrels.get(question["id"], set())
        assert found, question["id"]
        for passage in found:
            assert holds(corpus[passage], question["golden_answers"]), (question["id"], passage)


def test_every_answer_string_stands_as_written_in_a_relevant_passage() -> None:
    corpus, qrels = passages(), relevant()
    for question in answerable_questions():
        for answer in question["golden_answers"]:
            texts = [corpus[passage] for passage in qrels[question["id"]]]
            assert any(answer in text for text in texts), (question["id"], answer)


def test_no_passage_holds_the_answer_to_an_unanswerable_question() -> None:
    corpus, qrels = passages(), relevant()
    rows = [q for q in read_jsonl("questions.jsonl") if q["metadata"].get("answerable") is False]
    assert {question["id"] for question in rows} == UNANSWERABLE
    for question in rows:
        assert question["id"] not in qrels
        assert not any(holds(text, question["golden_answers"]) for text in corpus.values())


def test_only_the_right_one_of_the_contradicting_passages_holds_the_answer() -> None:
    corpus = passages()
    rows = [q for q in read_jsonl("questions.jsonl") if q["metadata"].get("contradicted") is True]
    assert [question["id"] for question in rows] == [CONTRADICTED]
    assert {RIGHT, WRONG} <= set(corpus)
    assert holds(corpus[RIGHT], rows[0]["golden_answers"])
    assert not holds(corpus[WRONG], rows[0]["golden_answers"])
    assert relevant()[CONTRADICTED] == {RIGHT}
