"""A lease on a directory: one driver writes it, a second one is refused.

The holder renews its heartbeat every few seconds. A lease whose holder is a dead process of
this host is taken over at once; any other only when its heartbeat is older than `EXPIRY_SECONDS`
by the reader's clock.
"""

import json
import os
import socket
import threading
import time
import uuid
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from pipeline.runs.storage import Storage

EXPIRY_SECONDS = 60.0
HEARTBEAT_SECONDS = 10.0
NAME = "lease.json"


class LeaseHeld(RuntimeError):
    """Another driver is at work on the directory; the message is one line for the user."""


@contextmanager
def hold(storage: Storage, folders: Sequence[str]) -> Iterator[None]:
    """Holds the leases of all folders, with heartbeats, until the block ends.

    LeaseHeld when one is taken; those already taken by this call are given back.
    """
    owner = uuid.uuid4().hex
    with ExitStack() as held:
        for folder in folders:
            path = f"{folder}/{NAME}"
            _take(storage, path, owner)
            held.callback(_release, storage, path, owner)
        stop = threading.Event()
        beat = threading.Thread(target=_beat, args=(storage, folders, owner, stop), daemon=True)
        beat.start()
        try:
            yield
        finally:
            stop.set()
            beat.join()


def _entry(owner: str) -> bytes:
    entry = {
        "owner": owner,
        "host": socket.gethostname(),
        "pid": os.getpid(),
        "process_start": _process_start(os.getpid()),
        "heartbeat": time.time(),
    }
    return json.dumps(entry).encode()


def _take(storage: Storage, path: str, owner: str) -> None:
    if storage.create_exclusive(path, _entry(owner)):
        return
    holder = _read(storage, path)
    if holder is not None and _alive(holder):
        age = time.time() - holder["heartbeat"]
        raise LeaseHeld(
            f"{storage.uri(path)}: held by process {holder['pid']} on {holder['host']}, "
            f"heartbeat {age:.0f} s ago (it lapses after {EXPIRY_SECONDS:.0f} s)"
        )
    storage.write_bytes(path, _entry(owner))
    taken = _read(storage, path)
    if taken is None or taken["owner"] != owner:
        raise LeaseHeld(f"{storage.uri(path)}: another driver took it at the same moment")


def _read(storage: Storage, path: str) -> dict[str, Any] | None:
    """The lease's entry; None when it is gone or was cut short by a crash."""
    try:
        entry: dict[str, Any] = storage.read_json(path)
    except (FileNotFoundError, json.JSONDecodeError):
        return None
    return entry


def _alive(holder: dict[str, Any]) -> bool:
    if holder["host"] == socket.gethostname():
        return holder["process_start"] == _process_start(holder["pid"])
    return bool(time.time() - holder["heartbeat"] < EXPIRY_SECONDS)


def _process_start(pid: int) -> str | None:
    """When a process of this host started, in clock ticks since boot; None when it is dead.

    With the start time, a re-used process id is not taken for the old holder.
    """
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except FileNotFoundError:
        return None
    return stat.rpartition(")")[2].split()[19]


def _beat(storage: Storage, folders: Sequence[str], owner: str, stop: threading.Event) -> None:
    while not stop.wait(HEARTBEAT_SECONDS):
        for folder in folders:
            storage.write_bytes(f"{folder}/{NAME}", _entry(owner))


def _release(storage: Storage, path: str, owner: str) -> None:
    holder = _read(storage, path)
    if holder is not None and holder["owner"] == owner:
        storage.delete(path)
