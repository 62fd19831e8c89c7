"""SIGTERM as an exception, for a driver before, while and after it uses Ray."""

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

from pipeline.cluster.errors import Stopped


@contextmanager
def sigterm_raises() -> Iterator[None]:
    """SIGTERM raises Stopped, so that leases and Ray are given back on the way out.

    Ray sets a handler of its own when it starts: this one must come again after that.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def stop(number: int, frame: FrameType | None) -> None:
        raise Stopped(f"stopped by signal {number}; the same command goes on from here")

    before = signal.signal(signal.SIGTERM, stop)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)
