"""A tiny example of each ALCE format: our own text, two or three questions each."""

import json
from pathlib import Path
from typing import Any

DOCS: list[dict[str, Any]] = [
    {"title": "Halden Lighthouse", "text": "Halden Lighthouse was lit in 1912 by Oda Brill."},
    {"title": "Orrin", "text": "Mount Orrin feeds the rivers Sel and Tarn."},
    {"title": "Ferry", "text": "A ferry crosses the sound twice a day."},
]
ASQA: list[dict[str, Any]] = [
    {
        "sample_id": "a0",
        "question": "When was the lighthouse opened?",
        "qa_pairs": [
            {"question": "When was it lit?", "short_answers": ["1912"], "context": "none"},
            {"question": "Who lit it?", "short_answers": ["Oda Brill", "Brill"]},
        ],
        "answer": "It was lit in 1912 by Oda Brill.",
        "docs": DOCS,
    },
    {"sample_id": "a1", "question": "Which ferry?", "qa_pairs": None, "docs": DOCS[1:]},
]
QAMPARI: list[dict[str, Any]] = [
    {
        "id": "q0",
        "question": "Which rivers does Mount Orrin feed?",
        "answers": [["Sel", "River Sel"], ["Tarn"]],
        "docs": DOCS,
    },
    {"id": "q1", "question": "Who lit what?", "answers": [["Brill"]], "docs": DOCS[:1]},
]
ELI5: list[dict[str, Any]] = [
    {
        "question": "Why is there a ferry?",
        "answer": "Because a sound has no bridge.",
        "claims": ["a ferry crosses the sound", "Oda Brill feeds the rivers"],
        "docs": DOCS,
    },
    {"question": "Why is a lighthouse lit?", "claims": ["it was lit"], "docs": DOCS},
    {"question": "Why not?", "claims": [], "docs": DOCS},
]
ITEMS: dict[str, list[dict[str, Any]]] = {"asqa": ASQA, "qampari": QAMPARI, "eli5": ELI5}


def write(folder: Path, task: str) -> str:
    """The file of a task, one JSON array as ALCE has it."""
    path = folder / f"{task}.json"
    path.write_text(json.dumps(ITEMS[task], indent=1), encoding="utf-8")
    return str(path)
