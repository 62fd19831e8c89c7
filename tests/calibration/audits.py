"""What tests of the audit share: a finished run, probed by the fake, and engines that waver."""

import asyncio
import json
import math
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from pipeline import schema
from pipeline.config import GeneratorConfig, ProbeConfig, SelectionConfig
from pipeline.engines import models
from pipeline.engines.base import EngineDead, Refusal, Rollout
from pipeline.engines.fake import FakeGenerator
from pipeline.stages import arms, probe
from tests.stages.tables import candidate, table

N = 3
"""Candidates a question."""
GENERATOR = GeneratorConfig(engine="fake", model="fake")
PROBE = ProbeConfig(template="chat", top_k=8, max_tokens=6)
SELECTION = SelectionConfig(threshold=0.0, top_m=2, empty_context="top1")
Row = dict[str, Any]


def questions(count: int) -> list[Row]:
    """Rows before the probe, no two alike."""
    return [
        {
            "question_id": f"q{i}",
            "question": f"Where does river {i} rise ?",
            "candidates": [candidate(f"p{i}-{j}", f"hill {i} {j} " * (j + 1)) for j in range(N)],
        }
        for i in range(count)
    ]


def write_run(
    folder: Path, rows: Sequence[Row] | None = None, *, selection: SelectionConfig = SELECTION
) -> Path:
    """A finished run of two parts over six questions, or over the rows given."""
    block = table(questions(6) if rows is None else rows, ["question_id", "question", "candidates"])
    made = asyncio.run(probe.Probe(PROBE, FakeGenerator(GENERATOR, PROBE))(block))
    assert made["error"].null_count == len(made)
    (folder / "contexts").mkdir(parents=True)
    write_rows(folder, made.drop_columns(["error"]))
    stage = probe.stage(PROBE, models.describe(GENERATOR, needs_chat=True))
    manifest = {
        "config": {"generator": GENERATOR.plain(), "probe": PROBE.plain()},
        "arms": [arm.plain() for arm in arms.main_arms(selection)],
        "stages": [{"stage": "probe", "depends_on": dict(stage.depends_on)}],
    }
    (folder / "manifest.json").write_text(json.dumps(manifest))
    (folder / "_SUCCESS").touch()
    return folder


def write_rows(folder: Path, rows: pa.Table) -> None:
    """The finished rows, in two parts."""
    half = len(rows) // 2
    pq.write_table(rows[:half], folder / "contexts" / "part-000000.parquet")
    pq.write_table(rows[half:], folder / "contexts" / "part-000001.parquet")


def change_rows(folder: Path, change: Callable[[Row], None]) -> None:
    """Rewrites every row by a function that alters it in place."""
    parts = [pq.read_table(path) for path in sorted((folder / "contexts").iterdir())]
    rows = pa.concat_tables(parts)
    changed = rows.to_pylist()
    for row in changed:
        change(row)
    write_rows(folder, pa.Table.from_pylist(changed, schema=rows.schema))


def change_manifest(folder: Path, change: Callable[[dict[str, Any]], None]) -> None:
    """Rewrites the manifest by a function that alters it in place."""
    path = folder / "manifest.json"
    manifest = json.loads(path.read_text())
    change(manifest)
    path.write_text(json.dumps(manifest))


def early_stopped(folder: Path, flags: Mapping[str, Sequence[bool]]) -> None:
    """Ends rollouts of the run early, by question and position: they have no NU and no gain."""
    parts = [pq.read_table(path) for path in sorted((folder / "contexts").iterdir())]
    rows = pa.concat_tables(parts)
    fields = pa.schema([*rows.schema, schema.EARLY_STOPPED])
    changed = rows.to_pylist()
    for row in changed:
        stopped = list(flags.get(row["question_id"], [False] * N))
        row["early_stopped"] = stopped
        for values in (row["gains"], row["probes"]["nu"]):
            values[:] = [None if x else v for v, x in zip(values, stopped, strict=True)]
    write_rows(folder, pa.Table.from_pylist(changed, schema=fields))


class Crowded(FakeGenerator):
    """An engine whose u depends on how many rollouts are in flight: one alone is served exactly,
    and in company each u is half of that."""

    def __init__(self, cfg: GeneratorConfig, probe: ProbeConfig) -> None:
        super().__init__(cfg, probe)
        self._in_flight = 0
        self.largest = 0

    async def rollout(self, prompt_ids: Sequence[int], *, u_limit: float = math.inf) -> Rollout:
        """One probe, once every other that is about to start has started."""
        self._in_flight += 1
        await asyncio.sleep(0)
        crowd = self._in_flight
        self.largest = max(self.largest, crowd)
        made = await super().rollout(prompt_ids, u_limit=u_limit)
        self._in_flight -= 1
        u_T = made.u_T if crowd == 1 else made.u_T * np.float32(0.5)
        return Rollout(made.token_ids, u_T, made.margin_T, made.trace_JT)


class Overflowing(FakeGenerator):
    """An engine whose float16 overflows wherever a prompt holds a passage."""

    def __init__(self, cfg: GeneratorConfig, probe: ProbeConfig) -> None:
        super().__init__(cfg, probe)
        self._overflows = cfg.dtype == "float16"

    async def rollout(self, prompt_ids: Sequence[int], *, u_limit: float = math.inf) -> Rollout:
        """One probe."""
        if self._overflows and "hill" in self.tokenizer.decode(prompt_ids).split():
            raise Refusal("the model's logits are not finite")
        return await super().rollout(prompt_ids, u_limit=u_limit)


class Dying(FakeGenerator):
    """An engine that is lost at its first request."""

    async def rollout(self, prompt_ids: Sequence[int], *, u_limit: float = math.inf) -> Rollout:
        """None."""
        raise EngineDead("the engine is gone")
