"""The entrypoint of the rendered dev-cpu overlay, submitted to a head and a worker of our own.

Each node is started with the flags, and with the environment, that its manifest gives it: a head
without CPUs and one worker that claims a GPU, both behind a token. All run on this machine, on free
ports; the volume /data is a folder of the test.
"""

import http.client
import json
import os
import secrets
import shlex
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import psutil
import pytest

from pipeline.config import BuildIndexConfig
from pipeline.engines.bm25 import build_index
from tests.jobs.runs import REPOSITORY, finished_rows, only_run
from tests.k8s.manifests import OVERLAYS, Ray, environment, parsed, rays, rendered, start_flags

pytestmark = pytest.mark.cluster
BIN = Path(sys.executable).parent
HOST = "127.0.0.1"
NODES = 2
START_SECONDS = 90


def free_ports(count: int) -> list[int]:
    with ExitStack() as held:
        sockets = [held.enter_context(socket.socket()) for _ in range(count)]
        for one in sockets:
            one.bind((HOST, 0))
        return [int(one.getsockname()[1]) for one in sockets]


@contextmanager
def ended_after(process: "subprocess.Popen[bytes]") -> Iterator[None]:
    """Ends the process and all that it started with the block."""
    known = psutil.Process(process.pid)
    try:
        yield
    finally:
        family = [known, *(known.children(recursive=True) if known.is_running() else [])]
        process.terminate()
        _, alive = psutil.wait_procs(family, timeout=5)
        for one in alive:
            one.kill()


class Cluster:
    """What the manifest asks for, on this machine."""

    def __init__(self, it: Ray, told: dict[str, str], folder: Path) -> None:
        self.it, self.folder, self.token = it, folder, secrets.token_hex(16)
        self.gcs, self.port, self.client = free_ports(3)
        kept = {key: value for key, value in os.environ.items() if not key.startswith("RAY_")}
        self.environment = {
            **kept,
            **{key: value.replace("/tmp/", f"{folder}/") for key, value in told.items()},
            "PATH": f"{BIN}{os.pathsep}{kept.get('PATH', '')}",
            # As the operator gives it to every container of a cluster with authOptions.
            "RAY_AUTH_MODE": it.cluster["authOptions"]["mode"],
            "RAY_AUTH_TOKEN": self.token,
            "RAY_raylet_start_wait_time_s": str(START_SECONDS),
        }

    def start(self, flags: list[str]) -> "subprocess.Popen[bytes]":
        """A node; the same ports that a pod has for itself would meet on one machine."""
        agent, grpc, runtime, metrics = free_ports(4)
        shared = [
            *("--block", "--disable-usage-stats", "--node-ip-address", HOST),
            *("--dashboard-agent-listen-port", str(agent), "--dashboard-agent-grpc-port"),
            *(str(grpc), "--runtime-env-agent-port", str(runtime)),
            *("--metrics-export-port", str(metrics)),
        ]
        place = ["--address", f"{HOST}:{self.gcs}"]
        if "--head" in flags:
            place = [
                *("--port", str(self.gcs), "--ray-client-server-port", str(self.client)),
                *("--dashboard-host", HOST, "--dashboard-port", str(self.port)),
                # A socket's path is limited to about 100 characters.
                *("--temp-dir", f"/tmp/winnow-ray-{os.getpid()}"),
            ]
        with (self.folder / "ray.log").open("a") as log:
            return subprocess.Popen(
                [str(BIN / "ray"), "start", *flags, *shared, *place],
                env=self.environment,
                cwd=REPOSITORY,
                stdout=log,
                stderr=log,
            )

    def get(self, path: str, token: str | None) -> tuple[int, Any]:
        """(status, JSON) of the dashboard's answer; status 0 where nobody listens yet."""
        connection = http.client.HTTPConnection(HOST, self.port, timeout=10)
        headers = {"Authorization": f"Bearer {token}"} if token else {}
        try:
            connection.request("GET", path, headers=headers)
            answer = connection.getresponse()
            body = answer.read()
        except OSError:
            return 0, None
        finally:
            connection.close()
        return answer.status, json.loads(body) if answer.status == 200 else None

    def nodes(self) -> int:
        """How many are alive."""
        status, found = self.get("/api/v0/nodes?detail=0", self.token)
        nodes = found["data"]["result"]["result"] if status == 200 else []
        return sum(1 for node in nodes if node["state"] == "ALIVE")

    def wait(self, nodes: int, process: "subprocess.Popen[bytes]") -> None:
        stop = time.monotonic() + START_SECONDS
        while self.nodes() < nodes:
            log = (self.folder / "ray.log").read_text()
            assert process.poll() is None and time.monotonic() < stop, log
            time.sleep(0.5)

    def submit(self, entrypoint: str) -> "subprocess.CompletedProcess[str]":
        """`ray job submit`, as the operator's submitter runs it, but waiting for the end."""
        command = [str(BIN / "ray"), "job", "submit", "--address", f"http://{HOST}:{self.port}"]
        stop = time.monotonic() + START_SECONDS
        while True:
            done = subprocess.run(
                [*command, "--submission-id", "igp-dev", "--", *shlex.split(entrypoint)],
                cwd=self.folder,
                env=self.environment,
                capture_output=True,
                text=True,
                timeout=240,
                check=False,
            )
            # The server answers a little before the agent that starts jobs does.
            if "No available agent" not in done.stderr or time.monotonic() > stop:
                return done


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    """The nodes that the overlay starts with, up."""
    objects = parsed(rendered(OVERLAYS["dev-cpu"]))
    [it] = rays(objects)
    made = Cluster(it, environment(objects, it.pods[0][1]), tmp_path)
    with ExitStack() as running:
        for number, (_, flags) in enumerate(start_flags(it), 1):
            process = made.start(flags)
            running.enter_context(ended_after(process))
            made.wait(number, process)
        yield made


def test_the_rendered_entrypoint_runs_on_a_head_without_cpus_and_a_worker_with_a_made_up_gpu(
    cluster: Cluster, tmp_path: Path
) -> None:
    assert cluster.nodes() == NODES
    assert cluster.get("/api/jobs/", None)[0] == 401
    index = tmp_path / "index"  # stands in the image
    corpus = REPOSITORY / "examples" / "corpus.jsonl"
    build_index(BuildIndexConfig(corpus=str(corpus), index=str(index)), lambda n: None)
    entrypoint = str(cluster.it.job["entrypoint"])
    assert "cluster.generator.num_gpus=1" in entrypoint
    for ours, theirs in {"/data/": f"{tmp_path}/", "indexes/demo": str(index)}.items():
        assert ours in entrypoint
        entrypoint = entrypoint.replace(ours, theirs)
    done = cluster.submit(entrypoint)
    assert done.returncode == 0, done.stdout + done.stderr
    [job] = cluster.get("/api/jobs/", cluster.token)[1]
    assert (job["status"], job["driver_exit_code"]) == ("SUCCEEDED", 0)
    run_folder = only_run(tmp_path / "winnow")
    assert (run_folder / "_SUCCESS").exists()
    assert len(finished_rows(run_folder)) == 50
