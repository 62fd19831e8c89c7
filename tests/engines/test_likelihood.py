"""Every likelihood engine keeps the same contract; the real ones agree on the numbers of the demo
model, which each loads once.
"""

import asyncio
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pipeline.config import GeneratorConfig, RuntimeConfig
from pipeline.engines.base import Floats, LanguageScorer, ModelNotFound, Refusal, checked_logprobs
from pipeline.engines.table import LIKELIHOODS
from pipeline.engines.transformers_likelihood import TransformersScorer
from pipeline.engines.vllm_likelihood import MAX_WANTED, VllmScorer, target_values
from pipeline.prompts import render

WINDOW = 512
PASSAGES = [
    "Harbour lights\nThe lantern on the north pier was first lit in 1874 by its keeper, Oda Brill.",
    "Otters\nOtters sleep afloat, wrapped in kelp so that the tide does not carry them away.",
    "The bell\nThe bell of the old mill was cast twice, since the first one cracked in the frost. "
    * 9,
]
QUESTIONS = ["Who first lit the lantern on the north pier?", "Why do otters sleep wrapped in kelp?"]


@dataclass
class Subject:
    """An engine with the event loop that it lives in."""

    name: str
    scorer: LanguageScorer
    runner: asyncio.Runner

    def pairs(self) -> list[tuple[list[int], list[int]]]:
        """A prompt's ids over each passage, and the ids of each question after it."""
        tokenizer = self.scorer.tokenizer
        return [
            (tokenizer.encode(render.qlm(passage)), tokenizer.ids(f" {question}"))
            for passage in PASSAGES
            for question in QUESTIONS
        ]

    def log_likelihoods(self, pairs: Sequence[tuple[list[int], list[int]]]) -> list[Floats]:
        async def go() -> list[Floats]:
            return list(await asyncio.gather(*(self.scorer.log_likelihood(*p) for p in pairs)))

        return self.runner.run(go())

    def next_tokens(self, prompts: Sequence[list[int]], wanted: list[int]) -> list[Floats]:
        async def go() -> list[Floats]:
            asked = (self.scorer.next_token(prompt, wanted) for prompt in prompts)
            return list(await asyncio.gather(*asked))

        return self.runner.run(go())


@contextmanager
def running(engine: str, folder: Path) -> Iterator[Subject]:
    cfg = GeneratorConfig(
        engine=engine,
        model=str(folder),
        max_model_len=WINDOW,
        runtime=RuntimeConfig(max_num_seqs=4, threads=2),
    )
    scorer = LIKELIHOODS[engine](cfg)
    try:
        with asyncio.Runner() as runner:
            yield Subject(engine, scorer, runner)
    finally:
        scorer.close()


Start = Callable[[str], Subject]


@pytest.fixture(scope="module")
def start(request: pytest.FixtureRequest) -> Iterator[Start]:
    """The engine of a name, started when it is first asked for; the fake needs no model."""
    started: dict[str, Subject] = {}
    with ExitStack() as stack:

        def get(name: str) -> Subject:
            if name not in started:
                real = name != "fake"
                folder = request.getfixturevalue("demo_folder") if real else Path("fake")
                started[name] = stack.enter_context(running(name, folder))
            return started[name]

        yield get


@pytest.fixture(
    params=[
        "fake",
        pytest.param("transformers", marks=pytest.mark.engine),
        pytest.param("vllm", marks=pytest.mark.engine),
    ],
)
def subject(request: pytest.FixtureRequest, start: Start) -> Subject:
    return start(request.param)


def test_every_engine_of_the_table_is_tested() -> None:
    assert LIKELIHOODS.keys() == {"fake", "transformers", "vllm"}


def test_each_target_token_has_one_log_probability(subject: Subject) -> None:
    pairs = subject.pairs()
    for (_, target), values in zip(pairs, subject.log_likelihoods(pairs), strict=True):
        assert values.dtype == np.float32
        assert values.shape == (len(target),)
        assert (values <= 0).all()


@cache
def _loaded(folder: Path) -> Any:
    import torch
    from transformers import AutoModelForCausalLM

    return AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()


def _by_hand(folder: Path, prefix: Sequence[int], target: Sequence[int]) -> Floats:
    """One unpadded forward pass over everything, in float64 after the logits."""
    import torch

    with torch.inference_mode():
        logits_TV = _loaded(folder)(torch.tensor([[*prefix, *target]])).logits[0].double()
    logp_TV = torch.log_softmax(logits_TV, dim=-1)
    rows = range(len(prefix) - 1, len(prefix) + len(target) - 1)
    return np.array([logp_TV[t, i] for t, i in zip(rows, target, strict=True)], np.float32)


def test_the_fake_s_values_are_bounded(start: Start) -> None:
    subject = start("fake")
    assert all((values >= -8).all() for values in subject.log_likelihoods(subject.pairs()))


def test_a_target_is_as_likely_alone_as_in_a_crowd_and_in_any_order(subject: Subject) -> None:
    pairs = subject.pairs()
    crowd = subject.log_likelihoods(pairs[::-1])[::-1]
    for pair, values in zip(pairs, crowd, strict=True):
        np.testing.assert_allclose(subject.log_likelihoods([pair])[0], values, atol=1e-4)


def test_what_was_scored_before_is_scored_the_same_again(subject: Subject) -> None:
    # Longer than a block of vLLM's cache (128 tokens), which so reaches into the target.
    prefix, target = list(range(100, 200)), list(range(300, 390))
    (whole,) = subject.log_likelihoods([(prefix, target)])
    (again,) = subject.log_likelihoods([(prefix, target)])
    (start,) = subject.log_likelihoods([(prefix, target[:60])])
    np.testing.assert_allclose(again, whole, atol=1e-4)
    np.testing.assert_allclose(start, whole[:60], atol=1e-4)


def test_the_chain_of_next_tokens_is_the_likelihood(subject: Subject) -> None:
    prefix, target = subject.pairs()[0]
    (values,) = subject.log_likelihoods([(prefix, target)])
    for end in range(3):
        (found,) = subject.next_tokens([[*prefix, *target[:end]]], [target[end], 5])
        assert found.shape == (2,)
        assert found[0] == pytest.approx(values[end], abs=1e-4)


def test_next_tokens_come_in_the_order_asked(subject: Subject) -> None:
    prompts = [prefix for prefix, _ in subject.pairs()]
    forward = subject.next_tokens(prompts, [7, 300, 11])
    backward = subject.next_tokens(prompts, [11, 300, 7])
    for a, b in zip(forward, backward, strict=True):
        np.testing.assert_allclose(a, b[::-1], atol=1e-4)
    assert not np.allclose(forward[0], forward[0][::-1])


def test_both_kinds_of_request_in_one_batch_do_not_disturb_each_other(subject: Subject) -> None:
    pairs = subject.pairs()
    pure = subject.log_likelihoods(pairs), subject.next_tokens([p for p, _ in pairs], [7, 300])

    async def mixed() -> list[Floats]:
        asked = [
            one
            for prefix, target in pairs
            for one in (
                subject.scorer.log_likelihood(prefix, target),
                subject.scorer.next_token(prefix, [7, 300]),
            )
        ]
        return list(await asyncio.gather(*asked))

    found = subject.runner.run(mixed())
    for expected, values in zip([*pure[0], *pure[1]], [*found[0::2], *found[1::2]], strict=True):
        np.testing.assert_allclose(values, expected, atol=1e-4)


def test_what_cannot_be_scored_is_refused_with_the_numbers(subject: Subject) -> None:
    prefix, target = subject.pairs()[0]
    with pytest.raises(Refusal, match="513 tokens and 1 new ones exceed the window of 512"):
        subject.log_likelihoods([([5] * 500, [6] * 13)])
    with pytest.raises(Refusal, match="512 tokens and 1 new ones exceed the window of 512"):
        subject.next_tokens([[5] * 512], [6])
    with pytest.raises(Refusal, match="0 tokens after a prompt of 1"):
        subject.log_likelihoods([([5], [])])
    with pytest.raises(Refusal, match="1 tokens after a prompt of 0"):
        subject.log_likelihoods([([], [5])])
    with pytest.raises(Refusal, match="0 tokens after a prompt of 1"):
        subject.next_tokens([[5]], [])
    assert len(subject.log_likelihoods([(prefix, target)])) == 1


def test_a_value_that_is_not_a_number_is_refused() -> None:
    with pytest.raises(Refusal, match="not numbers"):
        checked_logprobs(np.array([-1, np.nan], np.float32))


def test_the_fake_finds_a_question_likelier_over_the_passage_with_its_words() -> None:
    with running("fake", Path("fake")) as fake:
        sums = [values.sum() for values in fake.log_likelihoods(fake.pairs())]
    assert sums[0] > sums[2]  # the lantern's question, over its passage and over the otters'
    assert sums[3] > sums[1]


@pytest.mark.engine
def test_the_engines_agree_with_a_plain_pass_and_with_each_other_on_a_real_model(
    start: Start, demo_folder: Path
) -> None:
    plain, served = start("transformers"), start("vllm")
    pairs = plain.pairs()
    reference = [_by_hand(demo_folder, *pair) for pair in pairs]
    for subject in (plain, served):
        for values, expected in zip(subject.log_likelihoods(pairs), reference, strict=True):
            np.testing.assert_allclose(values, expected, atol=1e-3)
    prompts = [prefix for prefix, _ in pairs]
    wanted = plain.scorer.tokenizer.ids("Yes") + plain.scorer.tokenizer.ids(" No")
    for a, b in zip(
        plain.next_tokens(prompts, wanted), served.next_tokens(prompts, wanted), strict=True
    ):
        np.testing.assert_allclose(a, b, atol=1e-3)


@pytest.mark.engine
def test_a_question_is_likelier_over_its_own_passage_on_a_real_model(start: Start) -> None:
    plain = start("transformers")
    sums = [values.sum() for values in plain.log_likelihoods(plain.pairs())]
    assert sums[0] > sums[2]
    assert sums[3] > sums[1]


@pytest.mark.parametrize("scorer", [TransformersScorer, VllmScorer])
def test_a_model_that_does_not_exist_is_named(scorer: type[LanguageScorer]) -> None:
    cfg = GeneratorConfig(model="/no-such-folder")
    with pytest.raises(ModelNotFound, match="no-such-folder"):
        scorer(cfg)  # type: ignore[call-arg]


@dataclass
class Rows:
    """The part of vLLM's FlatLogprobs that is read."""

    logprobs: list[float]


@dataclass
class Read:
    """The part of vLLM's RequestOutput that tells a prompt's values."""

    rows: int
    num_cached_tokens: int

    @property
    def prompt_logprobs(self) -> Rows:
        """-1 for the last row, -2 for the one before it, and so on."""
        return Rows([float(row - self.rows) for row in range(self.rows)])


@pytest.mark.parametrize(("rows", "cached"), [(9, 0), (9, 4), (5, 4), (3, 6)])
def test_the_targets_values_are_the_last_rows_whether_or_not_cached_tokens_have_one(
    rows: int, cached: int
) -> None:
    found = target_values(Read(rows, cached), tokens=10, target=3)
    assert found.tolist() == [-3, -2, -1]


@pytest.mark.parametrize(("rows", "cached"), [(8, 0), (10, 0), (6, 4), (2, 7)])
def test_any_other_number_of_rows_is_an_error(rows: int, cached: int) -> None:
    with pytest.raises(RuntimeError, match=rf"{rows} values for a prompt of 10 tokens, {cached}"):
        target_values(Read(rows, cached), tokens=10, target=3)


@pytest.mark.engine
def test_more_ids_than_vllm_takes_are_refused(start: Start) -> None:
    served = start("vllm")
    with pytest.raises(Refusal, match=f"129 ids wanted at one position; allowed: {MAX_WANTED}"):
        served.next_tokens([[5, 6]], list(range(129)))
