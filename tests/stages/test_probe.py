"""Tests of pipeline.stages.probe: N + 1 rollouts a question, their gains, and refusals."""

import asyncio
import hashlib
import json
import math
from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeline import schema
from pipeline.core.uncertainty import TRACE_KS
from pipeline.engines.base import EngineDead, Rollout
from pipeline.stages import probe
from pipeline.stages.probe import Probe
from pipeline.stages.stage import run_stage
from tests.stages.probing import NORTH, SOUTH, U, cfg, fake, row, run
from tests.stages.tables import ScriptedGenerator, candidate, table


def test_the_gain_of_a_passage_is_the_uncertainty_that_it_takes_away() -> None:
    generator = ScriptedGenerator(U)
    (made,) = run([row(NORTH, SOUTH)], generator)
    assert made["error"] is None
    assert made["gains"] == [0.25, -0.5]
    contexts = ("", "\nContext:\nTitle\nnorth", "\nContext:\nsouth")
    prompts = [f"User: Which wind?{context}\nAssistant:" for context in contexts]
    assert made["probes"] == {
        "keys": [hashlib.sha256(json.dumps(p).encode()).hexdigest()[:24] for p in prompts],
        "nu0": 0.5,
        "nu": [0.25, 1.0],
        "steps": [2, 1, 3],
        "prompt_tokens": [4, 7, 6],  # "User: Which wind? Assistant:", with "Context: ..."
        "answers": ["Assistant:", "", "south Assistant:"],
        "u": [[0.75, 0.25], [0.25], [1.0, 1.0, 1.0]],
        "margins": [[2.0, 2.0], [2.0], [2.0, 2.0, 2.0]],
        "trace": None,
        "free_rule": False,
    }


def test_the_rollout_without_evidence_comes_first_and_each_passage_has_its_own() -> None:
    generator = ScriptedGenerator(U)
    run([row(NORTH, SOUTH)], generator)
    assert generator.prompts == [
        "User: Which wind? Assistant:",
        "User: Which wind? Context: Title north Assistant:",
        "User: Which wind? Context: south Assistant:",
    ]


def test_the_passage_format_and_the_template_shape_the_prompts() -> None:
    generator = ScriptedGenerator({"<assistant>": [0.5]})
    run([row(NORTH)], generator, template="chat", passage_format="text")
    assert generator.prompts[1] == "<user> Which wind? Context: north <assistant>"


def test_a_question_without_candidates_has_one_rollout_and_no_gains() -> None:
    generator = ScriptedGenerator(U)
    (made,) = run([row()], generator)
    assert made["gains"] == [] == made["probes"]["nu"]
    assert made["probes"]["steps"] == [2]
    assert len(generator.prompts) == 1


def test_under_the_free_rule_one_rollout_is_made_and_nothing_else_is_measured() -> None:
    generator = ScriptedGenerator(U)
    (made,) = run([row(NORTH, SOUTH)], generator, free_rule_threshold=0.501)
    assert len(generator.prompts) == 1
    assert made["error"] is None
    assert made["gains"] == [None, None] == made["probes"]["nu"]
    assert made["probes"]["free_rule"] is True
    assert made["probes"]["nu0"] == 0.5
    for name in ("keys", "steps", "prompt_tokens", "answers", "u", "margins"):
        assert len(made["probes"][name]) == 1


def test_the_free_rule_spares_nothing_at_its_limit() -> None:
    generator = ScriptedGenerator(U)
    (made,) = run([row(NORTH, SOUTH)], generator, free_rule_threshold=0.5)
    assert made["probes"]["free_rule"] is False
    assert made["gains"] == [0.25, -0.5]


@pytest.mark.parametrize(("limit", "asked"), [(0.501, 1), (0.5, 3)])
def test_below_the_limit_of_every_gate_one_rollout_is_made(limit: float, asked: int) -> None:
    generator = ScriptedGenerator(U)
    block = table([row(NORTH, SOUTH)], ["question_id", "question", "candidates"])
    (made,) = asyncio.run(Probe(cfg(), generator, spared_below=limit)(block)).to_pylist()
    assert len(generator.prompts) == asked
    assert made["gains"] == ([None, None] if asked == 1 else [0.25, -0.5])
    assert made["probes"]["free_rule"] is (asked == 1)
    # The looser of the two limits decides.
    both = Probe(cfg(free_rule_threshold=0.6), generator, spared_below=limit)
    (made,) = asyncio.run(both(block)).to_pylist()
    assert made["gains"] == [None, None]


def test_a_refused_rollout_makes_the_question_dead_with_its_passage_named() -> None:
    generator = ScriptedGenerator(U, refuse=["south", "Why?"])
    rows = [row(NORTH, SOUTH), row(NORTH, question="Who?"), row(question="Why?")]
    with_passage, served, without = run(rows, generator)
    assert with_passage["error"] == (
        "rollout with passage 'p-south': the engine will not hear 'south'"
    )
    assert without["error"] == "rollout without evidence: the engine will not hear 'Why?'"
    for dead in (with_passage, without):
        assert dead["probes"] is None and dead["gains"] is None
    assert served["error"] is None and served["gains"] == [0.25]


def test_a_dead_question_comes_out_of_the_stage_with_stage_and_reason() -> None:
    block = table(
        [row(NORTH), row(SOUTH, question_id="d")], ["question_id", "question", "candidates"]
    )
    block = block.append_column(schema.DEAD, pa.array([None, None], schema.DEAD.type))
    stage = probe.stage(cfg(), {"engine": "scripted"})
    transform = Probe(cfg(), ScriptedGenerator(U, refuse=["south"]))
    made = asyncio.run(run_stage(stage, transform, block))
    assert [entry and entry["stage"] for entry in made["dead"].to_pylist()] == [None, "probe"]
    assert made["gains"].to_pylist() == [[0.25], None]
    # Two rollouts of 2 + 1 steps after prompts of 4 + 7 words; the dead question does not count.
    assert dict(stage.counts(made)) == {"rollouts": 2, "taken_up": 0, "tokens": 14}


def test_an_engine_that_is_lost_is_not_taken_for_a_refusal() -> None:
    class Dying(ScriptedGenerator):
        async def rollout(self, prompt_ids: Sequence[int], *, u_limit: float = math.inf) -> Rollout:
            if len(self.prompts) == 1:
                raise EngineDead("gone")
            return await super().rollout(prompt_ids, u_limit=u_limit)

    with pytest.raises(EngineDead, match="gone"):
        run([row(NORTH)], Dying(U))


def test_equal_prompts_of_a_block_run_once() -> None:
    generator = ScriptedGenerator(U)
    twin = candidate("p-twin", "north", title="Title")
    first, second = run([row(NORTH, twin), row(NORTH, SOUTH, question_id="r")], generator)
    assert len(generator.prompts) == 3
    assert first["gains"] == [0.25, 0.25]
    assert second["gains"] == [0.25, -0.5]


def test_questions_do_not_wait_for_each_other() -> None:
    class Slow(ScriptedGenerator):
        def __init__(self) -> None:
            super().__init__(U)
            self.quick_is_through = asyncio.Event()

        async def rollout(self, prompt_ids: Sequence[int], *, u_limit: float = math.inf) -> Rollout:
            words = self.tokenizer.decode(prompt_ids).split()
            if "Slow?" in words and "Context:" not in words:
                await asyncio.wait_for(self.quick_is_through.wait(), timeout=5)
            elif "Quick?" in words and "Context:" in words:
                self.quick_is_through.set()
            return await super().rollout(prompt_ids, u_limit=u_limit)

    made = run([row(NORTH, question="Slow?"), row(NORTH, question="Quick?")], Slow())
    assert [one["error"] for one in made] == [None, None]


def test_logits_that_are_not_numbers_kill_the_question_and_name_the_passage() -> None:
    broken = {**U, "south": [float("nan")]}
    made = run([row(NORTH, SOUTH), row(NORTH)], ScriptedGenerator(broken))
    assert made[0]["error"].startswith("rollout with passage 'p-south': no usable uncertainty")
    assert (made[0]["probes"], made[0]["gains"]) == (None, None)
    assert made[1]["error"] is None


@given(sizes=st.lists(st.integers(0, 4), max_size=5), cut=st.integers(0, 5))
def test_gains_lists_and_blocks_agree_for_any_questions(sizes: list[int], cut: int) -> None:
    rows = [
        row(
            *(candidate(f"p{j}", f"text {i} {j} of the wind") for j in range(size)),
            question=f"Which wind {i}?",
            question_id=f"q{i}",
        )
        for i, size in enumerate(sizes)
    ]
    whole = run(rows, fake())
    assert run(rows[:cut], fake()) + run(rows[cut:], fake()) == whole
    for size, made in zip(sizes, whole, strict=True):
        probes = made["probes"]
        measured = [probes["nu0"], *probes["nu"]]
        assert [len(u) for u in probes["u"]] == probes["steps"]
        assert len(measured) == len(probes["steps"]) == len(probes["answers"]) == size + 1
        assert measured == [np.float32(np.mean(u, dtype=np.float64)) for u in probes["u"]]
        assert made["gains"] == [np.float32(probes["nu0"] - nu) for nu in probes["nu"]]


def test_a_trace_holds_every_k_and_step_of_every_rollout() -> None:
    (made,) = run([row(NORTH, SOUTH)], fake(trace=True), trace=True, max_tokens=8)
    probes = made["probes"]
    assert len(probes["trace"]) == 3
    for u_JT, steps, u in zip(probes["trace"], probes["steps"], probes["u"], strict=True):
        assert [len(u_T) for u_T in u_JT] == [steps] * len(TRACE_KS)
        assert u_JT[-1] == u


def test_the_stage_depends_on_settings_model_and_templates() -> None:
    prints = [
        probe.stage(settings, generator).depends_on
        for settings in (cfg(), cfg(top_k=9), cfg(template="chat"), cfg(trace=True))
        for generator in ({"model": "a"}, {"model": "b"})
    ]
    assert all(one != other for i, one in enumerate(prints) for other in prints[:i])
    assert probe.stage(cfg(), {"model": "a"}).durable
    early = probe.stage(cfg(early_stop_threshold=0.05), {"model": "a"})
    assert early.depends_on["early_stop_threshold"] == 0.05
    assert early.adds.names == ["probes", "gains", "early_stopped"]
    # A run without it finds the rollouts that were stored before there was such a setting.
    assert "early_stop_threshold" not in probe.stage(cfg(), {"model": "a"}).depends_on
    assert probe.stage(cfg(), {"model": "a"}).adds.names == ["probes", "gains"]
    spared = probe.stage(cfg(), {"model": "a"}, spared_below=0.1)
    assert spared.depends_on != probe.stage(cfg(), {"model": "a"}).depends_on
