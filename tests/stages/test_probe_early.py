"""Tests of pipeline.stages.probe where a rollout may be ended early: what is cut, and that nothing
that is admitted is another."""

import asyncio
import math
from collections.abc import Sequence

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeline import schema
from pipeline.core.admission import admit
from pipeline.core.uncertainty import first_step_over
from pipeline.engines.base import Rollout
from pipeline.stages import probe
from pipeline.stages.probe import Probe
from pipeline.stages.stage import run_stage
from tests.stages.probing import NORTH, SOUTH, cfg, fake, row, run
from tests.stages.tables import ScriptedGenerator, candidate, table

# NU(q) = 1/2 and MT = 4: at Tp = 0 a rollout may spend 2 in all; the fourth word is never heard.
LONG = {"Assistant:": [0.5], "north": [0.25] * 4, "south": [1.0, 0.5, 0.75, 0.25]}


def test_a_rollout_that_cannot_reach_the_threshold_is_cut_and_its_gain_not_measured() -> None:
    generator = ScriptedGenerator(LONG)
    (made,) = run([row(NORTH, SOUTH)], generator, early_stop_threshold=0.0)
    assert made["early_stopped"] == [False, True]
    assert made["gains"] == [0.25, None]
    probes = made["probes"]
    assert (probes["nu0"], probes["nu"]) == (0.5, [0.25, None])
    assert probes["u"] == [[0.5], [0.25] * 4, [1.0, 0.5, 0.75]]
    assert probes["steps"] == [1, 4, 3]
    assert [len(margins) for margins in probes["margins"]] == [1, 4, 3]
    # The words before the step of the cut, whose own word is not known.
    assert probes["answers"][2] == "Context: south"
    assert probes["free_rule"] is False
    # The engine is told the sum: 4 (1/2 - 0) and the margin; nothing for the first rollout.
    assert generator.limits == [math.inf, *[pytest.approx(2.000004, abs=1e-9)] * 2]


def test_where_nothing_can_reach_the_threshold_no_passage_is_probed() -> None:
    generator = ScriptedGenerator(LONG)
    (made,) = run([row(NORTH, SOUTH)], generator, early_stop_threshold=0.51)
    assert len(generator.prompts) == 1
    assert made["probes"]["free_rule"] is True
    assert made["early_stopped"] == [False, False]
    assert made["gains"] == [None, None]


def test_without_a_limit_there_is_no_column_of_early_stops() -> None:
    (made,) = run([row(NORTH, SOUTH)], ScriptedGenerator(LONG))
    assert "early_stopped" not in made
    assert made["gains"] == [0.25, -0.125]


def test_rollouts_that_were_ended_early_are_counted() -> None:
    block = table(
        [row(NORTH, SOUTH), row(question_id="r")], ["question_id", "question", "candidates"]
    )
    block = block.append_column(schema.DEAD, pa.array([None, None], schema.DEAD.type))
    settings = cfg(early_stop_threshold=0.0)
    stage = probe.stage(settings, {"engine": "scripted"})
    transform = Probe(settings, ScriptedGenerator(LONG))
    made = asyncio.run(run_stage(stage, transform, block))
    assert made["early_stopped"].to_pylist() == [[False, True], []]
    # Steps 1 + 4 + 3, prompts of 4, 7 and 6 words; the other question's rollout is the first one's.
    expected = {"early_stopped": 1, "rollouts": 3, "taken_up": 0, "tokens": 25}
    assert dict(stage.counts(made)) == expected


def test_a_row_does_not_depend_on_when_the_engine_ends_a_rollout() -> None:
    class Prompt(ScriptedGenerator):
        async def rollout(self, prompt_ids: Sequence[int], *, u_limit: float = math.inf) -> Rollout:
            whole = await super().rollout(prompt_ids)
            steps = first_step_over(whole.u_T, limit=u_limit) or len(whole.u_T)
            ids = (*whole.token_ids[: steps - 1], 0)
            return Rollout(ids, whole.u_T[:steps], whole.margin_T[:steps], None)

    rows = [row(NORTH, SOUTH)]
    late, prompt = (
        run(rows, generator, early_stop_threshold=0.0)
        for generator in (ScriptedGenerator(LONG), Prompt(LONG))
    )
    assert late == prompt


@given(limit=st.floats(-0.5, 0.5), higher=st.floats(0, 0.5), question=st.integers(0, 999))
def test_what_is_admitted_is_the_same_with_rollouts_cut_and_whole(
    limit: float, higher: float, question: int
) -> None:
    candidates = [candidate(f"p{j}", f"text {j} of the wind of {question}") for j in range(6)]
    rows = [row(*candidates, question=f"Which wind {question}?")]
    (whole,) = run(rows, fake(), max_tokens=8)
    (cut,) = run(rows, fake(), max_tokens=8, early_stop_threshold=limit)
    for threshold in (limit, limit + higher):
        assert admit(cut["gains"], threshold=threshold) == admit(
            whole["gains"], threshold=threshold
        )
    for gain, kept, stopped in zip(whole["gains"], cut["gains"], cut["early_stopped"], strict=True):
        assert kept == (None if stopped or cut["probes"]["free_rule"] else gain)
