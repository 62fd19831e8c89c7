"""Every generator engine keeps the same contract; the real ones agree on the same numbers.

The contract is checked on a tiny random model, the numbers on the demo model too, but for vLLM's
flat_logprobs: it agrees there with the plain loop at every K and MT, and its start costs most.
"""

import asyncio
import json
import math
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pipeline.config import GeneratorConfig, ProbeConfig, RuntimeConfig
from pipeline.core.admission import admit
from pipeline.core.replies import pattern
from pipeline.core.uncertainty import (
    TRACE_KS,
    first_step_over,
    normalised_uncertainty,
    nu_grid,
)
from pipeline.engines.base import Completion, Constrained, Generator, Refusal, Rollout
from pipeline.engines.table import GENERATORS
from pipeline.prompts import render
from pipeline.stages.probe import Probe
from tests.stages.tables import candidate, table

pytestmark = pytest.mark.engine
MT = 32
WINDOW = 512
VARIANTS = ("fake", "transformers", "vllm-in_engine", "vllm-flat_logprobs")

QUESTIONS = [
    "What is the capital of France?",
    "Who wrote Hamlet?",
    "How many legs does a spider have, and how many does an ant have?",
    "When did the Berlin Wall fall?",
]
CONTEXT = (
    "Spiders\nSpiders are arachnids. Unlike insects, which have six legs, they have eight, and "
    "their bodies have two parts instead of three."
)
PROMPTS: list[render.Prompt] = [
    *(render.probe(question, None, "literal") for question in QUESTIONS),
    *(render.probe(question, CONTEXT, "chat") for question in QUESTIONS),
    *(render.probe(question, CONTEXT * n, "literal") for n, question in enumerate(QUESTIONS, 1)),
]


@dataclass
class Subject:
    """An engine with the event loop that it lives in."""

    name: str
    generator: Generator
    runner: asyncio.Runner

    @property
    def blind(self) -> bool:
        """Whether the engine does not see u as it decodes, and so ends nothing early."""
        return self.name == "vllm-flat_logprobs"

    def rollouts(
        self, prompts: Sequence[render.Prompt], limits: Sequence[float] | None = None
    ) -> list[Rollout]:
        async def go() -> list[Rollout]:
            ids = [self.generator.tokenizer.encode(prompt) for prompt in prompts]
            both = zip(ids, limits or [math.inf] * len(ids), strict=True)
            asked = (self.generator.rollout(i, u_limit=limit) for i, limit in both)
            return list(await asyncio.gather(*asked))

        return self.runner.run(go())

    def completions(self, prompts: Sequence[render.Prompt], max_tokens: int) -> list[Completion]:
        async def go() -> list[Completion]:
            ids = [self.generator.tokenizer.encode(prompt) for prompt in prompts]
            asked = (self.generator.complete(i, max_tokens=max_tokens) for i in ids)
            return list(await asyncio.gather(*asked))

        return self.runner.run(go())


def test_every_engine_of_the_table_is_a_variant() -> None:
    elsewhere = {"endpoint"}  # needs a server: tests/engines/test_endpoint_vllm.py
    assert {variant.partition("-")[0] for variant in VARIANTS} | elsewhere == GENERATORS.keys()


@contextmanager
def running(variant: str, folder: Path) -> Iterator[Subject]:
    engine, _, mode = variant.partition("-")
    cfg = GeneratorConfig.model_validate(
        {
            "engine": engine,
            "model": str(folder),
            "max_model_len": WINDOW,
            "probe_mode": mode or "flat_logprobs",
            "runtime": RuntimeConfig(max_num_seqs=8, threads=2),
        }
    )
    probe = ProbeConfig(template="literal", top_k=128, max_tokens=MT, trace=True)
    generator = GENERATORS[engine](cfg, probe)
    try:
        with asyncio.Runner() as runner:
            yield Subject(variant, generator, runner)
    finally:
        generator.close()


@pytest.fixture(scope="module", params=VARIANTS)
def subject(request: pytest.FixtureRequest, tiny_folder: Path) -> Iterator[Subject]:
    with running(request.param, tiny_folder) as made:
        yield made


@pytest.fixture(scope="module")
def served(demo_folder: Path) -> Iterator[Subject]:
    """vLLM over the demo model."""
    with running("vllm-in_engine", demo_folder) as made:
        yield made


@pytest.fixture(scope="module")
def loop(demo_folder: Path) -> Iterator[Subject]:
    """The plain float32 loop over the demo model."""
    with running("transformers", demo_folder) as made:
        yield made


@pytest.fixture(scope="module")
def spoken(served: Subject, loop: Subject) -> tuple[list[Rollout], list[Rollout]]:
    """The rollouts of PROMPTS by vLLM and by the plain loop."""
    return served.rollouts(PROMPTS), loop.rollouts(PROMPTS)


def test_a_rollout_has_one_uncertainty_and_one_margin_for_each_of_its_steps(
    subject: Subject,
) -> None:
    for rollout in subject.rollouts(PROMPTS):
        steps = len(rollout.token_ids)
        assert 1 <= steps <= MT
        assert rollout.u_T.shape == rollout.margin_T.shape == (steps,)
        assert (rollout.u_T >= 0).all()
        assert (rollout.u_T <= 1).all()
        assert (rollout.margin_T >= 0).all()


def test_a_rollout_ends_at_its_first_end_token_and_counts_it(
    served: Subject, spoken: tuple[list[Rollout], list[Rollout]]
) -> None:
    stop_ids = served.generator.tokenizer.stop_ids
    for rollouts in spoken:
        assert any(len(rollout.token_ids) < MT for rollout in rollouts)
        for rollout in rollouts:
            ends = [token in stop_ids for token in rollout.token_ids]
            assert not any(ends[:-1])
            assert ends[-1] or len(ends) == MT


def test_a_rollout_is_the_same_alone_and_in_a_crowd(subject: Subject) -> None:
    alone = [subject.rollouts([prompt])[0] for prompt in PROMPTS[:3]]
    crowd = subject.rollouts([*PROMPTS[3:], *PROMPTS[:3]])[-3:]
    for a, b in zip(alone, crowd, strict=True):
        assert a.token_ids == b.token_ids
        np.testing.assert_allclose(a.u_T, b.u_T, atol=1e-4)


def test_an_answer_is_the_rollout_without_the_measuring(subject: Subject) -> None:
    rollouts = subject.rollouts(PROMPTS)
    answers = subject.completions(PROMPTS, MT)
    for rollout, answer in zip(rollouts, answers, strict=True):
        assert answer.text == subject.generator.tokenizer.decode(rollout.token_ids)
        assert answer.answer_tokens == len(rollout.token_ids)


def test_probes_and_answers_in_one_batch_do_not_disturb_each_other(subject: Subject) -> None:
    generator = subject.generator
    ids = [generator.tokenizer.encode(prompt) for prompt in PROMPTS]

    async def mixed() -> list[Any]:
        probes = [generator.rollout(i) for i in ids]
        answers = [generator.complete(i, max_tokens=4 + n) for n, i in enumerate(ids)]
        both = [one for pair in zip(answers, probes, strict=True) for one in pair]
        return list(await asyncio.gather(*both))

    found = subject.runner.run(mixed())
    for pure, rollout in zip(subject.rollouts(PROMPTS), found[1::2], strict=True):
        assert pure.token_ids == rollout.token_ids
        np.testing.assert_allclose(pure.u_T, rollout.u_T, atol=1e-4)
    for n, answer in enumerate(found[0::2]):
        assert answer == subject.completions([PROMPTS[n]], 4 + n)[0]


def test_what_is_held_to_a_pattern_says_nothing_else_and_disturbs_nobody(subject: Subject) -> None:
    generator = subject.generator
    if not isinstance(generator, Constrained):
        assert not subject.name.startswith("vllm")
        return
    ids = [generator.tokenizer.encode(prompt) for prompt in PROMPTS[:4]]
    patterns = [pattern(n, dropout=dropout) for n in (1, 3) for dropout in (True, False)]

    async def mixed() -> tuple[list[Completion], list[Rollout]]:
        both = zip(ids, patterns, strict=True)
        held = (generator.complete_matching(i, p, max_tokens=100) for i, p in both)
        probes = (generator.rollout(i) for i in ids)
        made = await asyncio.gather(asyncio.gather(*held), asyncio.gather(*probes))
        return list(made[0]), list(made[1])

    answers, rollouts = subject.runner.run(mixed())
    for answer, allowed in zip(answers, patterns, strict=True):
        assert answer.finish_reason == "stop"
        assert re.fullmatch(allowed, answer.text)
    assert [r.token_ids for r in rollouts] == [r.token_ids for r in subject.rollouts(PROMPTS[:4])]


def test_an_answer_says_how_it_ended_and_what_it_read(subject: Subject) -> None:
    long, short = (subject.completions(PROMPTS[:2], n)[0] for n in (200, 2))
    assert short.finish_reason == "length"
    assert short.answer_tokens == 2
    assert long.finish_reason == ("stop" if long.answer_tokens < 200 else "length")
    assert long.prompt_tokens == len(subject.generator.tokenizer.encode(PROMPTS[0]))


def test_a_prompt_longer_than_the_window_is_refused_with_the_numbers(subject: Subject) -> None:
    prompt = "word " * WINDOW
    with pytest.raises(Refusal, match=rf"\d+ tokens and {MT} new ones exceed the window of 512"):
        subject.rollouts([prompt])
    with pytest.raises(Refusal, match=r"exceed the window of 512"):
        subject.completions([prompt], 5)
    assert len(subject.rollouts(PROMPTS[:1])) == 1


def test_a_trace_has_every_k_and_agrees_with_the_uncertainty(subject: Subject) -> None:
    for rollout in subject.rollouts(PROMPTS[:4]):
        assert rollout.trace_JT is not None
        assert rollout.trace_JT.shape == (len(TRACE_KS), len(rollout.token_ids))
        nu = nu_grid(rollout.trace_JT)[TRACE_KS.index(128), -1]
        assert nu == pytest.approx(normalised_uncertainty(rollout.u_T), abs=1e-6)


def test_a_rollout_ends_at_the_step_that_takes_its_sum_beyond_the_limit(
    subject: Subject,
) -> None:
    whole = subject.rollouts(PROMPTS)
    halves = [max(1, len(rollout.u_T) // 2) for rollout in whole]
    # A limit in the middle of that step; every third rollout has none, and one ends at once.
    limits = [
        math.inf if i % 3 == 0 else float(rollout.u_T[:t].sum() - rollout.u_T[t - 1] / 2)
        for i, (rollout, t) in enumerate(zip(whole, halves, strict=True))
    ]
    limits[1] = -1.0
    for rollout, ended, limit in zip(whole, subject.rollouts(PROMPTS, limits), limits, strict=True):
        steps = first_step_over(rollout.u_T, limit=limit) or len(rollout.u_T)
        assert len(ended.token_ids) == (len(rollout.u_T) if subject.blind else steps)
        assert ended.token_ids[: steps - 1] == rollout.token_ids[: steps - 1]
        np.testing.assert_allclose(ended.u_T[:steps], rollout.u_T[:steps], atol=1e-4)
        np.testing.assert_allclose(ended.margin_T[:steps], rollout.margin_T[:steps], atol=1e-3)
        if limit < math.inf and not subject.blind:
            assert ended.token_ids[-1] == subject.generator.tokenizer.stop_ids[0]


def test_ending_rollouts_early_changes_no_admission_and_saves_steps(subject: Subject) -> None:
    passages = [candidate(f"p{n}", CONTEXT[: 40 * n]) for n in range(1, 5)]
    rows = [{"question_id": q, "question": q, "candidates": passages} for q in QUESTIONS]
    block = table(rows, ["question_id", "question", "candidates"])
    cfg = ProbeConfig(template="literal", top_k=128, max_tokens=MT)

    def probed(threshold: float | None) -> list[dict[str, Any]]:
        changed = cfg.model_copy(update={"early_stop_threshold": threshold})
        made = subject.runner.run(Probe(changed, subject.generator)(block))
        assert set(made["error"].to_pylist()) == {None}
        found: list[dict[str, Any]] = made.to_pylist()
        return found

    whole = probed(None)
    steps = [sum(row["probes"]["steps"]) for row in whole]
    middle = float(np.median([gain for row in whole for gain in row["gains"]])) - 1e-4
    for threshold in (middle, 0.3):
        cut = probed(threshold)
        for one, other in zip(whole, cut, strict=True):
            assert admit(one["gains"], threshold=threshold) == admit(
                other["gains"], threshold=threshold
            )
    saved = 1 - sum(sum(row["probes"]["steps"]) for row in cut) / sum(steps)
    stopped = sum(sum(row["early_stopped"]) for row in cut)
    assert (saved > 0.2 and stopped > 0) or subject.name == "fake"  # whose answers are short


@pytest.mark.parametrize("engine", ["served", "loop"])
def test_the_golden_rollouts_come_out_to_four_digits(
    engine: str, request: pytest.FixtureRequest, shared: Path
) -> None:
    subject: Subject = request.getfixturevalue(engine)
    golden = json.loads((shared / "notes" / "golden_igp.json").read_text())
    assert (golden["K"], golden["MT"]) == (128, MT)
    records = [pair[kind] for pair in golden["pairs"] for kind in ("unconditional", "conditional")]
    rollouts = subject.rollouts([record["prompt"] for record in records])
    for record, rollout in zip(records, rollouts, strict=True):
        assert list(rollout.token_ids) == record["tokens"]
        assert len(rollout.token_ids) == record["T"]
        assert normalised_uncertainty(rollout.u_T) == pytest.approx(record["NU"], abs=1e-4)
        np.testing.assert_allclose(rollout.u_T, record["u_steps"], atol=1e-4)
        assert rollout.margin_T.min() == pytest.approx(record["min_top2_logit_gap"], abs=1e-3)


def test_vllm_agrees_with_the_plain_loop(spoken: tuple[list[Rollout], list[Rollout]]) -> None:
    for a, b in zip(*spoken, strict=True):
        assert a.token_ids == b.token_ids
        nu_a, nu_b = normalised_uncertainty(a.u_T), normalised_uncertainty(b.u_T)
        assert nu_a == pytest.approx(nu_b, abs=1e-4)


@pytest.fixture(scope="module")
def tiny_reference(tiny_folder: Path) -> list[Rollout]:
    """The plain float32 loop's rollouts of the tiny model."""
    with running("transformers", tiny_folder) as made:
        return made.rollouts(PROMPTS)


def test_the_real_engines_agree_with_the_plain_loop_on_every_smaller_k_and_mt(
    subject: Subject, tiny_reference: list[Rollout]
) -> None:
    if subject.name == "fake":
        # It says what its own hash says, so there are no numbers of a model to agree with; its
        # trace is held to its u by the test of every K above.
        pytest.skip("the fake is no model")
    for a, b in zip(subject.rollouts(PROMPTS), tiny_reference, strict=True):
        assert a.trace_JT is not None and b.trace_JT is not None
        assert a.token_ids == b.token_ids
        np.testing.assert_allclose(nu_grid(a.trace_JT), nu_grid(b.trace_JT), atol=1e-5)
        np.testing.assert_allclose(a.margin_T, b.margin_T, atol=1e-4)
