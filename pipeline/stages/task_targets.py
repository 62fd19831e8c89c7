"""What a row of an ALCE task is measured by, read from its metadata.

The targets stay where the readers put them: any input whose metadata holds them will do, such as a
finished run's contexts.
"""

import hashlib
import json
from collections.abc import Callable, Mapping, Sequence

from pipeline.config.answer import Task
from pipeline.readers import alce
from pipeline.readers.fields import Value

READERS: Mapping[Task, Callable[[Value], list[list[str]]]] = {
    "asqa": alce.readings,
    "qampari": alce.answer_sets,
}


def groups(metadata: str, task: Task) -> list[list[str]]:
    """ASQA's readings with their short answers, or QAMPARI's answers with their aliases; none where
    the item has none. ValueError where they are no such lists."""
    return READERS[task](json.loads(metadata))


def claims(metadata: str) -> list[str]:
    """ELI5's claims; none where the item has none. ValueError where they are no texts."""
    return alce.claims(json.loads(metadata))


def key_of(answer: str, wanted: Sequence[str]) -> str:
    """Of a cleaned answer and the claims that it is held to: equal keys, equal verdicts."""
    return hashlib.sha256(json.dumps([answer, *wanted]).encode()).hexdigest()[:24]
