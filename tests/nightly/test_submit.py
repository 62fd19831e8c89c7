"""The submitter against a server that answers as the API server does."""

import argparse
import datetime
import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from jobs import submit_rayjob
from pipeline import driver
from pipeline.loading import ConfigError
from pipeline.nightly import options, submit
from pipeline.nightly.evaluate import judging
from pipeline.nightly.rayjobs import RayJobs, server_of
from tests.nightly.server import Answer, Request, serving
from tests.nightly.world import CONF

REPOSITORY = CONF.parents[2]
# 29933400 minutes since 1970 are 2026-11-30T02:00Z.
SCHEDULED = "igp-nightly-29933400"
PATH = "/apis/ray.io/v1/namespaces/igp/rayjobs"
RUNNING = {"jobStatus": "RUNNING", "jobDeploymentStatus": "Running"}
SUCCEEDED = {"jobStatus": "SUCCEEDED", "jobDeploymentStatus": "Complete"}
FAILED = {
    "jobStatus": "FAILED",
    "jobDeploymentStatus": "Failed",
    "reason": "AppFailed",
    "message": "exit code 1",
}


class ApiServer:
    """Keeps RayJobs by name; each look at one shows the next of its statuses."""

    def __init__(self, *statuses: dict[str, Any] | None) -> None:
        self.there: dict[str, Any] = {}
        self.statuses = list(statuses)

    def __call__(self, request: Request) -> Answer:
        if request.headers.get("authorization") != "Bearer t0k":
            return 401, {"kind": "Status", "message": "Unauthorized"}
        if request.method == "POST":
            name = request.json["metadata"]["name"]
            if name in self.there:
                return 409, {"kind": "Status", "reason": "AlreadyExists"}
            self.there[name] = request.json
            return 201, request.json
        name = request.path.rpartition("/")[2]
        status = self.statuses.pop(0) if len(self.statuses) > 1 else self.statuses[0]
        if name not in self.there or status is None:
            return 404, {"kind": "Status", "reason": "NotFound"}
        return 200, {**self.there[name], "status": status}


@pytest.fixture
def manifest(tmp_path: Path) -> Path:
    path = tmp_path / "rayjob.yaml"
    entrypoint = f"python jobs/nightly_eval.py {CONF} run.root={tmp_path} input.questions=/q.jsonl"
    job = {
        "apiVersion": "ray.io/v1",
        "kind": "RayJob",
        "metadata": {"name": "igp-nightly", "namespace": "igp", "labels": {"a": "b"}},
        "spec": {"entrypoint": entrypoint, "backoffLimit": 0},
    }
    path.write_text(yaml.safe_dump(job))
    return path


@pytest.fixture
def account(tmp_path: Path) -> Path:
    folder = tmp_path / "account"
    folder.mkdir()
    (folder / "token").write_text("t0k\n")
    return folder


@pytest.fixture
def start(manifest: Path, account: Path) -> Callable[..., int]:
    """The job with its options; its exit code."""

    def run(url: str, *more: str) -> int:
        parser = argparse.ArgumentParser()
        options.add(parser)
        given = [f"--manifest={manifest}", f"--server={url}", f"--account={account}"]
        when = [] if any(one.startswith("--date") for one in more) else [f"--scheduled={SCHEDULED}"]
        args = parser.parse_args([*given, *when, "--poll-seconds=0", *more])
        return driver.guarded(lambda: submit_rayjob.run(args))

    return run


def put_gate(root: Path, name: str, *, passed: bool, judged: str) -> None:
    folder = root / "nights" / "date=2026-11-30" / name
    folder.mkdir(parents=True)
    reasons = [] if passed else ["f1: 0.5 -> 0.4"]
    said = "passed" if passed else "worse"
    verdict = {"passed": passed, "verdict": said, "reasons": reasons, "judging": judged}
    (folder / "gate.json").write_text(json.dumps(verdict))
    (folder / "_SUCCESS").touch()


def test_a_night_is_made_of_the_manifest_its_date_and_nothing_else(
    start: Callable[..., int], manifest: Path
) -> None:
    api = ApiServer()
    with serving(api) as server:
        assert start(server.url) == driver.DONE
    (request,) = server.requests
    assert (request.method, request.path) == ("POST", PATH)
    (name,) = api.there
    assert re.fullmatch(r"demo-2026-11-30-[0-9a-f]{8}", name)
    made, given = api.there[name], yaml.safe_load(manifest.read_text())
    assert made["metadata"]["labels"] == {"a": "b", "igp.io/date": "2026-11-30"}
    assert made["spec"].pop("entrypoint") == given["spec"].pop("entrypoint") + " date=2026-11-30"
    assert made["spec"] == given["spec"]


def test_the_same_night_is_made_once_and_attached_to(
    start: Callable[..., int], capsys: pytest.CaptureFixture[str]
) -> None:
    api = ApiServer({}, RUNNING, SUCCEEDED)
    with serving(api) as server:
        assert start(server.url) == driver.DONE
        assert start(server.url, "--wait") == driver.DONE
        assert start(server.url, "--date=2026-11-30", "--wait") == driver.DONE
    assert len(api.there) == 1
    assert capsys.readouterr().out.count("is there already") == 2


def test_a_job_that_failed_ends_with_1_and_says_why(
    start: Callable[..., int], capsys: pytest.CaptureFixture[str]
) -> None:
    with serving(ApiServer(RUNNING, FAILED)) as server:
        assert start(server.url, "--wait") == driver.INCOMPLETE
    assert "FAILED: AppFailed exit code 1" in capsys.readouterr().err


def test_a_job_that_is_deleted_ends_with_1(
    start: Callable[..., int], capsys: pytest.CaptureFixture[str]
) -> None:
    with serving(ApiServer(RUNNING, None)) as server:
        assert start(server.url, "--wait") == driver.INCOMPLETE
    assert "deleted before it came to its end" in capsys.readouterr().err


@pytest.mark.parametrize(("passed", "code"), [(True, driver.DONE), (False, driver.GATE)])
def test_a_job_that_succeeded_ends_as_its_gate_says(
    start: Callable[..., int], tmp_path: Path, manifest: Path, passed: bool, code: int
) -> None:
    cfg = submit.config_of(submit.read_manifest(str(manifest)), _date())
    night = submit.night_of(cfg, _date())

    class Finishing(ApiServer):
        """The RayJob writes its verdict before it succeeds."""

        def __call__(self, request: Request) -> Answer:
            answer = super().__call__(request)
            if request.method == "GET" and not (tmp_path / night.folder).exists():
                put_gate(tmp_path, night.id, passed=passed, judged=judging(cfg))
            return answer

    api = Finishing(RUNNING, SUCCEEDED)
    with serving(api) as server:
        assert start(server.url, f"--gate={tmp_path}") == code
        assert list(api.there) == [night.id]
        asked = len(server.requests)
        assert start(server.url, f"--gate={tmp_path}", "--wait") == code
    assert len(server.requests) == asked, "a night that is finished starts no cluster"


def test_a_verdict_under_another_gate_is_not_believed(
    start: Callable[..., int], tmp_path: Path, manifest: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    night = submit.night_of(submit.config_of(submit.read_manifest(str(manifest)), _date()), _date())
    put_gate(tmp_path, night.id, passed=True, judged="of other rules")
    with serving(ApiServer(SUCCEEDED)) as server:
        assert start(server.url, f"--gate={tmp_path}") == driver.INCOMPLETE
    assert "judged under another gate" in capsys.readouterr().err


def test_a_job_that_succeeded_without_a_verdict_ends_with_1(
    start: Callable[..., int], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with serving(ApiServer(SUCCEEDED)) as server:
        assert start(server.url, f"--gate={tmp_path}", "--wait") == driver.INCOMPLETE
    assert "gate.json: absent, so there is no verdict" in capsys.readouterr().err


def test_a_server_in_trouble_is_asked_again_and_a_refusal_ends_with_1(
    start: Callable[..., int], account: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    left = [(503, b""), (201, {})]
    with serving(lambda _: left.pop(0)) as server:
        jobs = RayJobs(server.url, account, "igp", backoff_seconds=0)
        assert jobs.create({"metadata": {"name": "x"}})
    (account / "token").write_text("old")
    with serving(ApiServer(RUNNING)) as server:
        assert start(server.url) == driver.INCOMPLETE
    assert "status 401" in capsys.readouterr().err


def test_a_token_that_is_replaced_is_read_anew(account: Path) -> None:
    with serving(lambda _: (404, {})) as server:
        jobs = RayJobs(server.url, account, "igp")
        jobs.read("x")
        (account / "token").write_text("next")
        jobs.read("x")
        (account / "token").unlink()
        jobs.read("x")
    said = [request.headers.get("authorization") for request in server.requests]
    assert said == ["Bearer t0k", "Bearer next", None]


@pytest.mark.parametrize(
    ("status", "expected"),
    [
        ({}, "under way"),
        ({"jobDeploymentStatus": "Initializing"}, "under way"),
        (RUNNING, "under way"),
        ({"jobStatus": "FAILED", "jobDeploymentStatus": "Retrying"}, "under way"),
        ({"jobStatus": "FAILED", "jobDeploymentStatus": "Running"}, "under way"),
        ({"jobStatus": "SUCCEEDED", "jobDeploymentStatus": "Running"}, "succeeded"),
        ({"jobStatus": "STOPPED", "jobDeploymentStatus": "Complete"}, "failed"),
        ({"jobDeploymentStatus": "Failed", "reason": "DeadlineExceeded"}, "failed"),
        ({"jobDeploymentStatus": "ValidationFailed"}, "failed"),
        (FAILED, "failed"),
    ],
)
def test_only_an_end_is_an_end(status: dict[str, Any], expected: str) -> None:
    assert submit.state(status) == expected


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"kind": "RayCluster"}, "no RayJob"),
        ({"spec": {"entrypoint": "python jobs/offline_igp.py c.yaml"}}, "allowed: python jobs/ni"),
        ({"spec": {}}, "entrypoint ''"),
    ],
)
def test_a_manifest_of_something_else_is_a_usage_error(
    manifest: Path, change: dict[str, Any], message: str
) -> None:
    manifest.write_text(yaml.safe_dump({**yaml.safe_load(manifest.read_text()), **change}))
    with pytest.raises(ConfigError, match=message):
        submit.read_manifest(str(manifest))
    with pytest.raises(ConfigError, match=r"gone: no such manifest"):
        submit.read_manifest(str(manifest.parent / "gone"))


@pytest.mark.parametrize("name", ["Nightly", "a_b", "0night", "n" * 40])
def test_a_name_that_no_rayjob_can_have_is_refused(manifest: Path, name: str) -> None:
    read = submit.read_manifest(str(manifest))
    read["spec"]["entrypoint"] += f" run.name={name}"
    with pytest.raises(ConfigError, match="cannot name a RayJob"):
        submit.night_of(submit.config_of(read, _date()), _date())


def test_a_dry_run_prints_the_manifest_and_asks_nobody(
    start: Callable[..., int], capsys: pytest.CaptureFixture[str]
) -> None:
    with serving(ApiServer()) as server:
        assert start(server.url, "--dry-run") == driver.DONE
    assert server.requests == []
    shown = yaml.safe_load(capsys.readouterr().out)
    assert shown["spec"]["entrypoint"].endswith(" date=2026-11-30")


def test_the_api_server_of_a_pod_is_that_of_its_environment() -> None:
    there = {"KUBERNETES_SERVICE_HOST": "10.0.0.1", "KUBERNETES_SERVICE_PORT": "6443"}
    assert server_of(there) == "https://10.0.0.1:6443"
    assert server_of({"KUBERNETES_SERVICE_HOST": "fd00::1"}) == "https://[fd00::1]:443"
    with pytest.raises(ConfigError, match=r"give --server=URL"):
        server_of({})


def test_the_cronjob_submits_its_rayjob_under_the_nights_id(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    overlay = REPOSITORY / "k8s" / "overlays" / "nightly"
    cron = yaml.safe_load((overlay / "cronjob.yaml").read_text())
    pod = cron["spec"]["jobTemplate"]["spec"]["template"]["spec"]
    (container,) = pod["containers"]
    assert container["command"] == ["python", "jobs/submit_rayjob.py"]
    parser = argparse.ArgumentParser()
    options.add(parser)
    at = {"$(JOB_NAME)": SCHEDULED, "/manifests": str(overlay)}
    given = container["args"]
    for name, value in at.items():
        given = [one.replace(name, value) for one in given]
    monkeypatch.chdir(REPOSITORY)  # /app of the image
    args = parser.parse_args([*given, "--dry-run"])
    assert submit_rayjob.run(args) == driver.DONE
    shown = yaml.safe_load(capsys.readouterr().out)
    assert re.fullmatch(r"nightly-2026-11-30-[0-9a-f]{8}", shown["metadata"]["name"])
    root = dict(one.split("=", 1) for one in shown["spec"]["entrypoint"].split()[3:])["run.root"]
    assert args.gate == root
    assert args.wait


def _date() -> datetime.date:
    return datetime.date(2026, 11, 30)
