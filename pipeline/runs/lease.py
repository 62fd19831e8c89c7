"""A lease on a directory: one driver writes it, a second one is refused.

The holder renews its heartbeat every few seconds. A lease of this host is taken over at once when
its process is dead, and never while it lives; one of another host when its heartbeat is further
than `EXPIRY_SECONDS` from the reader's clock and stands still while the reader looks on, so a clock
that was set, there or here, neither steals a lease nor keeps one for ever. A "host" is one boot of
one machine and one process namespace of it, so containers that share a name do not take each
other's leases for dead.
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
SETTLE_SECONDS = 0.5
"""How long after another driver's look at a lease its write may follow."""
WATCH_SECONDS = 2.5 * HEARTBEAT_SECONDS
"""How long a heartbeat must stand still to be that of a dead driver."""
NAME = "lease.json"


class LeaseHeld(RuntimeError):
    """Another driver is at work on the directory; the message is one line for the user."""


@contextmanager
def hold(storage: Storage, folders: Sequence[str]) -> Iterator[threading.Event]:
    """Holds the leases of all folders, with heartbeats, until the block ends.

    Gives an event that is set once a lease is lost: another driver took it while this process
    stood still, or no heartbeat could be written for as long as a lease lives. The holder must
    stop then. LeaseHeld when one is taken; those already taken by this call are given back.
    """
    owner = uuid.uuid4().hex
    paths = [f"{folder}/{NAME}" for folder in folders]
    dead: set[str] = set()
    with ExitStack() as held:
        contested = False
        for path in paths:
            contested |= not _take(storage, path, owner, dead)
            held.callback(_release, storage, path, owner)
        if contested:
            time.sleep(SETTLE_SECONDS)
            _check_owner(storage, paths, owner)
        stop, lost = threading.Event(), threading.Event()
        arguments = (storage, paths, owner, stop, lost)
        beat = threading.Thread(target=_beat, args=arguments, daemon=True)
        beat.start()
        try:
            yield lost
        finally:
            stop.set()
            beat.join()


def holder(storage: Storage, folder: str) -> str | None:
    """Who holds a folder's lease, in a few words; None where nobody does.

    At a glance: a driver of another host whose clock is far from ours may pass for dead.
    """
    entry = _read(storage, f"{folder}/{NAME}")
    if entry is None or not _told(entry):
        return None
    return f"process {entry['pid']} on {entry['host']}"


def _entry(owner: str) -> bytes:
    entry = {
        "owner": owner,
        "host": socket.gethostname(),
        "place": _place(),
        "pid": os.getpid(),
        "process_start": _process_start(os.getpid()),
        "heartbeat": time.time(),
    }
    return json.dumps(entry).encode()


def _take(storage: Storage, path: str, owner: str, dead: set[str]) -> bool:
    """Whether it is surely ours; if not, another driver may have written at the same moment.

    `dead` are owners that were found so, to which this lease's may be added.
    """
    if storage.create_exclusive(path, _entry(owner)):
        return storage.local
    holder = _read(storage, path)
    if holder is None:  # gone, cut short by a crash, or about to be written
        time.sleep(SETTLE_SECONDS)
        holder = _read(storage, path)
    if holder is not None and holder["owner"] not in dead:
        if _alive(storage, path, holder):
            age = time.time() - holder["heartbeat"]
            raise LeaseHeld(
                f"{storage.uri(path)}: held by process {holder['pid']} on {holder['host']}, "
                f"heartbeat {age:.0f} s ago (it lapses when that process is dead, or, on another "
                f"host, after {EXPIRY_SECONDS:.0f} s)"
            )
        dead.add(holder["owner"])
    storage.write_bytes(path, _entry(owner))
    return False


def _check_owner(storage: Storage, paths: Sequence[str], owner: str) -> None:
    for path in paths:
        if not _is_ours(storage, path, owner):
            raise LeaseHeld(f"{storage.uri(path)}: another driver took it at the same moment")


def _is_ours(storage: Storage, path: str, owner: str) -> bool:
    holder = _read(storage, path)
    return holder is not None and holder["owner"] == owner


def _read(storage: Storage, path: str) -> dict[str, Any] | None:
    """The lease's entry; None when it is gone or was cut short by a crash."""
    try:
        entry: dict[str, Any] = storage.read_json(path)
    except (FileNotFoundError, json.JSONDecodeError):
        return None
    return entry


def _alive(storage: Storage, path: str, holder: dict[str, Any]) -> bool:
    if (told := _told(holder)) is not None:
        return told
    time.sleep(WATCH_SECONDS)  # its clock and ours may tell different times; a beat is a beat
    return _read(storage, path) not in (None, holder)


def _told(holder: dict[str, Any]) -> bool | None:
    """Whether it lives, by its process or its last beat; None where that was long ago."""
    here = holder["place"] == _place()
    if here and holder["process_start"] is not None:
        return bool(holder["process_start"] == _process_start(holder["pid"]))
    return True if abs(time.time() - holder["heartbeat"]) < EXPIRY_SECONDS else None


def _place() -> str:
    """This boot of this machine and this process namespace; the name alone where /proc is not."""
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
        return f"{socket.gethostname()} {boot} {os.readlink('/proc/self/ns/pid')}"
    except OSError:
        return socket.gethostname()


def _process_start(pid: int) -> str | None:
    """When a process of this host started, in clock ticks since boot; None when it has ended.

    With the start time, a re-used process id is not taken for the old holder.
    """
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except FileNotFoundError:
        return None
    fields = stat.rpartition(")")[2].split()
    ended = fields[0] in "ZX"  # a killed process that its parent has not yet waited for
    return None if ended else fields[19]


def _beat(
    storage: Storage,
    paths: Sequence[str],
    owner: str,
    stop: threading.Event,
    lost: threading.Event,
) -> None:
    last = time.monotonic()
    while not stop.wait(HEARTBEAT_SECONDS) and not lost.is_set():
        try:
            for path in paths:
                if not _is_ours(storage, path, owner):
                    lost.set()
                    return
                storage.write_bytes(path, _entry(owner))
            last = time.monotonic()
        except OSError:  # the next beat makes up for one that the store refused
            if time.monotonic() - last > EXPIRY_SECONDS:
                lost.set()


def _release(storage: Storage, path: str, owner: str) -> None:
    if _is_ours(storage, path, owner):
        storage.delete(path)
