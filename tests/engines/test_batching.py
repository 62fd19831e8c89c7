"""Tests of pipeline.engines.batching."""

import asyncio
import threading
from collections.abc import Sequence

import pytest

from pipeline.engines.batching import Batcher

WAIT_SECONDS = 20
"""After which a caller that hangs fails its test."""


class Model:
    """Doubles numbers; keeps the batches; a number of the kind that it cannot take fails all."""

    def __init__(self, size: int = 3) -> None:
        self.batches: list[list[int]] = []
        self.batcher: Batcher[int, int] = Batcher(
            self.run, size=size, kind=lambda n: n % 2, length=lambda n: n
        )

    def run(self, batch: Sequence[int]) -> list[int]:
        self.batches.append(list(batch))
        if 13 in batch:
            raise ArithmeticError("thirteen")
        return [2 * n for n in batch]

    def ask(self, numbers: Sequence[int]) -> list[int | BaseException]:
        async def go() -> list[int | BaseException]:
            asked = (self.batcher.submit(n) for n in numbers)
            return list(await asyncio.gather(*asked, return_exceptions=True))

        return asyncio.run(go())


def test_requests_of_one_turn_run_together_in_batches_of_one_kind_shortest_first() -> None:
    model = Model()
    assert model.ask([8, 5, 2, 6, 4, 3]) == [16, 10, 4, 12, 8, 6]
    assert model.batches == [[2, 4, 6], [3, 5], [8]] or model.batches == [[2, 4, 6], [8], [3, 5]]
    assert all(len({n % 2 for n in batch}) == 1 for batch in model.batches)


def test_an_error_reaches_every_request_of_its_batch_and_no_other() -> None:
    model = Model()
    found = model.ask([1, 13, 2])
    assert [type(one) for one in found] == [ArithmeticError, ArithmeticError, int]
    assert found[2] == 4


def test_equal_requests_each_have_their_answer() -> None:
    assert Model(size=2).ask([4, 4, 4]) == [8, 8, 8]


@pytest.mark.parametrize("turns", [1, 3])
def test_requests_of_later_turns_are_served_too(turns: int) -> None:
    model = Model()

    async def go() -> list[int]:
        return [await model.batcher.submit(2 * turn) for turn in range(turns)]

    assert asyncio.run(go()) == [4 * turn for turn in range(turns)]
    assert len(model.batches) == turns


@pytest.mark.parametrize("numbers", [[2, 4, 6], [2, 4, 13, 6]])
def test_a_request_cancelled_while_its_batch_runs_leaves_the_others_served(
    numbers: list[int],
) -> None:
    started, released = threading.Event(), threading.Event()

    def run(batch: Sequence[int]) -> list[int]:
        started.set()
        released.wait(WAIT_SECONDS)
        if 13 in batch:
            raise ArithmeticError("thirteen")
        return [2 * n for n in batch]

    batcher: Batcher[int, int] = Batcher(run, size=9, kind=lambda _: 0, length=lambda n: n)

    async def go() -> list[int | BaseException]:
        asked = [asyncio.ensure_future(batcher.submit(n)) for n in numbers]
        await asyncio.to_thread(started.wait, WAIT_SECONDS)
        asked[0].cancel()
        released.set()
        together = asyncio.gather(*asked, return_exceptions=True)
        return list(await asyncio.wait_for(together, WAIT_SECONDS))

    cancelled, *others = asyncio.run(go())
    assert isinstance(cancelled, asyncio.CancelledError)
    if 13 in numbers:
        assert all(isinstance(one, ArithmeticError) for one in others)
    else:
        assert others == [8, 12]


def test_a_request_cancelled_before_its_batch_runs_is_left_out() -> None:
    model = Model()

    async def go() -> int:
        asked = [asyncio.ensure_future(model.batcher.submit(n)) for n in (2, 4)]
        await asyncio.sleep(0)
        asked[0].cancel()
        return await asyncio.wait_for(asked[1], WAIT_SECONDS)

    assert asyncio.run(go()) == 8
    assert model.batches == [[4]]


@pytest.mark.parametrize("outputs", [[1], [1, 2, 3]])
def test_a_wrong_number_of_outputs_fails_every_caller(outputs: list[int]) -> None:
    batcher: Batcher[int, int] = Batcher(
        lambda _: outputs, size=9, kind=lambda _: 0, length=lambda n: n
    )

    async def go() -> list[int | BaseException]:
        together = asyncio.gather(*map(batcher.submit, (2, 4)), return_exceptions=True)
        return list(await asyncio.wait_for(together, WAIT_SECONDS))

    found = asyncio.run(go())
    assert [str(one) for one in found] == [f"{len(outputs)} outputs for 2 requests"] * 2
