"""Tests of pipeline.runs.lease: one driver at a time, and none locked out by a dead one."""

import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from pipeline.runs import lease
from pipeline.runs.lease import LeaseHeld, hold
from pipeline.runs.storage import Storage

HOLD_UNTIL_KILLED = """
import sys, time
from pipeline.runs.lease import hold
from pipeline.runs.storage import Storage
with hold(Storage(sys.argv[1]), ["run"]):
    print("held", flush=True)
    time.sleep(600)
"""


@pytest.fixture
def storage(tmp_path: Path) -> Storage:
    """An empty local folder."""
    return Storage(str(tmp_path))


@pytest.fixture(autouse=True)
def _short_settling(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lease, "SETTLE_SECONDS", 0.05)


@pytest.fixture
def other_driver(tmp_path: Path) -> Iterator["subprocess.Popen[str]"]:
    """A process of its own that holds the lease of `run`."""
    command = [sys.executable, "-c", HOLD_UNTIL_KILLED, str(tmp_path)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "held\n"
        yield process
        process.kill()


def entry(storage: Storage, folder: str = "run") -> dict[str, Any]:
    """The lease as it lies in a folder."""
    found = storage.read_json(f"{folder}/lease.json")
    assert isinstance(found, dict)
    return found


def leave(storage: Storage, **changes: Any) -> None:
    """Leaves a lease of this process, with changes, that nobody renews."""
    with hold(storage, ["run"]):
        left = entry(storage) | changes
    storage.write_json("run/lease.json", left)


def test_the_lease_names_its_holder_and_is_gone_at_the_end(storage: Storage) -> None:
    with hold(storage, ["run", "stages/probe-0"]):
        for folder in ("run", "stages/probe-0"):
            found = entry(storage, folder)
            assert found["pid"] == os.getpid()
            assert found["host"] == socket.gethostname()
            assert abs(found["heartbeat"] - time.time()) < 5
    assert not storage.exists("run/lease.json")
    assert not storage.exists("stages/probe-0/lease.json")


def test_the_lease_is_released_on_an_exception(storage: Storage) -> None:
    with pytest.raises(ZeroDivisionError), hold(storage, ["run"]):
        raise ZeroDivisionError
    assert not storage.exists("run/lease.json")


def test_a_second_holder_is_refused_with_process_and_host(storage: Storage) -> None:
    with hold(storage, ["run"]):
        before = entry(storage)
        with pytest.raises(LeaseHeld) as caught, hold(storage, ["run"]):
            pass
        message = str(caught.value)
        assert f"process {os.getpid()} on {socket.gethostname()}" in message
        assert message.startswith(storage.uri("run/lease.json"))
        assert entry(storage) == before


def test_leases_taken_before_the_refusal_are_given_back(storage: Storage) -> None:
    with hold(storage, ["b"]):
        with pytest.raises(LeaseHeld), hold(storage, ["a", "b", "c"]):
            pass
        assert not storage.exists("a/lease.json")
        assert not storage.exists("c/lease.json")
        assert storage.exists("b/lease.json")


def test_other_folders_can_be_held_at_the_same_time(storage: Storage) -> None:
    with hold(storage, ["a"]), hold(storage, ["b"]):
        assert storage.exists("a/lease.json") and storage.exists("b/lease.json")


def test_a_process_at_work_is_refused_and_a_killed_one_replaced_at_once(
    storage: Storage, other_driver: "subprocess.Popen[str]"
) -> None:
    with pytest.raises(LeaseHeld, match=f"process {other_driver.pid} "), hold(storage, ["run"]):
        pass
    other_driver.send_signal(signal.SIGKILL)
    os.waitid(os.P_PID, other_driver.pid, os.WEXITED | os.WNOWAIT)  # dead, but not yet reaped
    with hold(storage, ["run"]):
        assert entry(storage)["pid"] == os.getpid()
    assert not storage.exists("run/lease.json")


def test_a_stopped_process_still_holds_its_lease(
    storage: Storage, other_driver: "subprocess.Popen[str]"
) -> None:
    left = entry(storage)
    other_driver.send_signal(signal.SIGSTOP)
    storage.write_json("run/lease.json", left | {"heartbeat": time.time() - 1e6})
    with pytest.raises(LeaseHeld), hold(storage, ["run"]):
        pass


def test_a_process_id_that_was_used_again_is_not_the_holder(storage: Storage) -> None:
    leave(storage, process_start="1")
    with hold(storage, ["run"]):
        assert entry(storage)["process_start"] != "1"


def test_a_process_id_that_nobody_has_is_not_the_holder(storage: Storage) -> None:
    leave(storage, pid=2**22 + 1)  # beyond the largest id of Linux
    with hold(storage, ["run"]):
        assert entry(storage)["pid"] == os.getpid()


def test_a_fresh_lease_of_another_host_is_refused(storage: Storage) -> None:
    leave(
        storage,
        host="elsewhere",
        place="elsewhere",
        heartbeat=time.time() - lease.EXPIRY_SECONDS + 10,
    )
    with pytest.raises(LeaseHeld, match="on elsewhere, heartbeat 50 s ago"), hold(storage, ["run"]):
        pass
    assert entry(storage)["host"] == "elsewhere"


def test_a_lapsed_lease_of_another_host_is_taken_over(
    storage: Storage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lease, "WATCH_SECONDS", 0.05)
    leave(
        storage,
        host="elsewhere",
        place="elsewhere",
        heartbeat=time.time() - lease.EXPIRY_SECONDS - 1,
    )
    with hold(storage, ["run"]):
        assert entry(storage)["host"] == socket.gethostname()


def test_a_fresh_lease_of_another_process_namespace_of_the_same_host_is_refused(
    storage: Storage,
) -> None:
    # Its process id means nothing here: that no such process lives here does not make it dead.
    leave(storage, place="another container", pid=2**22 + 1, process_start="1")
    with pytest.raises(LeaseHeld), hold(storage, ["run"]):
        pass


@pytest.mark.parametrize("kept", [0, 1, 40])
def test_a_lease_cut_short_by_a_crash_is_taken_over(storage: Storage, kept: int) -> None:
    leave(storage)
    whole = storage.read_bytes("run/lease.json")
    storage.write_bytes("run/lease.json", whole[:kept])
    with hold(storage, ["run"]):
        assert entry(storage)["pid"] == os.getpid()


def wait_for_beat(storage: Storage, after: float) -> float:
    """The first heartbeat later than `after`; fails when there is none in 5 s."""
    deadline = time.monotonic() + 5
    while time.monotonic() < deadline:
        if (beat := float(entry(storage)["heartbeat"])) > after:
            return beat
        time.sleep(0.005)
    raise AssertionError("no heartbeat")


def test_heartbeats_renew_the_lease(storage: Storage, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lease, "HEARTBEAT_SECONDS", 0.01)
    with hold(storage, ["run"]):
        first = entry(storage)
        beat = wait_for_beat(storage, first["heartbeat"])
        wait_for_beat(storage, beat)
        assert entry(storage) | {"heartbeat": 0} == first | {"heartbeat": 0}


def test_a_heartbeat_that_the_disk_refuses_is_made_up_for(
    storage: Storage, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lease, "HEARTBEAT_SECONDS", 0.01)
    with hold(storage, ["run"]):
        lost = tmp_path / "run" / "lease.json"
        kept = lost.rename(tmp_path / "kept")
        lost.mkdir()  # every read and write of the lease now fails
        time.sleep(0.1)
        lost.rmdir()
        kept.rename(lost)
        wait_for_beat(storage, time.time())


def test_a_lease_that_another_driver_took_is_neither_renewed_nor_deleted(
    storage: Storage, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Beats far apart: one that has read the lease before it is taken would write it once more.
    monkeypatch.setattr(lease, "HEARTBEAT_SECONDS", 0.5)
    with hold(storage, ["run"]):
        storage.write_json("run/lease.json", entry(storage) | {"owner": "another"})
        time.sleep(1.2)
        assert entry(storage)["owner"] == "another"
    assert entry(storage)["owner"] == "another"


@pytest.mark.parametrize("left", ["nothing", "a dead lease", "a cut lease"])
def test_of_many_drivers_at_once_never_two_hold_the_lease(
    storage: Storage, left: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lease, "SETTLE_SECONDS", 0.5)  # as in earnest: the disk may be slow
    if left != "nothing":
        leave(storage, process_start="1")
    if left == "a cut lease":
        storage.write_bytes("run/lease.json", b"{")
    gate, over = threading.Barrier(4), threading.Barrier(4)
    outcomes: list[str] = []

    def drive() -> None:
        gate.wait()
        try:
            with hold(storage, ["run"]):
                outcomes.append("held")
                over.wait()
        except LeaseHeld:
            outcomes.append("refused")
            over.wait()

    threads = [threading.Thread(target=drive) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(outcomes) == ["held", "refused", "refused", "refused"]
    assert not storage.exists("run/lease.json")


def test_the_files_of_a_lease_are_json(storage: Storage) -> None:
    with hold(storage, ["run"]):
        assert set(json.loads(storage.read_bytes("run/lease.json"))) == {
            "owner",
            "host",
            "place",
            "pid",
            "process_start",
            "heartbeat",
        }


@pytest.mark.parametrize("ahead_seconds", [-1e6, 1e6])
def test_a_lease_of_another_host_is_held_while_it_beats_whatever_its_clock_says(
    storage: Storage, ahead_seconds: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lease, "WATCH_SECONDS", 0.2)
    leave(storage, place="elsewhere")
    left, over = entry(storage), threading.Event()

    def beat() -> None:
        while not over.wait(0.01):
            storage.write_json("run/lease.json", left | {"heartbeat": time.time() + ahead_seconds})

    holder = threading.Thread(target=beat)
    holder.start()
    wait_for_beat(storage, -1e9)
    try:
        with pytest.raises(LeaseHeld), hold(storage, ["run"]):
            pass
    finally:
        over.set()
        holder.join()


def test_a_lease_from_the_future_whose_heart_stands_still_is_taken_over(
    storage: Storage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lease, "WATCH_SECONDS", 0.05)
    leave(storage, place="elsewhere", heartbeat=time.time() + 1e6)
    with hold(storage, ["run"]):
        assert entry(storage)["pid"] == os.getpid()


def test_a_dead_driver_s_further_leases_are_not_watched_one_by_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    looks = Counter[str]()

    class Watched(Storage):
        def read_bytes(self, path: str) -> bytes:
            looks[path] += 1
            return super().read_bytes(path)

    storage = Watched(str(tmp_path))
    monkeypatch.setattr(lease, "WATCH_SECONDS", 0.05)
    with hold(storage, ["a", "b", "c"]):
        left = entry(storage, "a") | {"place": "elsewhere", "heartbeat": 0}
    for folder in "abc":
        storage.write_json(f"{folder}/lease.json", left)
    looks.clear()
    with hold(storage, ["a", "b", "c"]):
        looked = [looks[f"{folder}/lease.json"] for folder in "abc"]
    assert looked == [3, 2, 2]  # once more at the first, after the watch over it


def test_a_lease_of_this_host_does_not_ask_the_clock(storage: Storage) -> None:
    with hold(storage, ["run"]):
        for heartbeat in (0.0, 1e12):
            storage.write_json("run/lease.json", entry(storage) | {"heartbeat": heartbeat})
            with pytest.raises(LeaseHeld), hold(storage, ["run"]):
                pass
