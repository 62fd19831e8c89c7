"""`ray job submit` of the main job to a head of our own, on ports of its own."""

import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import psutil
import pytest

from tests.jobs.runs import REPOSITORY, finished_rows, only_run, overrides

pytestmark = pytest.mark.cluster
BIN = Path(sys.executable).parent


def free_ports(count: int) -> list[int]:
    with ExitStack() as held:
        sockets = [held.enter_context(socket.socket()) for _ in range(count)]
        for one in sockets:
            one.bind(("127.0.0.1", 0))
        return [int(one.getsockname()[1]) for one in sockets]


def environment() -> dict[str, str]:
    kept = {key: value for key, value in os.environ.items() if not key.startswith("RAY_")}
    path = f"{BIN}{os.pathsep}{kept.get('PATH', '')}"
    return {**kept, "PATH": path, "RAY_AUTH_MODE": "disabled", "RAY_raylet_start_wait_time_s": "90"}


@pytest.fixture
def dashboard(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of a running head's job server; the head ends with the test."""
    # A socket's path is limited to about 100 characters, so the folder is named by hand.
    folder = Path(f"/tmp/winnow-ray-{os.getpid()}")
    gcs, port, client = free_ports(3)
    command = [
        *(str(BIN / "ray"), "start", "--head", "--block", "--disable-usage-stats"),
        *("--num-cpus", "2", "--node-ip-address", "127.0.0.1", "--port", str(gcs)),
        *("--ray-client-server-port", str(client), "--temp-dir", str(folder)),
        *("--dashboard-host", "127.0.0.1", "--dashboard-port", str(port)),
    ]
    log = tmp_path_factory.mktemp("head") / "log.txt"
    with log.open("w") as output:
        head = subprocess.Popen(command, env=environment(), stdout=output, stderr=output)
        try:
            address = f"http://127.0.0.1:{port}"
            wait_until_up(address, head, log)
            yield address
        finally:
            family = psutil.Process(head.pid).children(recursive=True)
            head.terminate()
            _, alive = psutil.wait_procs([psutil.Process(head.pid), *family], timeout=5)
            for process in alive:
                process.kill()


def wait_until_up(address: str, head: "subprocess.Popen[bytes]", log: Path) -> None:
    for _ in range(60):
        asked = subprocess.run(
            [str(BIN / "ray"), "job", "list", "--address", address],
            env=environment(),
            capture_output=True,
            check=False,
        )
        if asked.returncode == 0:
            return
        assert head.poll() is None, log.read_text()
    pytest.fail(f"no job server at {address}: {log.read_text()}")


def test_a_submitted_job_runs_to_its_end(dashboard: str, tmp_path: Path) -> None:
    arguments = overrides(
        tmp_path, input__questions="examples/questions.jsonl", input__corpus="examples/corpus.jsonl"
    )
    command = [
        *(str(BIN / "ray"), "job", "submit", "--address", dashboard, "--working-dir", "."),
        *("--", "python", "jobs/offline_igp.py", "conf/offline_igp/demo.yaml", *arguments),
    ]
    deadline = time.monotonic() + 60
    while True:
        submitted = subprocess.run(
            command,
            cwd=REPOSITORY,
            env=environment(),
            capture_output=True,
            text=True,
            timeout=240,
            check=False,
        )
        # The server answers a little before the agent that starts jobs does.
        if "No available agent" not in submitted.stderr or time.monotonic() > deadline:
            break
    assert submitted.returncode == 0, submitted.stdout + submitted.stderr
    assert "succeeded" in submitted.stdout + submitted.stderr
    run_folder = only_run(tmp_path / "out")
    assert (run_folder / "_SUCCESS").exists()
    assert len(finished_rows(run_folder)) == 50
