"""FlashRAG files: questions {id, question, golden_answers, metadata} as JSON Lines, and contexts
as the retrieval cache {question: [{id, contents, score}]}."""

import json
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from pipeline.readers.fields import joined
from pipeline.writers.text import write_lines, write_text

Row = Mapping[str, Any]


def write_questions(path: str, rows: Iterable[Row]) -> None:
    """Writes the questions of finished rows, or of any with the columns of the source."""
    write_lines(path, map(_question, rows))


def write_cache(path: str, contexts: Iterable[tuple[str, Sequence[Row]]]) -> None:
    """Writes (question, passages {passage_id, title, text, score, sentence}), in order.

    A `sentence` of a passage stands without the title, as prompts show it, under the passage's id
    and its number among those of that passage, from 1: "p#1".
    FlashRAG looks a question up by its text, so equal questions share one list; ValueError where
    theirs differ.
    """
    cache: dict[str, list[dict[str, Any]]] = {}
    for question, passages in contexts:
        made = list(_passages(passages))
        if cache.setdefault(question, made) != made:
            raise ValueError(f"question {question!r} stands twice, with different passages")
    members = (f"{_json(question)}: {_json(passages)}" for question, passages in cache.items())
    write_text(path, "{\n" + ",\n".join(members) + "\n}\n")


def _question(row: Row) -> dict[str, Any]:
    metadata = row["metadata"]
    return {
        "id": row["question_id"],
        "question": row["question"],
        "golden_answers": list(row["golden_answers"]),
        "metadata": json.loads(metadata) if isinstance(metadata, str) else metadata,
    }


def _passages(passages: Sequence[Row]) -> Iterator[dict[str, Any]]:
    shown: Counter[str] = Counter()
    for passage in passages:
        name, title = passage["passage_id"], passage["title"]
        if passage.get("sentence"):
            shown[name] += 1
            name, title = f"{name}#{shown[name]}", ""
        contents = joined(title, passage["text"])
        yield {"id": name, "contents": contents, "score": passage.get("score")}


def _json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, allow_nan=False)
