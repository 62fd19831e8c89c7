"""Questions with scripted uncertainties through the transform of pipeline.stages.probe."""

import asyncio
from collections.abc import Sequence
from typing import Any

from pipeline import schema
from pipeline.config import GeneratorConfig, ProbeConfig
from pipeline.engines.base import Generator
from pipeline.engines.fake import FakeGenerator
from pipeline.stages.probe import Probe
from tests.stages.tables import candidate, table

NORTH, SOUTH = candidate("p-north", "north", title="Title"), candidate("p-south", "south")
# NU(q) = (3/4 + 1/4) / 2 = 1/2, NU(q | north) = 1/4, NU(q | south) = 1: all exact in float32.
U = {"Assistant:": [0.75, 0.25], "north": [0.25], "south": [1.0, 1.0, 1.0]}


def cfg(**settings: Any) -> ProbeConfig:
    """Literal prompts unless the test says otherwise."""
    return ProbeConfig(**({"template": "literal", "top_k": 8, "max_tokens": 4} | settings))


def row(
    *candidates: dict[str, Any], question: str = "Which wind?", question_id: str = "q"
) -> dict[str, Any]:
    """A question with its candidates."""
    return {"question_id": question_id, "question": question, "candidates": list(candidates)}


def run(
    rows: Sequence[dict[str, Any]], generator: Generator, **settings: Any
) -> list[dict[str, Any]]:
    """The rows after the transform."""
    block = table(rows, ["question_id", "question", "candidates"])
    made = asyncio.run(Probe(cfg(**settings), generator)(block))
    assert made.schema.field("probes").equals(schema.PROBES)
    assert made.schema.field("gains").equals(schema.GAINS)
    found = made.to_pylist()
    assert isinstance(found, list)
    return found


def fake(*, trace: bool = False) -> FakeGenerator:
    """The deterministic stand-in with a window large enough."""
    return FakeGenerator(GeneratorConfig(engine="fake", model="m"), cfg(trace=trace, max_tokens=8))
