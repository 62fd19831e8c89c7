"""Synthetic questions with given candidates, written as they are made: DPR's JSON Lines.

Words are syllables strung together, so the text belongs to nobody; the same seed, the same bytes.
A third of the passages hold the golden answer.
"""

import json
import random
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

_VOCABULARY = 20_000
_ONSETS, _VOWELS = "bcdfghklmnprstvz", "aeiou"


@dataclass(frozen=True)
class Shape:
    """An input: questions from number `first`, candidates of each, words of a passage."""

    rows: int
    candidates: int = 5
    words: int = 60
    first: int = 0


def write(path: Path, shape: Shape, *, seed: int = 7) -> int:
    """The bytes written; what a question holds depends on the seed and its number alone."""
    words = _vocabulary(seed)
    with path.open("w", encoding="utf-8") as file:
        for number in range(shape.first, shape.first + shape.rows):
            entry = _question(number, shape, words, random.Random(f"{seed}:{number}"))
            file.write(json.dumps(entry) + "\n")
    return path.stat().st_size


def _vocabulary(seed: int) -> list[str]:
    chance = random.Random(seed)
    return ["".join(_syllables(chance)) for _ in range(_VOCABULARY)]


def _syllables(chance: random.Random) -> Iterator[str]:
    for _ in range(chance.randint(1, 4)):
        yield chance.choice(_ONSETS) + chance.choice(_VOWELS)


def _question(number: int, shape: Shape, words: list[str], chance: random.Random) -> dict[str, Any]:
    gold = " ".join(chance.choices(words, k=2))
    passages = [
        _passage(number, rank, shape, words, gold, chance) for rank in range(shape.candidates)
    ]
    question = f"who {' '.join(chance.choices(words, k=8))}?"
    return {"id": f"q{number}", "question": question, "answers": [gold], "ctxs": passages}


def _passage(
    number: int, rank: int, shape: Shape, words: list[str], gold: str, chance: random.Random
) -> dict[str, Any]:
    text = chance.choices(words, k=shape.words)
    if chance.random() < 1 / 3:
        text.insert(shape.words // 2, gold)
    return {
        "id": f"q{number}-{rank}",
        "title": " ".join(chance.choices(words, k=3)),
        "text": " ".join(text) + ".",
        "score": round(shape.candidates - rank - chance.random(), 4),
    }
