"""Tests of pipeline.prompts.render: the paper's prompts letter by letter (spec/igp.md)."""

from importlib.resources import files

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeline.config.answer import Task
from pipeline.core.replies import spoken
from pipeline.prompts import render

ANSWER_SYSTEM = (
    "You are given a question and a set of documents.\n"
    "Answer the question using only the information in the documents.\n"
    "Output only the answer."
)


def test_the_probe_without_evidence() -> None:
    assert render.probe("Who?", None, "literal") == "User: Who?\nAssistant:"
    assert render.probe("Who?", None, "chat") == [{"role": "user", "content": "Who?"}]


def test_the_probe_with_a_passage() -> None:
    passage = "Title\nText."
    literal = "User: Who?\nContext:\nTitle\nText.\nAssistant:"
    assert render.probe("Who?", passage, "literal") == literal
    assert render.probe("Who?", passage, "chat") == [
        {"role": "user", "content": "Who?\nContext:\nTitle\nText."}
    ]


def test_a_probe_with_an_empty_passage_is_not_the_one_without_evidence() -> None:
    assert render.probe("Who?", "", "literal") == "User: Who?\nContext:\n\nAssistant:"


def test_the_final_prompt_numbers_the_documents_from_one() -> None:
    user = "Documents:\n[DOC 1] Title\nText.\n[DOC 2] More.\n\nQuestion: Who?\nAnswer:"
    assert render.answer("Who?", ["Title\nText.", "More."], "chat") == [
        {"role": "system", "content": ANSWER_SYSTEM},
        {"role": "user", "content": user},
    ]
    assert (
        render.answer("Who?", ["Title\nText.", "More."], "literal") == f"{ANSWER_SYSTEM}\n\n{user}"
    )


def test_without_passages_the_document_block_is_empty() -> None:
    assert render.answer("Who?", [], "chat") == [
        {"role": "system", "content": ANSWER_SYSTEM},
        {"role": "user", "content": "Documents:\n\n\nQuestion: Who?\nAnswer:"},
    ]


def test_closed_book_does_not_mention_documents() -> None:
    assert render.closed_book("Who?", "chat") == [
        {"role": "system", "content": "Answer the question.\nOutput only the answer."},
        {"role": "user", "content": "Question: Who?\nAnswer:"},
    ]
    assert render.closed_book("Who?", "literal") == (
        "Answer the question.\nOutput only the answer.\n\nQuestion: Who?\nAnswer:"
    )


def test_a_question_is_scored_after_a_passage_or_after_none() -> None:
    assert render.qlm("Title\nText.") == (
        "Passage: Title\nText.\nPlease write a question based on this passage.\nQuestion:"
    )
    assert render.qlm(None) == "Please write a question.\nQuestion:"


def test_yes_or_no_is_asked_of_one_passage_which_comes_first() -> None:
    asked = (
        "Passage: Text {question}\nQuestion: Who?\n"
        "Does the passage answer the question? Answer Yes or No."
    )
    assert render.yes_no("Who?", "Text {question}", "literal") == f"{asked}\nAnswer:"
    assert render.yes_no("Who?", "Text {question}", "chat") == [{"role": "user", "content": asked}]


def test_a_listwise_prompt_numbers_the_passages_from_one_and_cuts_them() -> None:
    passages = ["Title {count}\none [7] two", "a b c d e"]
    literal = render.listwise("Who {x}?", passages, "literal", dropout=True, max_words=4)
    assert isinstance(literal, str)
    content = literal.removesuffix("\nIdentifiers:")
    assert content != literal
    lines = content.split("\n")
    assert lines[:5] == [
        "Below are 2 passages, each after its identifier in square brackets, and a question.",
        "",
        "[1] Title {count} one (7)",
        "[2] a b c d",
        "",
    ]
    assert lines[5] == "Question: Who {x}?"
    assert "If no passage helps, reply with [0] and nothing else." in lines[-1]
    chat = render.listwise("Who {x}?", passages, "chat", dropout=True, max_words=4)
    assert chat == [{"role": "user", "content": content}]


def test_a_full_order_is_asked_for_without_a_way_to_leave_passages_out() -> None:
    asked = render.listwise("Who?", ["a", "b"], "literal", dropout=False, max_words=9)
    assert "Order all 2 passages" in asked and "[0]" not in asked and "Leave out" not in asked


@pytest.mark.parametrize(
    ("task", "asked"),
    [("asqa", "every reading"), ("qampari", "separated by commas"), ("eli5", "paragraph")],
)
def test_a_task_asks_in_its_own_words_over_the_same_documents(task: Task, asked: str) -> None:
    short, own = (render.answer("Who?", ["Text."], "chat", of) for of in ("short_answer", task))
    assert own[1] == short[1] and own[0] != short[0]
    assert asked in str(own[0]) and "documents" in str(own[0])
    alone = render.closed_book("Who?", "chat", task)
    assert asked in str(alone[0]) and "documents" not in str(alone[0])
    assert alone[1] == render.closed_book("Who?", "chat")[1]
    prints = {render.fingerprint(names) for names in render.ANSWER_TEMPLATES.values()}
    assert len(prints) == len(render.ANSWER_TEMPLATES)


def test_sentences_are_numbered_and_each_task_over_them_has_words_of_its_own() -> None:
    sentences = ["One [1].", "Two {question}."]
    for task, words in (
        ("sentences", "Copy these sentences word for word"),
        ("numbers", "Reply with the numbers alone"),
        ("cut", "the number of the last sentence that is needed"),
    ):
        asked = render.clues("Who {x}?", sentences, "literal", task=task)  # type: ignore[arg-type]
        assert "\n\n[1] One (1).\n[2] Two {question}.\n\nQuestion: Who {x}?" in asked
        assert "Below are 2 sentences" in asked and words in asked and "[0]" in asked
        chat = render.clues("Who {x}?", sentences, "chat", task=task)  # type: ignore[arg-type]
        assert chat == [{"role": "user", "content": str(asked).removesuffix("\nReply:")}]


@pytest.mark.parametrize("opened", [c for c in map(chr, range(0x10000)) if spoken(c, {}) == "["])
def test_whatever_the_grammar_takes_for_a_number_in_brackets_stands_in_round_ones(
    opened: str,
) -> None:
    closed = [c for c in map(chr, range(0x10000)) if spoken(c, {}) == "]"]
    marks = [mark for end in closed for mark in (f"{opened}1{end}", f"{opened} 2\\{end}")]
    asked = str(render.clues("Who?", marks, "literal", task="cut"))
    lines = [line for line in asked.splitlines() if line.endswith(")")]
    assert [line[-3:] for line in lines] == ["(1)", "(2)"] * len(closed)


def test_a_passage_has_its_title_on_the_first_line_where_it_has_one() -> None:
    assert render.passage("Title", "Text.", "contents") == "Title\nText."
    assert render.passage("", "Text.", "contents") == "Text."
    assert render.passage("Title", "Text.", "text") == "Text."


@pytest.mark.parametrize("text", ["{question}", "{reference}", "{context}", "{0} {{x}} \\1 \\g<0>"])
def test_braces_and_backslashes_in_a_passage_or_question_survive(text: str) -> None:
    assert render.probe(text, text, "literal") == f"User: {text}\nContext:\n{text}\nAssistant:"
    messages = render.answer(text, [text], "chat")
    assert isinstance(messages, list)
    assert messages[1]["content"] == f"Documents:\n[DOC 1] {text}\n\nQuestion: {text}\nAnswer:"
    assert str(render.closed_book(text, "literal")).endswith(f"Question: {text}\nAnswer:")


@given(question=st.text(), passages=st.lists(st.text(), max_size=3))
def test_any_text_stands_in_the_prompts_as_it_is(question: str, passages: list[str]) -> None:
    for passage in passages:
        probe = render.probe(question, passage, "literal")
        assert probe == f"User: {question}\nContext:\n{passage}\nAssistant:"
    lines = "\n".join(f"[DOC {i}] {passage}" for i, passage in enumerate(passages, start=1))
    final = str(render.answer(question, passages, "literal"))
    assert final.endswith(f"Documents:\n{lines}\n\nQuestion: {question}\nAnswer:")


def test_no_template_ends_in_a_newline_and_every_file_is_known() -> None:
    known = {
        *render.PROBE_TEMPLATES,
        *(name for names in render.ANSWER_TEMPLATES.values() for name in names),
        *render.QLM_TEMPLATES,
        *render.YES_NO_TEMPLATES,
        *(name for names in render.LISTWISE_TEMPLATES.values() for name in names),
        *(name for names in render.CLUE_TEMPLATES.values() for name in names),
    }
    there = {
        entry.name.removesuffix(".txt")
        for entry in files("pipeline.prompts").iterdir()
        if entry.name.endswith(".txt")
    }
    assert there == known
    assert not any(render.template(name).endswith("\n") for name in known)


@pytest.mark.parametrize("name", render.PROBE_TEMPLATES)
def test_the_fingerprint_changes_with_the_text_of_any_of_its_templates(
    monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    original = render.template
    probe = render.fingerprint(render.PROBE_TEMPLATES)
    names = render.ANSWER_TEMPLATES["short_answer"]
    answer = render.fingerprint(names)
    monkeypatch.setattr(render, "template", lambda of: original(of) + " " * (of == name))
    assert render.fingerprint(render.PROBE_TEMPLATES) != probe
    assert render.fingerprint(names) == answer


def test_the_fingerprint_does_not_depend_on_the_order_of_the_names() -> None:
    names = render.ANSWER_TEMPLATES["short_answer"]
    assert render.fingerprint(names[::-1]) == render.fingerprint(names)
    assert render.fingerprint(names[1:]) != render.fingerprint(names)
