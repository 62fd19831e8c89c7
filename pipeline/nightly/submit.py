"""A night as a RayJob: its manifest for a date, waited for by its own status, judged by its gate.

The submitter's pod ends with 0 when the job failed, so only the RayJob's status is believed.
"""

import datetime
import re
import shlex
import time
from collections.abc import Callable, Mapping
from typing import Any, Literal

import yaml

from pipeline.config import NightlyConfig
from pipeline.loading import ConfigError, load
from pipeline.nightly import nights
from pipeline.nightly.evaluate import judging
from pipeline.nightly.nights import Night
from pipeline.nightly.rayjobs import RayJobs
from pipeline.progress import say
from pipeline.runs.storage import Storage

JOB = "jobs/nightly_eval.py"
LONGEST_NAME = 47
"""Of a RayJob: the operator puts more behind it."""
GATE_LOOKS = 8
"""Looks at the gate's file before it counts as absent: a shared volume may show it late."""
_DNS_1035 = re.compile(r"[a-z]([-a-z0-9]*[a-z0-9])?")
State = Literal["under way", "succeeded", "failed"]


class JobFailed(OSError):
    """A night without numbers; the message is one line for the user."""


def read_manifest(path: str) -> dict[str, Any]:
    """The one RayJob in a YAML file; ConfigError where it is none that runs a night."""
    try:
        with open(path, encoding="utf-8") as file:
            manifest = yaml.safe_load(file)
    except FileNotFoundError:
        raise ConfigError(f"{path}: no such manifest") from None
    except yaml.YAMLError as error:
        raise ConfigError(f"{path}: not YAML: {' '.join(str(error).split())}") from None
    if not isinstance(manifest, dict) or manifest.get("kind") != "RayJob":
        raise ConfigError(f"{path}: no RayJob")
    entrypoint = str(manifest.get("spec", {}).get("entrypoint", ""))
    if shlex.split(entrypoint)[:2] != ["python", JOB]:
        raise ConfigError(f"{path}: entrypoint {entrypoint!r}; allowed: python {JOB} CONFIG ...")
    return manifest


def config_of(manifest: Mapping[str, Any], date: datetime.date) -> NightlyConfig:
    """The config with which the manifest's entrypoint will run at a date."""
    path, *settings = shlex.split(manifest["spec"]["entrypoint"])[2:]
    return load(NightlyConfig, path, [*settings, f"date={date.isoformat()}"])


def night_of(cfg: NightlyConfig, date: datetime.date) -> Night:
    """The night of a config and a date; ConfigError where its id cannot name a RayJob."""
    night = nights.night_of(cfg, date)
    if len(night.id) > LONGEST_NAME or not _DNS_1035.fullmatch(night.id):
        raise ConfigError(
            f"run.name {cfg.run.name!r}: {night.id} cannot name a RayJob; allowed: small letters, "
            f"digits and hyphens, {LONGEST_NAME} with the date"
        )
    return night


def prepared(manifest: Mapping[str, Any], night: Night) -> dict[str, Any]:
    """The manifest of a night: its name, its date as a label, and as the job's last setting."""
    day = night.date.isoformat()
    metadata, spec = manifest["metadata"], manifest["spec"]
    labels = {**metadata.get("labels", {}), "igp.io/date": day}
    return {
        **manifest,
        "metadata": {**metadata, "name": night.id, "labels": labels},
        "spec": {**spec, "entrypoint": f"{spec['entrypoint']} date={day}"},
    }


def namespace_of(manifest: Mapping[str, Any]) -> str:
    """Where the manifest's RayJob belongs."""
    return str(manifest["metadata"].get("namespace", "default"))


def state(status: Mapping[str, Any]) -> State:
    """What a RayJob's status says. A job that failed is under way while the operator retries it."""
    job, deployment = status.get("jobStatus"), status.get("jobDeploymentStatus")
    if job == "SUCCEEDED":
        return "succeeded"
    if deployment in ("Failed", "ValidationFailed"):
        return "failed"
    return "failed" if deployment == "Complete" and job in ("FAILED", "STOPPED") else "under way"


def wait(
    jobs: RayJobs, name: str, *, poll_seconds: float, sleep: Callable[[float], None] = time.sleep
) -> None:
    """Returns once the RayJob has succeeded; JobFailed where it failed, or is there no longer."""
    seen = None
    while True:
        found = jobs.read(name)
        if found is None:
            raise JobFailed(f"RayJob {name}: deleted before it came to its end")
        status = found.get("status") or {}
        now = {key: status.get(key) for key in ("jobStatus", "jobDeploymentStatus")}
        if now != seen:
            say("rayjob", name=name, **now)
            seen = now
        if state(status) == "succeeded":
            return
        if state(status) == "failed":
            why = " ".join(str(status[key]) for key in ("reason", "message") if status.get(key))
            raise JobFailed(
                f"RayJob {name}: {now['jobStatus'] or now['jobDeploymentStatus']}: "
                f"{why or 'no reason given'}; to try the night again, delete it and submit again"
            )
        sleep(poll_seconds)


def read_gate(
    storage: Storage,
    night: Night,
    cfg: NightlyConfig,
    *,
    looks: int = GATE_LOOKS,
    poll_seconds: float,
    sleep: Callable[[float], None] = time.sleep,
) -> dict[str, Any]:
    """gate.json of a finished night; JobFailed where it does not come to be seen, or was made
    under other rules than the config's."""
    for look in range(looks):
        if storage.exists(night.at(nights.SUCCESS)):
            gate = dict(storage.read_json(night.at(nights.GATE)))
            if gate["judging"] != judging(cfg):
                raise JobFailed(
                    f"{night.id}: judged under another gate or drift section; delete its RayJob "
                    "and submit again to have it judged anew"
                )
            return gate
        if look + 1 < looks:
            sleep(poll_seconds)
    raise JobFailed(f"{storage.uri(night.at(nights.GATE))}: absent, so there is no verdict")
