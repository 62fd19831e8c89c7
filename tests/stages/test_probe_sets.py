"""Tests of pipeline.stages.probe_sets: greedy rounds of information gain over sets of passages."""

import asyncio
import hashlib
import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pipeline import schema
from pipeline.config import ProbeConfig
from pipeline.core.admission import admit_rounds, order
from pipeline.engines.base import EngineDead, Generator, Refusal, Rollout
from pipeline.engines.fake import FakeTokenizer
from pipeline.stages import probe_sets
from pipeline.stages.probe import Probe
from pipeline.stages.probe_sets import ProbeSets
from pipeline.stages.stage import run_stage
from tests.stages.tables import candidate, table

WORDS = ("north", "south", "east", "west")
PASSAGES = [candidate(f"p-{word}", word) for word in WORDS]
CFG = ProbeConfig(template="literal", top_k=8, max_tokens=4)
COLUMNS = ["question_id", "question", "candidates"]


class Uncertain:
    """A generator whose NU depends on which passages the prompt holds, and in which order."""

    def __init__(self, nu: Mapping[tuple[str, ...], float], *, refuse: str = "") -> None:
        self.tokenizer = FakeTokenizer()
        self.max_model_len = 1000
        self.asked: list[tuple[str, ...]] = []
        self._nu, self._refuse = nu, refuse

    async def rollout(self, prompt_ids: Sequence[int], *, u_limit: float = math.inf) -> Rollout:
        """One step of the uncertainty that the script holds for the passages."""
        words = self.tokenizer.decode(prompt_ids).split()
        shown = tuple(word for word in words if word in WORDS)
        self.asked.append(shown)
        if self._refuse and len(shown) > 1 and shown[-1] == self._refuse:
            raise Refusal(f"no {self._refuse}")
        u_T = np.array([self._nu[shown]], np.float32)
        return Rollout((0,), u_T, np.full(1, 2, np.float32), None)

    async def complete(self, prompt_ids: Sequence[int], *, max_tokens: int) -> Any:
        """Nobody answers here."""
        raise AssertionError("no answer is asked for")

    def close(self) -> None:
        """Nothing to end."""


# All exact in float32. After south (NU 1/4 of 3/4) east takes away 1/8 more, north adds 1/8.
NU: dict[tuple[str, ...], float] = {
    (): 0.75,
    ("north",): 0.5,
    ("south",): 0.25,
    ("east",): 0.875,
    ("south", "north"): 0.375,
    ("south", "east"): 0.125,
    ("south", "east", "north"): 0.125,
}


def probed(generator: Generator, cfg: ProbeConfig = CFG, *, passages: int = 3) -> pa.Table:
    """A question as the probe leaves it."""
    given_row = {
        "question_id": "q",
        "question": "Which wind?",
        "candidates": PASSAGES[:passages],
    }
    made = asyncio.run(Probe(cfg, generator)(table([given_row], COLUMNS)))
    return made.drop_columns(["error"])


def run(
    generator: Generator,
    block: pa.Table,
    *,
    max_rounds: int = 5,
    threshold: float = -math.inf,
    earlier: pa.Table | None = None,
) -> list[dict[str, Any]]:
    """The rows after the transform."""
    made = asyncio.run(ProbeSets(CFG, generator, max_rounds, threshold)(block, earlier))
    assert made.schema.field("sets").equals(schema.SETS)
    found = made.to_pylist()
    assert isinstance(found, list)
    return found


def lists(made: Mapping[str, Any]) -> dict[str, Any]:
    """A row's rounds without their key."""
    return {name: values for name, values in made["sets"].items() if name != "key"}


def test_each_round_takes_the_passage_that_takes_away_most_of_what_is_left() -> None:
    generator = Uncertain(NU)
    block = probed(generator)
    generator.asked.clear()
    (made,) = run(generator, block)
    # A prompt has the five words "User: Which wind? Context: Assistant:" and those of its set.
    assert lists(made) == {
        "positions": [1, 2, 0],
        "gains": [0.5, 0.125, 0.0],
        "rollouts": [0, 2, 1],
        "tokens": [0, 7 + 7 + 2, 8 + 1],
    }
    assert generator.asked == [("south", "north"), ("south", "east"), ("south", "east", "north")]


def test_the_first_round_is_the_probe_s_own_and_costs_nothing() -> None:
    generator = Uncertain(NU)
    block = probed(generator)
    generator.asked.clear()
    (made,) = run(generator, block, max_rounds=1)
    assert lists(made) == {"positions": [1], "gains": [0.5], "rollouts": [0], "tokens": [0]}
    assert generator.asked == []


def test_rounds_end_at_the_threshold_which_itself_is_admitted() -> None:
    generator = Uncertain(NU)
    block = probed(generator)
    # The last round is stored although its best passage is not admitted: it was paid for.
    rounds = {0.125: ([1, 2, 0], [0, 2, 1]), 0.25: ([1, 2], [0, 2]), 0.625: ([1], [0])}
    for threshold, (positions, rollouts) in rounds.items():
        (made,) = run(generator, block, threshold=threshold)
        assert (made["sets"]["positions"], made["sets"]["rollouts"]) == (positions, rollouts)
        assert made["sets"]["gains"][-1] < threshold


def test_passages_of_a_set_stand_in_the_order_chosen_with_a_blank_line_between() -> None:
    prompts: list[str] = []

    class Tokens(FakeTokenizer):
        def encode(self, prompt: Any) -> list[int]:
            prompts.append(prompt)
            return super().encode(prompt)

    generator = Uncertain(NU)
    generator.tokenizer = Tokens()
    block = probed(generator)
    run(generator, block)
    assert prompts[-1] == ("User: Which wind?\nContext:\nsouth\n\neast\n\nnorth\nAssistant:")


def test_no_rounds_and_no_candidates_find_nothing() -> None:
    generator = Uncertain(NU)
    nothing: dict[str, Any] = {"positions": [], "gains": [], "rollouts": [], "tokens": []}
    assert lists(run(generator, probed(generator), max_rounds=0)[0]) == nothing
    assert lists(run(generator, probed(generator, passages=0))[0]) == nothing


def test_what_the_free_rule_spared_is_not_probed_in_sets_either() -> None:
    generator = Uncertain(NU)
    block = probed(generator, CFG.model_copy(update={"free_rule_threshold": 0.8}))
    assert block["gains"].to_pylist() == [[None, None, None]]
    generator.asked.clear()
    assert run(generator, block)[0]["sets"]["positions"] == []
    assert generator.asked == []


def test_a_refused_rollout_makes_the_question_dead_with_its_round_named() -> None:
    generator = Uncertain(NU)
    block = probed(generator)
    stage = probe_sets.stage(CFG, {}, max_rounds=3, threshold=-math.inf)
    whole = pa.concat_tables([block, block.set_column(0, "question_id", [["r"]])])
    whole = whole.append_column(schema.DEAD, pa.array([None, None], schema.DEAD.type))
    refusing = Uncertain(NU, refuse="north")
    part = asyncio.run(run_stage(stage, ProbeSets(CFG, refusing, 3, -math.inf), whole))
    reason = {"stage": "probe_sets", "reason": "rollout of round 2: no north"}
    assert part["dead"].to_pylist() == [reason, reason]
    assert part["sets"].to_pylist() == [None, None]
    assert dict(stage.counts(part, None)) == {"rollouts": 0, "tokens": 0}
    served = asyncio.run(run_stage(stage, ProbeSets(CFG, Uncertain(NU), 3, -math.inf), whole))
    assert dict(stage.counts(served, None)) == {"rollouts": 6, "tokens": 50}


def test_an_engine_that_is_lost_is_not_taken_for_a_refusal() -> None:
    class Dying(Uncertain):
        async def rollout(self, prompt_ids: Sequence[int], *, u_limit: float = math.inf) -> Rollout:
            raise EngineDead("gone")

    with pytest.raises(EngineDead, match="gone"):
        run(Dying(NU), probed(Uncertain(NU)))


class Hashed(Uncertain):
    """Any NU at all, by the passages shown, and a seed."""

    def __init__(self, seed: int) -> None:
        super().__init__({})
        self._seed = seed

    def nu(self, shown: tuple[str, ...]) -> float:
        digest = hashlib.sha256(repr((self._seed, shown)).encode()).digest()
        return float(np.float32(int.from_bytes(digest[:4], "big") / 2**32))

    async def rollout(self, prompt_ids: Sequence[int], *, u_limit: float = math.inf) -> Rollout:
        words = self.tokenizer.decode(prompt_ids).split()
        shown = tuple(word for word in words if word in WORDS)
        u_T = np.array([self.nu(shown)], np.float32)
        return Rollout((0,), u_T, np.full(1, 2, np.float32), None)


def brute_force(generator: Hashed, passages: int, rounds: int) -> list[tuple[int, float]]:
    """(position, gain) of each round, from every set's NU."""
    chosen: list[int] = []
    made = []
    for _ in range(min(rounds, passages)):
        before = generator.nu(tuple(WORDS[i] for i in chosen))
        left = [i for i in range(passages) if i not in chosen]
        after = {i: generator.nu(tuple(WORDS[j] for j in (*chosen, i))) for i in left}
        best = min(left, key=lambda i: (-np.float32(before - after[i]), i))
        made.append((best, float(np.float32(before - after[best]))))
        chosen.append(best)
    return made


@settings(max_examples=40)
@given(seed=st.integers(0, 10**6), passages=st.integers(0, 4), rounds=st.integers(0, 5))
def test_the_rounds_are_those_of_a_search_over_all_sets(
    seed: int, passages: int, rounds: int
) -> None:
    generator = Hashed(seed)
    block = probed(generator, passages=passages)
    (made,) = run(generator, block, max_rounds=rounds)
    expected = brute_force(generator, passages, rounds)
    assert list(zip(made["sets"]["positions"], made["sets"]["gains"], strict=True)) == expected
    # Round i of k asks all passages that are left after i - 1 choices; round 1 is the probe's.
    assert made["sets"]["rollouts"] == [passages - i if i else 0 for i in range(len(expected))]
    if expected:
        (gains,) = block["gains"].to_pylist()
        assert (expected[0][0], expected[0][1]) == (order(gains)[0], gains[order(gains)[0]])


@settings(max_examples=40)
@given(
    seed=st.integers(0, 10**6),
    thresholds=st.tuples(st.floats(-1, 1), st.floats(-1, 1)),
    rounds=st.tuples(st.integers(0, 4), st.integers(0, 4)),
)
def test_a_stricter_search_is_what_admission_makes_of_a_looser_one(
    seed: int, thresholds: tuple[float, float], rounds: tuple[int, int]
) -> None:
    generator = Hashed(seed)
    block = probed(generator, passages=4)
    (low, high), (few, many) = sorted(thresholds), sorted(rounds)
    (loose,) = run(generator, block, max_rounds=many, threshold=low)
    (strict,) = run(generator, block, max_rounds=few, threshold=high)
    found = loose["sets"]
    admitted = admit_rounds(found["positions"], found["gains"], threshold=high)[:few]
    kept = admit_rounds(strict["sets"]["positions"], strict["sets"]["gains"], threshold=high)
    assert kept == admitted


@pytest.mark.parametrize("north", [0.1, 0.15])
def test_a_gain_is_held_against_the_threshold_as_it_is_stored(north: float) -> None:
    # The difference needs more digits than float32 has: a threshold between it and what is
    # stored must be judged alike by the stage and by the admission that reads the stored gains.
    known = float(np.float32(north))
    exact, as_stored = 0.75 - known, float(np.float32(0.75 - known))
    assert exact != as_stored
    generator = Uncertain({(): 0.75, ("north",): known})
    block = probed(generator, passages=1)
    threshold = (exact + as_stored) / 2
    loose, strict = (
        run(generator, block, threshold=limit)[0]["sets"] for limit in (-math.inf, threshold)
    )
    assert strict["positions"] == loose["positions"]
    fresh = run(generator, block, threshold=threshold, earlier=pa.table({"sets": [loose]}))
    assert fresh[0]["sets"] == strict


def stored(*rows: Mapping[str, Any] | None) -> pa.Table:
    """Another plan's column of rounds."""
    return pa.table({"sets": pa.array([row and row["sets"] for row in rows], schema.SETS.type)})


@settings(max_examples=80)
@given(
    seed=st.integers(0, 10**6),
    passages=st.integers(0, 4),
    thresholds=st.tuples(st.floats(-1, 1), st.floats(-1, 1)),
    rounds=st.tuples(st.integers(0, 5), st.integers(0, 5)),
)
def test_rounds_taken_up_from_any_other_plan_are_those_of_a_fresh_computation(
    seed: int, passages: int, thresholds: tuple[float, float], rounds: tuple[int, int]
) -> None:
    generator = Hashed(seed)
    block = probed(generator, passages=passages)
    (theirs, ours), (many, few) = thresholds, rounds
    earlier = stored(*run(generator, block, max_rounds=many, threshold=theirs))
    fresh = run(generator, block, max_rounds=few, threshold=ours)
    assert run(generator, block, max_rounds=few, threshold=ours, earlier=earlier) == fresh


@pytest.mark.parametrize(
    ("theirs", "ours", "asked"),
    [
        ((5, -math.inf), (2, -math.inf), 0),
        ((5, -math.inf), (5, 0.25), 0),
        ((5, 0.125), (5, 0.25), 0),
        ((3, -math.inf), (5, -math.inf), 0),  # three passages: there is no fourth round
        ((5, 0.25), (5, 0.2), 0),  # the round that admitted nothing is known: 1/8
        ((5, 0.25), (5, 0.125), 3),
        ((2, -math.inf), (3, -math.inf), 3),
        ((0, -math.inf), (1, -math.inf), 0),  # the first round is the probe's
    ],
)
def test_a_question_is_probed_again_where_the_stored_rounds_do_not_suffice(
    theirs: tuple[int, float], ours: tuple[int, float], asked: int
) -> None:
    generator = Uncertain(NU)
    block = probed(generator)
    found = run(generator, block, max_rounds=theirs[0], threshold=theirs[1])
    generator.asked.clear()
    run(generator, block, max_rounds=ours[0], threshold=ours[1], earlier=stored(*found, None))
    assert len(generator.asked) == asked


def test_only_the_questions_that_other_plans_lack_are_probed_and_counted() -> None:
    def counted(max_rounds: int, *earlier: pa.Table) -> tuple[pa.Table, Any]:
        stage = probe_sets.stage(CFG, {}, max_rounds=max_rounds, threshold=-math.inf)
        transform = ProbeSets(CFG, generator, max_rounds, -math.inf)
        known = pa.concat_tables(earlier) if earlier else None
        part = asyncio.run(run_stage(stage, transform, whole, known))
        return part, dict(stage.counts(part, known))

    generator = Uncertain(NU)
    two, three = (probed(generator, passages=n) for n in (2, 3))
    whole = pa.concat_tables([two, three.set_column(0, "question_id", [["r"]])])
    whole = whole.append_column(schema.DEAD, pa.array([None, None], schema.DEAD.type))
    first, made = counted(2)
    # One rollout of 7 + 1 tokens for two passages, two of them for three.
    assert made == {"rollouts": 3, "tokens": 24}
    generator.asked.clear()
    second, made = counted(3, first.select(["sets"]))
    assert made == {"rollouts": 3, "tokens": 25}
    assert len(generator.asked) == 3
    third, made = counted(2, second.select(["sets"]), first.select(["sets"]))
    assert made == {"rollouts": 0, "tokens": 0}
    assert third.equals(first) and len(generator.asked) == 3


def test_rounds_of_other_passages_or_probes_are_not_taken_up() -> None:
    generator = Uncertain(NU)
    blocks = [
        probed(generator),
        probed(generator, passages=2),
        probed(Uncertain(NU | {(): 0.5})),
        probed(generator, CFG.model_copy(update={"free_rule_threshold": 0.8})),
    ]
    found = [run(generator, block)[0] for block in blocks]
    assert len({one["sets"]["key"] for one in found}) == len(found)
    earlier = stored(*found)
    assert [run(generator, block, earlier=earlier)[0] for block in blocks] == found


def test_plans_share_rounds_whatever_their_rounds_and_thresholds() -> None:
    def family(cfg: ProbeConfig = CFG, model: str = "m", **options: Any) -> Any:
        return probe_sets.stage(
            cfg, {"model": model}, **{"max_rounds": 2, "threshold": 0.0, **options}
        ).family

    assert family() == family(max_rounds=3) == family(threshold=-math.inf)
    assert family() != family(CFG.model_copy(update={"max_tokens": 5}))
    assert family() != family(model="other")


def test_blocks_of_any_size_give_the_same_rounds() -> None:
    generator = Hashed(7)
    blocks = [
        probed(generator, passages=n).set_column(0, "question_id", [[f"q{n}"]]) for n in range(4)
    ]
    apart = [run(generator, block)[0] for block in blocks]
    assert run(generator, pa.concat_tables(blocks)) == apart


def test_the_stage_depends_on_model_probe_rounds_and_threshold_and_not_on_traces() -> None:
    def depends_on(cfg: ProbeConfig = CFG, rounds: int = 2, threshold: float = 0.0) -> Any:
        return dict(probe_sets.stage(cfg, {}, max_rounds=rounds, threshold=threshold).depends_on)

    different = [
        depends_on(),
        depends_on(CFG.model_copy(update={"max_tokens": 5})),
        depends_on(rounds=3),
        depends_on(threshold=-math.inf),
        dict(probe_sets.stage(CFG, {"m": 1}, max_rounds=2, threshold=0.0).depends_on),
    ]
    assert all(one != other for i, one in enumerate(different) for other in different[:i])
    spared = CFG.model_copy(update={"trace": True, "free_rule_threshold": 0.1})
    assert depends_on(spared) == depends_on()
