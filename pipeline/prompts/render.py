"""The prompts of the paper (its prompts A and B) and of the scorers, from the files beside this.

A prompt is either a raw text or a list of chat messages; turning it into token ids is the
tokenizer's part. Templates are filled in by plain replacement, so braces in a passage are safe.
"""

import hashlib
import json
import re
from collections.abc import Iterable, Sequence
from functools import cache
from importlib.resources import files
from typing import Literal, TypeAlias, get_args

from pipeline.config.answer import SHORT_ANSWER, Task

Message: TypeAlias = dict[str, str]
Prompt: TypeAlias = str | list[Message]
Template: TypeAlias = Literal["literal", "chat"]
PassageFormat: TypeAlias = Literal["contents", "text"]
ClueTask: TypeAlias = Literal["sentences", "numbers", "cut"]

PROBE_TEMPLATES = ("probe_literal", "probe_literal_context", "probe_chat", "probe_chat_context")
QLM_TEMPLATES = ("qlm", "qlm_passage")
YES_NO_TEMPLATES = ("yes_no_literal", "yes_no_chat")
LISTWISE_TEMPLATES = {
    kind: (f"listwise_{kind}", "listwise_literal") for kind in ("dropout", "order")
}
CLUE_TEMPLATES = {
    kind: (f"clues_{kind}", "clues_literal") for kind in ("sentences", "numbers", "cut")
}
_ANSWER_USERS = ("answer_user", "closed_book_user")
ANSWER_TEMPLATES: dict[Task, tuple[str, ...]] = {
    task: (f"answer{suffix}_system", f"closed_book{suffix}_system", *_ANSWER_USERS)
    for task in get_args(Task)
    for suffix in ["" if task == SHORT_ANSWER else f"_{task}"]
}
"""By task: what is asked for with and without documents, and the texts around both."""


_OPEN, _CLOSE = (
    "[\N{FULLWIDTH LEFT SQUARE BRACKET}\N{LEFT BLACK LENTICULAR BRACKET}"
    "\N{LEFT TORTOISE SHELL BRACKET}",
    "]\N{FULLWIDTH RIGHT SQUARE BRACKET}\N{RIGHT BLACK LENTICULAR BRACKET}"
    "\N{RIGHT TORTOISE SHELL BRACKET}",
)
_BRACKETED = re.compile(rf"[\{_OPEN}]\s*(\d+)\s*\\?[\{_CLOSE}]")
"""A number in brackets of any kind that core.replies.spoken takes for square ones."""


@cache
def template(name: str) -> str:
    """The text of prompts/<name>.txt."""
    return (files("pipeline.prompts") / f"{name}.txt").read_text(encoding="utf-8")


def fingerprint(names: Sequence[str]) -> str:
    """Hash of the named templates' texts: part of every fingerprint that uses them."""
    texts = {name: template(name) for name in names}
    return hashlib.sha256(json.dumps(texts, sort_keys=True).encode()).hexdigest()[:16]


def passage(title: str, text: str, passage_format: PassageFormat) -> str:
    """A passage as models read it: title on the first line and the text, or the text alone."""
    return f"{title}\n{text}" if passage_format == "contents" and title else text


def probe(question: str, context: str | None, kind: Template) -> Prompt:
    """Prompt B: the question alone (context None), or the question and one passage."""
    name = f"probe_{kind}" if context is None else f"probe_{kind}_context"
    filled = _fill(template(name), question=question, context=context or "")
    return filled if kind == "literal" else [{"role": "user", "content": filled}]


def reference(passages: Sequence[str]) -> str:
    """The passages as "[DOC i]" lines, from 1."""
    return "\n".join(f"[DOC {rank}] {text}" for rank, text in enumerate(passages, start=1))


def answer(
    question: str, passages: Sequence[str], kind: Template, task: Task = SHORT_ANSWER
) -> Prompt:
    """Prompt A: the question over "[DOC i]" lines; without passages, an empty document block.

    The ALCE tasks have the same frame, and our own words for what is asked.
    """
    user = _fill(template("answer_user"), question=question, reference=reference(passages))
    return _with_system(template(ANSWER_TEMPLATES[task][0]), user, kind)


def closed_book(question: str, kind: Template, task: Task = SHORT_ANSWER) -> Prompt:
    """The question alone, without any mention of documents."""
    user = _fill(template("closed_book_user"), question=question)
    return _with_system(template(ANSWER_TEMPLATES[task][1]), user, kind)


def qlm(context: str | None) -> str:
    """The raw text after which a question is scored, over one passage or (None) over none."""
    name = "qlm" if context is None else "qlm_passage"
    return _fill(template(name), passage=context or "")


def yes_no(question: str, context: str, kind: Template) -> Prompt:
    """Whether one passage answers the question, to be said in one word; the passage first."""
    filled = _fill(template(f"yes_no_{kind}"), question=question, passage=context)
    return filled if kind == "literal" else [{"role": "user", "content": filled}]


def listwise(
    question: str, passages: Sequence[str], kind: Template, *, dropout: bool, max_words: int
) -> Prompt:
    """The passages as "[1] text" lines of at most `max_words` words, and the question, to be
    answered by identifiers: of those that help, or without `dropout` of all in order.

    The words are ours: the prompt of AdaRankLLM (its figure 2) is not public. A number in square
    brackets within a passage stands in round ones, so that it is no identifier.
    """
    filled = _fill(
        template("listwise_dropout" if dropout else "listwise_order"),
        count=str(len(passages)),
        passages=_numbered(" ".join(text.split()[:max_words]) for text in passages),
        question=question,
    )
    if kind == "chat":
        return [{"role": "user", "content": filled}]
    return _fill(template("listwise_literal"), prompt=filled)


def clues(question: str, sentences: Sequence[str], kind: Template, *, task: ClueTask) -> Prompt:
    """The sentences as "[1] text" lines and the question: to name those that may hold the answer,
    by their texts or numbers, or (cut) to say how many of them suffice.

    The words are ours. A number in square brackets within a sentence stands in round ones.
    """
    filled = _fill(
        template(f"clues_{task}"),
        count=str(len(sentences)),
        sentences=_numbered(sentences),
        question=question,
    )
    if kind == "chat":
        return [{"role": "user", "content": filled}]
    return _fill(template("clues_literal"), prompt=filled)


def _numbered(texts: Iterable[str]) -> str:
    """A line a text after its number from 1, which no number within a text looks like."""
    lines = (_BRACKETED.sub(r"(\1)", text) for text in texts)
    return "\n".join(f"[{number}] {line}" for number, line in enumerate(lines, start=1))


def _with_system(system: str, user: str, kind: Template) -> Prompt:
    if kind == "literal":
        return f"{system}\n\n{user}"
    return [{"role": "system", "content": system}, {"role": "user", "content": user}]


def _fill(text: str, **values: str) -> str:
    """Every "{name}" of the template replaced at once, so that values are never templates."""
    literals, names = _pieces(text)
    inner = [text for i, name in enumerate(names) for text in (literals[i], values[name])]
    return "".join([*inner, literals[-1]])


@cache
def _pieces(text: str) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """What stands around the "{name}" of a template, and the names."""
    pieces = re.split(r"\{(\w+)\}", text)
    return tuple(pieces[::2]), tuple(pieces[1::2])
