"""Sinks, each against a real HTTP server: what arrives, and what a failure changes."""

import json
import shutil
import socket
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import psutil
import pytest
from prometheus_client.parser import text_string_to_metric_families

from pipeline.config import SinksConfig
from pipeline.loading import ConfigError
from pipeline.nightly.evaluate import Result
from pipeline.nightly.http import Client
from pipeline.nightly.sinks.deliver import deliver, resolve
from pipeline.runs.storage import Storage
from tests.nightly.conftest import Made
from tests.nightly.server import Answer, Reply, Request, Server, scripted, serving

FAST = {"retries": 1, "backoff_seconds": 0}


def told(
    kind: str, reply: Reply, result: Result, root: Path, **settings: Any
) -> tuple[Server, list[str]]:
    """A night told to one sink; the server, and the required sinks that failed."""
    with serving(reply) as server:
        cfg = SinksConfig.model_validate({kind: {"url": server.url, **FAST, **settings}})
        failed = deliver(resolve(cfg, {"TOKEN": "t0k"}), Storage(str(root)), result)
    return server, failed


def record(root: Path, result: Result) -> Any:
    return json.loads((root / result.night.folder / "sinks.json").read_text())


def test_a_pushgateway_gets_the_numbers_as_gauges_under_job_and_config(
    three: Made, tmp_path: Path
) -> None:
    result = three.results[2]
    server, _ = told("pushgateway", scripted((200, b"")), result, tmp_path, token_env="TOKEN")
    (request,) = server.requests
    assert (request.method, request.path) == ("PUT", "/metrics/job/igp_nightly/config/demo")
    assert request.headers["authorization"] == "Bearer t0k"
    assert request.headers["content-type"].startswith("text/plain")
    samples = samples_of(request.body)
    assert samples["igp_eval_score", "igp", "f1"] == result.arm["f1"]["value"]
    assert samples["igp_eval_score", "retriever", "tk"] > 0
    assert samples["igp_eval_gate_passed",] == 0
    assert samples["igp_eval_questions",] == 40
    assert samples["igp_eval_dead_letters",] == 0
    assert samples["igp_eval_date_seconds",] == 1796083200  # 2026-12-01T00:00Z
    written = result.gate["written_at_seconds"]
    assert samples["igp_run_last_success_timestamp_seconds",] == pytest.approx(written)
    assert result.night.id not in request.body.decode()
    assert ("igp_eval_score", "igp", "ndcg") not in samples  # undefined


def samples_of(exposition: bytes) -> dict[tuple[str, ...], float]:
    """Values by name, and arm and metric where it has them."""
    return {
        (
            sample.name,
            *(sample.labels[key] for key in ("arm", "metric") if key in sample.labels),
        ): sample.value
        for family in text_string_to_metric_families(exposition.decode())
        for sample in family.samples
    }


def test_a_real_pushgateway_keeps_the_last_night_of_a_config(three: Made, tmp_path: Path) -> None:
    program = shutil.which("prometheus-pushgateway")
    if program is None:
        # A Go program that no Python package carries. Without it the requests and the exposition
        # text are still read by a server of this file, with Prometheus' own parser.
        pytest.skip("NOT CHECKED: prometheus-pushgateway is not installed (Debian has it)")
    with socket.create_server(("127.0.0.1", 0)) as taken:
        url = f"http://127.0.0.1:{taken.getsockname()[1]}"
    address = url.removeprefix("http://")
    with subprocess.Popen(
        [program, f"--web.listen-address={address}"], stderr=subprocess.DEVNULL
    ) as gateway:
        try:
            again = {"retries": 8, "backoff_seconds": 0.05}  # until it listens
            cfg = SinksConfig.model_validate({"pushgateway": {"url": url, **again}})
            for place in (0, 2):
                result = three.results[place]
                assert deliver(resolve(cfg, {}), Storage(str(tmp_path)), result) == []
                assert record(tmp_path, result)["pushgateway"]["error"] is None
            client = Client(url, retries=0, backoff_seconds=0, timeout_seconds=5)
            samples = samples_of(client.send("GET", "/metrics", None, {}))
        finally:
            gateway.terminate()
    assert samples["igp_eval_gate_passed",] == 0
    assert samples["igp_eval_score", "igp", "f1"] == result.arm["f1"]["value"]


def test_a_webhook_gets_a_text_and_the_figures(three: Made, tmp_path: Path) -> None:
    result = three.results[2]
    server, _ = told("webhook", scripted((200, b"ok")), result, tmp_path)
    (request,) = server.requests
    assert request.method == "POST"
    assert request.headers["content-type"] == "application/json"
    said = request.json
    assert said["text"].splitlines()[0] == f"{result.night.id}: WORSE than the baseline"
    assert (said["passed"], said["verdict"], said["date"]) == (False, "worse", "2026-12-01")
    assert said["baseline"] == three.results[1].night.id
    assert said["reasons"] == result.gate["reasons"]
    assert said["arms"]["igp"]["f1"] == result.arm["f1"]["value"]


def test_a_webhook_can_be_kept_for_nights_that_did_not_pass(three: Made, tmp_path: Path) -> None:
    for place, requests in ((1, 0), (2, 1)):
        result = three.results[place]
        server, _ = told("webhook", scripted((200, b"")), result, tmp_path, when="not_passed")
        assert len(server.requests) == requests


class Tracking:
    """Of MLflow's REST API 2.0 the six calls that matter, with its own errors."""

    def __init__(self) -> None:
        self.experiments: dict[str, str] = {}
        self.runs: list[dict[str, Any]] = []

    def __call__(self, request: Request) -> Answer:
        parts = urlsplit(request.path)
        call = parts.path.removeprefix("/api/2.0/mlflow/")
        if call == "experiments/get-by-name":
            (name,) = parse_qs(parts.query)["experiment_name"]
            if name not in self.experiments:
                return 404, {"error_code": "RESOURCE_DOES_NOT_EXIST"}
            return 200, {"experiment": {"experiment_id": self.experiments[name]}}
        asked: Mapping[str, Any] = request.json
        if call == "experiments/create":
            self.experiments[asked["name"]] = str(len(self.experiments))
            return 200, {"experiment_id": self.experiments[asked["name"]]}
        if call == "runs/search":
            quoted = asked["filter"].partition(" = ")[2].strip("'")
            return 200, {"runs": [run for run in self.runs if run["night"] == quoted]}
        if call == "runs/create":
            night = asked["tags"][0]["value"]
            info = {"run_id": f"r{len(self.runs)}", "status": "RUNNING"}
            self.runs.append({"night": night, "info": info, "asked": asked})
            return 200, {"run": self.runs[-1]}
        run = next(run for run in self.runs if run["info"]["run_id"] == asked["run_id"])
        run[call] = asked
        return 200, {}


def test_mlflow_gets_one_run_a_night_however_often_it_is_told(three: Made, tmp_path: Path) -> None:
    tracking, result = Tracking(), three.results[2]
    told("mlflow", tracking, result, tmp_path / "one")
    told("mlflow", tracking, result, tmp_path / "two")
    (run,) = tracking.runs
    assert tracking.experiments == {"winnow-nightly": "0"}
    assert run["asked"]["run_name"] == result.night.id
    logged = run["runs/log-batch"]
    metrics = {metric["key"]: metric["value"] for metric in logged["metrics"]}
    assert metrics["f1"] == result.arm["f1"]["value"]
    assert metrics["gate_passed"] == 0 and "retriever.f1" in metrics
    params = {param["key"]: param["value"] for param in logged["params"]}
    assert params["generator.model"] == "fake" and params["arm"] == "igp"
    tags = {tag["key"]: tag["value"] for tag in logged["tags"]}
    assert (tags["winnow.verdict"], tags["winnow.date"]) == ("worse", "2026-12-01")
    assert run["runs/update"]["status"] == "FINISHED"


def test_a_real_mlflow_server_keeps_one_run_a_night(three: Made, tmp_path: Path) -> None:
    program = shutil.which("mlflow")
    if program is None:
        # A hundred packages, of which some pin others than ours. Without it the six calls are
        # still answered by the server of this file.
        pytest.skip("NOT CHECKED: mlflow is not installed (pip install mlflow, elsewhere, on PATH)")
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
    store = f"sqlite:///{tmp_path}/mlflow.db"
    command = [program, "server", "--port", port, "--backend-store-uri", store, "--workers", "1"]
    url = f"http://127.0.0.1:{port}"
    client = Client(url, retries=8, backoff_seconds=0.5, timeout_seconds=5)
    with subprocess.Popen(
        command, cwd=tmp_path, stderr=subprocess.DEVNULL, stdout=subprocess.DEVNULL
    ) as server:
        try:
            client.send("GET", "/health", None, {})
            cfg = SinksConfig.model_validate({"mlflow": {"url": url}})
            for result in (three.results[0], three.results[2], three.results[2]):
                storage = Storage(str(tmp_path / "told"))
                (tmp_path / "told" / result.night.folder / "sinks.json").unlink(missing_ok=True)
                assert deliver(resolve(cfg, {}), storage, result) == []
                assert record(tmp_path / "told", result)["mlflow"]["error"] is None
            asked = {"experiment_ids": ["1"], "max_results": 9}
            found = client.json("POST", "/api/2.0/mlflow/runs/search", asked, {})["runs"]
        finally:
            head = psutil.Process(server.pid)
            for process in (*head.children(recursive=True), head):
                process.terminate()
    by_name = {run["info"]["run_name"]: run for run in found}
    assert len(by_name) == len(found) == 2
    run = by_name[three.results[2].night.id]
    metrics = {metric["key"]: metric["value"] for metric in run["data"]["metrics"]}
    assert metrics["f1"] == three.results[2].arm["f1"]["value"]
    assert run["info"]["status"] == "FINISHED"


@pytest.mark.parametrize("kind", ["pushgateway", "webhook", "mlflow"])
def test_a_failing_sink_is_told_and_tried_again_and_changes_nothing(
    three: Made, tmp_path: Path, capsys: pytest.CaptureFixture[str], kind: str
) -> None:
    result = three.results[1]
    _, failed = told(kind, scripted((403, b"not you")), result, tmp_path)
    assert failed == []
    assert "403: not you" in record(tmp_path, result)[kind]["error"]
    assert '"event": "sink failed"' in capsys.readouterr().err
    again, _ = told(
        kind, Tracking() if kind == "mlflow" else scripted((200, b"")), result, tmp_path
    )
    assert again.requests and record(tmp_path, result)[kind]["error"] is None
    third, _ = told(kind, scripted((200, b"")), result, tmp_path)
    assert third.requests == []


def test_a_required_sink_that_fails_is_returned_and_the_others_are_told(
    three: Made, tmp_path: Path
) -> None:
    with serving(scripted((403, b""))) as bad, serving(scripted((200, b""))) as good:
        cfg = SinksConfig.model_validate(
            {
                "pushgateway": {"url": bad.url, **FAST, "required": True},
                "webhook": {"url": good.url, **FAST},
            }
        )
        assert deliver(resolve(cfg, {}), Storage(str(tmp_path)), three.results[1]) == [
            "pushgateway"
        ]
    assert len(good.requests) == 1


def test_an_address_may_stand_in_the_environment_and_must_be_there() -> None:
    cfg = SinksConfig.model_validate({"webhook": {"url_env": "HOOK"}})
    (sink,) = resolve(cfg, {"HOOK": "http://a/secret"})
    assert sink.url == "http://a/secret"
    with pytest.raises(ConfigError, match=r"sinks\.webhook\.url_env: .* HOOK is not set"):
        resolve(cfg, {})


def test_no_sink_is_on_unless_it_is_given() -> None:
    assert resolve(SinksConfig(), {}) == []


@pytest.mark.parametrize("settings", [{}, {"url": "http://a", "url_env": "B"}])
def test_a_sink_has_one_address(settings: dict[str, str]) -> None:
    with pytest.raises(ValueError, match="give one of url and url_env"):
        SinksConfig.model_validate({"webhook": settings})
