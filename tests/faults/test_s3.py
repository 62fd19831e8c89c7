"""A run whose results lie on S3 (moto's server): PUTs that fail, answers that come late."""

import json
import logging
import threading
import time
import urllib.request
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from moto.moto_server.werkzeug_app import DomainDispatcherApplication, create_backend_app
from werkzeug.serving import make_server

from pipeline.paths import locate
from pipeline.runs.storage import Storage
from tests.faults import small

pytestmark = pytest.mark.usefixtures("here")
BUSY, DENIED = ("503 Slow Down", "SlowDown"), ("403 Forbidden", "AccessDenied")
"""What the client asks again after, and what it takes for an answer: status and code."""


class Door:
    """moto behind a door that counts the PUTs, refuses some by their number, and opens late."""

    def __init__(self) -> None:
        self._app = DomainDispatcherApplication(create_backend_app)
        self.open()

    def open(self) -> None:
        """As at first: nothing is refused, late, or counted."""
        self.refuses: Callable[[int], bool] = lambda number: False
        self.refusal, self.delay_seconds = BUSY, 0.0
        self.puts: list[str] = []

    def __call__(self, environ: dict[str, Any], start: Callable[..., Any]) -> Iterable[bytes]:
        time.sleep(self.delay_seconds)
        if environ["REQUEST_METHOD"] == "PUT":
            self.puts.append(environ["PATH_INFO"])
            if self.refuses(len(self.puts)):
                environ["wsgi.input"].read(int(environ.get("CONTENT_LENGTH") or 0))
                status, code = self.refusal
                start(status, [("Content-Type", "application/xml")])
                return [f"<Error><Code>{code}</Code><Message>no</Message></Error>".encode()]
        answer: Iterable[bytes] = self._app(environ, start)
        return answer


@pytest.fixture(scope="module")
def served() -> Iterator[Door]:
    """A store on this machine, which pyarrow finds by the environment."""
    logging.getLogger("werkzeug").setLevel(logging.ERROR)
    door = Door()
    server = make_server("127.0.0.1", 0, door, threaded=True)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    address = f"http://127.0.0.1:{server.port}"
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("AWS_ENDPOINT_URL", address)
        patch.setenv("AWS_ACCESS_KEY_ID", "test")
        patch.setenv("AWS_SECRET_ACCESS_KEY", "test")
        patch.setenv("AWS_DEFAULT_REGION", "us-east-1")
        urllib.request.urlopen(urllib.request.Request(f"{address}/bucket", method="PUT")).close()
        yield door
    server.shutdown()
    thread.join()


@pytest.fixture
def door(served: Door) -> Iterator[Door]:
    """The store's door, open."""
    served.open()
    yield served
    served.open()


@pytest.fixture
def root(request: pytest.FixtureRequest) -> str:
    """A place of the test's own."""
    return f"s3://bucket/{request.node.name}"


def rows(root: str) -> list[str]:
    """Every finished row of the one run below a root."""
    storage = Storage(root)
    (run,) = storage.names("runs")
    folder = f"runs/{run}/contexts"
    filesystem, base = locate(root)
    parts = (filesystem.open_input_file(f"{base}/{folder}/{n}") for n in storage.names(folder))
    return [repr(row) for part in parts for row in pq.read_table(part).to_pylist()]


def test_a_file_is_one_put_and_nothing_is_left_of_one_that_failed(door: Door, root: str) -> None:
    storage = Storage(root)
    storage.write_bytes("stages/probe-0/part-000000.parquet", b"x" * 100_000)
    assert door.puts == [f"{root.removeprefix('s3:/')}/stages/probe-0/part-000000.parquet"]
    door.refuses, door.refusal = lambda number: True, DENIED
    with pytest.raises(OSError, match="part-000001.parquet"):
        storage.write_bytes("stages/probe-0/part-000001.parquet", b"x" * 100_000)
    assert storage.names("stages/probe-0") == ["part-000000.parquet"]


def test_a_run_with_a_few_failing_puts_and_late_answers_is_as_one_on_a_disk(
    tmp_path: Path, door: Door, root: str, undisturbed: list[str]
) -> None:
    door.refuses, door.delay_seconds = lambda number: number % 4 == 0, 0.02
    assert small.drive(tmp_path, run__root=root) == 0
    assert rows(root) == undisturbed
    parts = [path for path in door.puts if path.endswith(".parquet")]
    assert len({*parts}) == 4 * 3  # source, probe, answer and rows of three shards
    assert len(parts) > 4 * 3


def test_a_run_whose_puts_fail_for_good_is_told_with_the_file_and_goes_on_later(
    tmp_path: Path,
    door: Door,
    root: str,
    undisturbed: list[str],
    capsys: pytest.CaptureFixture[str],
) -> None:
    door.refuses, door.refusal = lambda number: number > 10, DENIED
    assert small.drive(tmp_path, run__root=root) == 1
    said = json.loads(capsys.readouterr().err.splitlines()[-1])["message"]
    refused = {*door.puts[10:]}
    assert any(path.removeprefix("/bucket/") in said for path in refused), said
    door.open()
    assert small.drive(tmp_path, run__root=root) == 0
    assert rows(root) == undisturbed
