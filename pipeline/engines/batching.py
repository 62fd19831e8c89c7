"""Requests of many coroutines, gathered into batches for a model that runs one at a time."""

import asyncio
from collections.abc import Callable, Hashable, Sequence
from typing import Generic, TypeVar

Request = TypeVar("Request")
Output = TypeVar("Output")


class Batcher(Generic[Request, Output]):
    """Calls `run` in a thread with at most `size` requests of one `kind`, shortest first.

    `run` gives one output a request, in order; any other number is a RuntimeError for all of
    them. A request that was cancelled is left out, or its output thrown away.
    """

    def __init__(
        self,
        run: Callable[[Sequence[Request]], Sequence[Output]],
        *,
        size: int,
        kind: Callable[[Request], Hashable],
        length: Callable[[Request], int],
    ) -> None:
        self._run, self._size, self._kind, self._length = run, size, kind, length
        self._waiting: list[tuple[Request, asyncio.Future[Output]]] = []
        self._worker: asyncio.Task[None] | None = None

    async def submit(self, request: Request) -> Output:
        """The request's output, once the batch that it came into has run."""
        future: asyncio.Future[Output] = asyncio.get_running_loop().create_future()
        self._waiting.append((request, future))
        if self._worker is None or self._worker.done():
            self._worker = asyncio.create_task(self._drain())
        return await future

    async def _drain(self) -> None:
        while self._waiting:
            await asyncio.sleep(0)  # let the other coroutines of this turn add theirs
            self._waiting = [pair for pair in self._waiting if not pair[1].done()]
            if not self._waiting:
                return
            batch = self._take()
            try:
                outputs = await asyncio.to_thread(self._run, [request for request, _ in batch])
                if len(outputs) != len(batch):
                    raise RuntimeError(f"{len(outputs)} outputs for {len(batch)} requests")
            except Exception as error:  # handed to every waiting caller, not swallowed
                for _, future in batch:
                    if not future.done():
                        future.set_exception(error)
                continue
            for (_, future), output in zip(batch, outputs, strict=True):
                if not future.done():
                    future.set_result(output)

    def _take(self) -> list[tuple[Request, "asyncio.Future[Output]"]]:
        kind = self._kind(self._waiting[0][0])
        alike = [pair for pair in self._waiting if self._kind(pair[0]) == kind]
        batch = sorted(alike, key=lambda pair: self._length(pair[0]))[: self._size]
        taken = {id(future) for _, future in batch}
        self._waiting = [pair for pair in self._waiting if id(pair[1]) not in taken]
        return batch
