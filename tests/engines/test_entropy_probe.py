"""The entropy processors on hand-made batches: which rows they rewrite, and to what."""

from dataclasses import dataclass
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
    topk_entropy,
    write_at_argmax,
)

V, K = 50, 8
PROBE = SamplingParams(temperature=0, logprobs=2, extra_args={"igp": {"k": K}})
PLAIN = SamplingParams(temperature=0)


def logits(rows: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(rows, V, generator=torch.Generator().manual_seed(seed)) * 3


def update(*, size: int, removed: Any = (), added: Any = (), moved: Any = ()) -> BatchUpdate:
    return BatchUpdate(
        batch_size=size,
        removed=list(removed),
        added=[(row, params, None, []) for row, params in added],
        moved=list(moved),
    )


def v1() -> EntropyProbe:
    return EntropyProbe(None, torch.device("cpu"), False)


def rewritten(before: torch.Tensor, after: torch.Tensor) -> list[int]:
    return [row for row in range(len(before)) if not torch.equal(before[row], after[row])]


@given(
    rows=st.lists(st.lists(st.integers(-3, 3), min_size=4, max_size=4), min_size=1, max_size=5),
    u=st.floats(0, 1),
)
def test_the_argmax_stays_and_carries_u_and_all_else_is_below_zero(
    rows: list[list[int]], u: float
) -> None:
    before = torch.tensor(rows, dtype=torch.float32)
    after = write_at_argmax(before, torch.full((len(rows),), u))
    assert torch.equal(before.argmax(-1), after.argmax(-1))
    top = before == before.amax(-1, keepdim=True)
    assert torch.equal(after[top], torch.full_like(after[top], u))
    assert (after[~top] < 0).all()


def test_the_entropy_is_that_of_the_core() -> None:
    rows = logits(6)
    expected = step_uncertainty(rows.numpy().astype(np.float64), k=K)
    np.testing.assert_allclose(topk_entropy(rows, K).numpy(), expected, atol=1e-6)


def test_v1_rewrites_probe_rows_alone() -> None:
    processor = v1()
    processor.update_state(update(size=3, added=[(0, PLAIN), (1, PROBE), (2, PLAIN)]))
    before = logits(3)
    after = processor.apply(before.clone())
    assert rewritten(before, after) == [1]
    assert after[1].max() == pytest.approx(float(topk_entropy(before[1:2], K)[0]))


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
    other = SamplingParams(temperature=0, logprobs=2, extra_args={"igp": {"k": 4}})
    processor = v1()
    processor.update_state(update(size=2, added=[(0, PROBE), (1, other)]))
    with pytest.raises(ValueError, match=r"one K per engine, got \[4, 8\]"):
        processor.apply(logits(2))


@dataclass
class States:
    """The part of vLLM's request states that the processor reads."""

    max_num_reqs: int = 4
    device: str = "cpu"


@dataclass
class Context:
    """The part of vLLM's batch layout that the processor reads: row -> request slot."""

    slots: list[int]

    @property
    def idx_mapping_np(self) -> "np.ndarray[Any, np.dtype[np.int32]]":
        return np.array(self.slots, dtype=np.int32)

    @property
    def expanded_idx_mapping(self) -> torch.Tensor:
        return torch.tensor(self.slots, dtype=torch.int32)


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


def test_both_processors_make_the_same_of_the_same_rows() -> None:
    first, second = v1(), EntropyProbeV2(None, States())
    first.update_state(update(size=2, added=[(0, PROBE), (1, PLAIN)]))
    second.add_request(2, PROBE)
    second.add_request(1, PLAIN)
    rows = logits(2)
    by_v2 = second.apply(rows.clone(), Context([2, 1]))
    assert torch.equal(first.apply(rows.clone()), by_v2)


@pytest.mark.parametrize(
    ("params", "message"),
    [
        (SamplingParams(temperature=1, logprobs=2, extra_args={"igp": {"k": 8}}), "temperature=0"),
        (SamplingParams(temperature=0, logprobs=5, extra_args={"igp": {"k": 8}}), "logprobs=2"),
        (SamplingParams(temperature=0, logprobs=2, extra_args={"igp": {"k": 1}}), "K >= 2"),
    ],
)
def test_a_probe_with_settings_that_spoil_u_is_refused(
    params: SamplingParams, message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        check_request(params)


def test_other_requests_are_free_in_their_settings() -> None:
    check_request(SamplingParams(temperature=1, logprobs=5))
