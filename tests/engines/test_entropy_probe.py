"""The entropy processors on hand-made batches: which rows they rewrite, and to what."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from vllm import SamplingParams
from vllm.v1.sample.logits_processor import BatchUpdate, MoveDirectionality

from pipeline.core.uncertainty import step_uncertainty
from pipeline.engines.entropy_probe import (
    EntropyProbe,
    EntropyProbeV2,
    check_request,
    encode,
    first,
    largest,
    measure,
    places,
)
from pipeline.engines.probe_channel import ProbeRequest, read

V, K, MT, STOP, SLOTS = 50, 8, 6, 49, 5
TRACED = (K, 2, 4)


def params(*ks: int, limit: float = float("inf"), **changed: Any) -> SamplingParams:
    """A probe's sampling parameters."""
    probe = ProbeRequest(ks, limit, STOP)
    return SamplingParams(
        **{
            "temperature": 0,
            "logprobs": probe.entries,
            "max_tokens": MT,
            "stop_token_ids": [STOP],
            "extra_args": probe.extra_args(),
            **changed,
        }
    )


PROBE, PLAIN = params(K), SamplingParams(temperature=0)


def logits(rows: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(rows, V, generator=torch.Generator().manual_seed(seed)) * 3


def update(
    *, size: int, removed: Any = (), added: Any = (), moved: Any = (), emitted: Any = None
) -> BatchUpdate:
    lists = emitted or {}
    return BatchUpdate(
        batch_size=size,
        removed=list(removed),
        added=[(row, params, None, lists.get(row, [])) for row, params in added],
        moved=list(moved),
    )


def v1() -> EntropyProbe:
    config = SimpleNamespace(scheduler_config=SimpleNamespace(max_num_seqs=SLOTS))
    return EntropyProbe(config, torch.device("cpu"), False)


def rewritten(before: torch.Tensor, after: torch.Tensor) -> list[int]:
    return [row for row in range(len(before)) if not torch.equal(before[row], after[row])]


def returned(after: torch.Tensor, entries: int) -> "np.ndarray[Any, np.dtype[np.float32]]":
    """What vLLM returns of processed rows: the sampled token's value, and the largest ones."""
    top = after.topk(entries, dim=-1).values
    return torch.cat([after.max(-1, keepdim=True).values, top], dim=-1).numpy()


ROWS = st.lists(
    st.lists(st.sampled_from([-np.inf, -3.0, -0.5, 0.0, 2.0, 2.5]), min_size=8, max_size=8).filter(
        lambda row: max(row) > -np.inf
    ),
    min_size=1,
    max_size=5,
)


@given(rows=ROWS, ks=st.sampled_from([(8,), (8, 2, 4), (6, 2, 4), (2,)]))
def test_the_argmax_stays_and_the_entries_come_back_as_they_were_measured(
    rows: list[list[float]], ks: tuple[int, ...]
) -> None:
    before = torch.tensor(rows, dtype=torch.float32)
    processor = v1()
    added = [(row, params(*ks)) for row in range(len(rows))]
    processor.update_state(update(size=len(rows), added=added))
    after = processor.apply(before.clone())
    assert torch.equal(before.argmax(-1), after.argmax(-1))
    by_k, margin_T = read(returned(after, len(ks) + 1), ks)
    as_float64 = before.numpy().astype(np.float64)
    for k in ks:
        np.testing.assert_allclose(by_k[k], step_uncertainty(as_float64, k=k), atol=1e-6)
    first, second = np.sort(as_float64, axis=-1)[:, :-3:-1].T
    np.testing.assert_allclose(margin_T, first - second, rtol=1e-6)


@pytest.mark.parametrize("ks", [(K,), TRACED])
def test_logits_that_are_not_finite_make_no_number(ks: tuple[int, ...]) -> None:
    for wrong in (np.nan, np.inf):
        rows = logits(1)
        rows[0, 3] = wrong
        assert encode(measure(rows, ks))[0, :-1].isnan().all()
    assert measure(torch.full((1, V), -torch.inf), ks)[0].isnan().all()


@given(token=st.integers(0, V - 1), entries=st.integers(2, 9))
def test_the_entries_have_ids_of_their_own_and_the_first_has_the_token_s(
    token: int, entries: int
) -> None:
    (ids,) = places(torch.tensor([token]), entries).tolist()
    assert ids[0] == token and len(set(ids)) == entries
    assert max(ids[1:]) <= entries


def test_logits_of_any_size_leave_u_within_a_millionth() -> None:
    for scale in (1e-3, 1.0, 30.0, 1e4):
        rows = logits(64, seed=3) * scale
        by_k, _ = read(returned_rows(rows, TRACED), TRACED)
        for k in TRACED:
            expected = step_uncertainty(rows.numpy().astype(np.float64), k=k)
            np.testing.assert_allclose(by_k[k], expected, atol=2e-6)


def returned_rows(rows: torch.Tensor, ks: Sequence[int]) -> "np.ndarray[Any, np.dtype[np.float32]]":
    """What comes back for the rows, whatever processor wrote them."""
    after = torch.full_like(rows, -torch.inf)
    after.scatter_(-1, places(rows.argmax(-1), len(ks) + 1), encode(measure(rows, ks)))
    return returned(after, len(ks) + 1)


def test_v1_rewrites_probe_rows_alone() -> None:
    processor = v1()
    processor.update_state(update(size=3, added=[(0, PLAIN), (1, PROBE), (2, PLAIN)]))
    before = logits(3)
    after = processor.apply(before.clone())
    assert rewritten(before, after) == [1]
    expected = step_uncertainty(before[1:2].numpy().astype(np.float64), k=K)
    assert float(after[1].max()) == pytest.approx(expected[0], abs=1e-6)


def test_v1_without_probes_returns_the_logits_untouched() -> None:
    processor = v1()
    processor.update_state(update(size=2, added=[(0, PLAIN), (1, PLAIN)]))
    before = logits(2)
    assert processor.apply(before) is before


@pytest.mark.parametrize(
    ("way", "expected"),
    [(MoveDirectionality.UNIDIRECTIONAL, [0]), (MoveDirectionality.SWAP, [0])],
)
def test_v1_follows_a_row_that_moves(way: MoveDirectionality, expected: list[int]) -> None:
    processor = v1()
    processor.update_state(update(size=3, added=[(0, PLAIN), (1, PLAIN), (2, PROBE)]))
    processor.update_state(update(size=2, removed=[0], moved=[(2, 0, way)]))
    before = logits(2)
    assert rewritten(before, processor.apply(before.clone())) == expected


def test_v1_follows_a_swap_whichever_row_is_the_probe() -> None:
    for probe_row, plain_row in ((0, 1), (1, 0)):
        processor = v1()
        processor.update_state(update(size=2, added=[(probe_row, PROBE), (plain_row, PLAIN)]))
        processor.update_state(update(size=2, moved=[(0, 1, MoveDirectionality.SWAP)]))
        before = logits(2)
        assert rewritten(before, processor.apply(before.clone())) == [plain_row]


def test_v1_swaps_two_probes_and_a_plain_row() -> None:
    processor = v1()
    processor.update_state(update(size=3, added=[(0, PROBE), (1, PLAIN), (2, PROBE)]))
    processor.update_state(update(size=3, moved=[(0, 1, MoveDirectionality.SWAP)]))
    before = logits(3)
    assert rewritten(before, processor.apply(before.clone())) == [1, 2]


def test_v1_forgets_a_probe_whose_row_a_plain_request_takes() -> None:
    processor = v1()
    processor.update_state(update(size=1, added=[(0, PROBE)]))
    processor.update_state(update(size=1, removed=[0], added=[(0, PLAIN)]))
    before = logits(1)
    assert rewritten(before, processor.apply(before.clone())) == []


def test_two_values_of_k_in_one_engine_are_an_error() -> None:
    processor = v1()
    processor.update_state(update(size=2, added=[(0, PROBE), (1, params(4))]))
    with pytest.raises(ValueError, match=r"one K per engine, got \[\[4\], \[8\]\]"):
        processor.apply(logits(2))


def test_v1_has_a_slot_for_every_row_however_often_requests_come_and_go() -> None:
    processor = v1()
    processor.update_state(update(size=SLOTS, added=[(row, PROBE) for row in range(SLOTS)]))
    for _ in range(3):
        over = [(0, SLOTS - 1, MoveDirectionality.UNIDIRECTIONAL)]
        processor.update_state(update(size=SLOTS, removed=[1, 2], moved=over))
        processor.update_state(
            update(size=SLOTS, added=[(0, PROBE), (1, PROBE), (2, PROBE), (3, PROBE)])
        )
    before = logits(SLOTS)
    assert rewritten(before, processor.apply(before.clone())) == list(range(SLOTS))


class Engine:
    """Steps of greedy decoding over given logits, (T, B, V), with V1's processor in between."""

    def __init__(self, steps: torch.Tensor) -> None:
        self.processor, self.steps = v1(), steps
        self.emitted: dict[int, list[int]] = {row: [] for row in range(steps.shape[1])}

    def add(self, row: int, what: SamplingParams, emitted: list[int] | None = None) -> None:
        """A request enters the batch, or comes back with what it emitted before."""
        self.emitted[row] = [] if emitted is None else emitted
        size = self.steps.shape[1]
        self.processor.update_state(update(size=size, added=[(row, what)], emitted=self.emitted))

    def step(self, t: int, *, keep: bool = True) -> list[int]:
        """The tokens of a step; one that is not kept is thrown away, as of a partial prefill."""
        tokens: list[int] = self.processor.apply(self.steps[t].clone()).argmax(-1).tolist()
        if keep:
            for row, token in enumerate(tokens):
                self.emitted[row].append(token)
        return tokens


def sums(steps: torch.Tensor) -> "np.ndarray[Any, np.dtype[np.float64]]":
    """S_t of every row of (T, B, V) logits, (T, B)."""
    u_TB = np.stack([measure(step, (K,))[:, 0].numpy() for step in steps])
    return np.cumsum(u_TB.astype(np.float64), axis=0)


STEPS = torch.stack([logits(2, seed) for seed in range(MT)])
STEPS[:, :, STOP] = -20.0  # nothing ends by itself
S_TB = sums(STEPS)


@pytest.mark.parametrize("last", range(MT - 1))
def test_a_rollout_ends_at_the_step_whose_sum_exceeds_its_limit_and_returns_that_u(
    last: int,
) -> None:
    engine = Engine(STEPS)
    engine.add(0, params(K, limit=float(S_TB[last, 0]) - 1e-9))
    engine.add(1, params(K, limit=1e9))
    found = [engine.step(t) for t in range(last + 1)]
    own = STEPS[: last + 1].argmax(-1)
    assert [tokens[0] for tokens in found] == [*own[:last, 0].tolist(), STOP]
    assert [tokens[1] for tokens in found] == own[:, 1].tolist()
    values = engine.processor.apply(STEPS[last].clone())
    u = S_TB[last, 0] - (S_TB[last - 1, 0] if last else 0)
    assert float(values[0].max()) == pytest.approx(u, abs=1e-6)


def test_at_its_limit_a_rollout_goes_on() -> None:
    engine = Engine(STEPS)
    engine.add(0, params(K, limit=float(S_TB[2, 0])))
    assert STOP not in [engine.step(t)[0] for t in range(3)]
    assert engine.step(3)[0] == STOP


def test_a_step_that_is_thrown_away_is_not_counted() -> None:
    engine = Engine(STEPS)
    engine.add(0, params(K, limit=float(S_TB[2, 0])))
    for t in (5, 4, 5):  # a prefill in parts
        engine.step(t, keep=False)
    assert STOP not in [engine.step(t)[0] for t in range(3)]
    assert engine.step(3)[0] == STOP


def test_a_rollout_that_was_preempted_ends_later_if_at_all() -> None:
    engine = Engine(STEPS)
    engine.add(0, params(K, limit=float(S_TB[3, 0]) - 1e-9))
    engine.step(0)
    engine.step(1)
    engine.add(0, params(K, limit=float(S_TB[3, 0]) - 1e-9), list(engine.emitted[0]))
    found = [engine.step(t)[0] for t in range(2, MT)]
    later = S_TB[2:, 0] - S_TB[1, 0] > S_TB[3, 0] - 1e-9
    assert [token == STOP for token in found] == later.tolist()
    assert not later[:2].any()


def test_a_row_takes_its_sum_along_when_it_moves() -> None:
    for way in MoveDirectionality:
        engine = Engine(STEPS[:, :1].expand(-1, 2, -1))
        engine.add(0, params(K, limit=float(S_TB[2, 0])))
        engine.step(0)
        engine.processor.update_state(update(size=2, moved=[(0, 1, way)]))
        engine.emitted[0], engine.emitted[1] = engine.emitted[1], engine.emitted[0]
        assert STOP not in [engine.step(t)[1] for t in range(1, 3)]
        assert engine.step(3)[1] == STOP


def test_a_slot_that_is_taken_again_starts_at_nothing() -> None:
    engine = Engine(STEPS)
    limit = float(S_TB[1, 0])
    for _ in range(2 * SLOTS):
        engine.add(0, params(K, limit=limit))
        assert [engine.step(t)[0] == STOP for t in range(3)] == [False, False, True]


@dataclass
class Tensors:
    """vLLM's two copies of a buffer; the processor reads the device's."""

    gpu: torch.Tensor


@dataclass
class States:
    """The part of vLLM's request states that the processor reads."""

    max_num_reqs: int = 4
    device: str = "cpu"
    prefill_len: Tensors = field(default_factory=lambda: Tensors(torch.tensor([7, 9, 5, 3])))


@dataclass
class Context:
    """The part of vLLM's batch layout that the processor reads: row -> request slot, position."""

    slots: list[int]
    positions: Sequence[int] = ()

    @property
    def idx_mapping_np(self) -> "np.ndarray[Any, np.dtype[np.int32]]":
        return np.array(self.slots, dtype=np.int32)

    @property
    def expanded_idx_mapping(self) -> torch.Tensor:
        return torch.tensor(self.slots, dtype=torch.int32)

    @property
    def pos(self) -> torch.Tensor:
        return torch.tensor(self.positions)


def test_v2_rewrites_probe_slots_wherever_their_rows_are() -> None:
    processor = EntropyProbeV2(None, States())
    assert processor.add_request(3, PROBE)
    assert not processor.add_request(0, PLAIN)
    before = logits(2)
    for slots, expected in (([3, 0], [0]), ([0, 3], [1])):
        after = processor.apply(before.clone(), Context(slots))
        assert rewritten(before, after) == expected


def test_v2_forgets_a_probe_whose_slot_a_plain_request_takes() -> None:
    processor = EntropyProbeV2(None, States())
    processor.add_request(1, PROBE)
    processor.add_request(1, PLAIN)
    before = logits(1)
    assert processor.apply(before, Context([1])) is before


@pytest.mark.parametrize("ks", [(K,), TRACED])
def test_both_processors_make_the_same_of_the_same_rows(ks: tuple[int, ...]) -> None:
    first, second = v1(), EntropyProbeV2(None, States())
    first.update_state(update(size=2, added=[(0, params(*ks)), (1, PLAIN)]))
    second.add_request(2, params(*ks))
    second.add_request(1, PLAIN)
    rows = logits(2)
    by_v2 = second.apply(rows.clone(), Context([2, 1]))
    assert torch.equal(first.apply(rows.clone()), by_v2)


def test_v2_ends_a_rollout_by_its_position_after_the_prefill() -> None:
    processor = EntropyProbeV2(None, States())
    for _ in range(2):  # a slot that is taken again starts at nothing
        assert processor.add_request(2, params(K, limit=float(S_TB[2, 0])))
        assert not processor.add_request(1, PLAIN)
        found = []
        # Slot 2 has a prefill of 5: positions 2 and 3 are parts of it, position 4 is step 0.
        for position, t in ((2, 5), (3, 4), (4, 0), (5, 1), (6, 2), (7, 3)):
            rows = STEPS[t][[1, 0]]
            after = processor.apply(rows.clone(), Context([1, 2], [8, position]))
            assert torch.equal(after[0], rows[0])
            found.append(int(after[1].argmax()))
        assert [token == STOP for token in found[2:]] == [False, False, False, True]


WRONG: list[tuple[SamplingParams, str]] = [
    (params(K, temperature=1), "temperature=0 and logprobs=2, got 1 and 2"),
    (params(K, logprobs=5), "logprobs=2, got 0 and 5"),
    (params(*TRACED, logprobs=2), "logprobs=4, got 0 and 2"),
    (params(1), "K >= 2"),
    (params(4, 8), r"largest K first and K >= 2, got \[4, 8\]"),
    (params(K, limit=1.0, stop_token_ids=[3]), r"needs token 49 in stop_token_ids, got \[3\]"),
]


@pytest.mark.parametrize(("wrong", "message"), WRONG)
def test_a_probe_with_settings_that_spoil_u_is_refused(wrong: SamplingParams, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        check_request(wrong)


def test_other_requests_are_free_in_their_settings() -> None:
    check_request(SamplingParams(temperature=1, logprobs=5))
    for probe in (PROBE, params(*TRACED), params(K, limit=1.0)):
        check_request(probe)


@given(
    levels=st.integers(1, 40),
    width=st.sampled_from([33, 96, 300, 1000]),
    k=st.integers(1, 33),
    seed=st.integers(0, 2**31),
    special=st.sampled_from([None, -torch.inf, torch.inf, torch.nan]),
)
def test_the_largest_by_blocks_are_those_of_the_whole_row(
    levels: int, width: int, k: int, seed: int, special: float | None
) -> None:
    """With few levels most values are equal; the special one is put at a third of the places."""
    source = torch.Generator().manual_seed(seed)
    rows = torch.randint(levels, (3, width), generator=source).float()
    if special is not None:
        rows[torch.rand(3, width, generator=source) < 1 / 3] = special
    expected = rows.topk(k, dim=-1).values
    assert torch.equal(largest(rows, k).nan_to_num(nan=1e9), expected.nan_to_num(nan=1e9))
    assert torch.equal(first(rows), rows.argmax(-1))
