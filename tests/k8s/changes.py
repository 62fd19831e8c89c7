"""One change to a good manifest for every rule: the least that must make it fail."""

import copy
from typing import Any

from tests.k8s.manifests import Object

ABSENT = object()
JOB = "spec/"
CLUSTER = "spec/rayClusterSpec/"
HEAD = CLUSTER + "headGroupSpec/"
MODEL = CLUSTER + "workerGroupSpecs/1/"
CONTAINER = "template/spec/containers/0/"

Change = dict[str, Any]
"""Path in the object -> new value, or ABSENT."""


def changed(item: Object, change: Change) -> Object:
    """A copy of an object with values set or taken away; KeyError where a path's parent is not."""
    result = copy.deepcopy(item)
    for path, value in change.items():
        *parents, last = (_key(part) for part in path.split("/"))
        place: Any = result
        for part in parents:
            place = place[part]
        if value is ABSENT:
            del place[last]
        else:
            place[last] = value
    return result


def _key(part: str) -> str | int:
    """A place in a list, or a name, in which ~ stands for /."""
    return int(part) if part.isdigit() else part.replace("~", "/")


def _rules(*rules: tuple[str, str, int], autoscaling: bool = True) -> Change:
    shaped = [
        {"policy": policy, "condition": {"jobStatus": status, "ttlSeconds": ttl}}
        for policy, status, ttl in rules
    ]
    return {
        JOB + "deletionStrategy": {"deletionRules": shaped},
        JOB + "shutdownAfterJobFinishes": False,
        JOB + "ttlSecondsAfterFinished": 0,
        CLUSTER + "enableInTreeAutoscaling": autoscaling,
    }


_NO_SHUTDOWN = {JOB + "shutdownAfterJobFinishes": False, JOB + "ttlSecondsAfterFinished": 0}
_SELECTOR = {"ray.io/cluster": "igp"}

OPERATOR: list[tuple[str, Change]] = [
    ("names_fit", {"metadata/name": "a" * 48}),
    ("names_fit", {"metadata/name": "1-starts-with-a-digit"}),
    ("limits_are_positive", {JOB + "activeDeadlineSeconds": 0}),
    ("limits_are_positive", {JOB + "backoffLimit": -1}),
    ("ttl_needs_shutdown", {JOB + "shutdownAfterJobFinishes": False}),
    ("suspend_needs_shutdown", {**_NO_SHUTDOWN, JOB + "suspend": True}),
    (
        "deletion_is_said_once",
        {**_rules(("DeleteSelf", "FAILED", 9)), JOB + "shutdownAfterJobFinishes": True},
    ),
    (
        "deletion_rules_are_ordered",
        _rules(("DeleteCluster", "FAILED", 9), ("DeleteSelf", "FAILED", 8)),
    ),
    (
        "deletion_rules_are_ordered",
        _rules(("DeleteSelf", "FAILED", 9), ("DeleteSelf", "FAILED", 9)),
    ),
    ("deletion_suits_the_cluster", _rules(("DeleteWorkers", "FAILED", 9))),
    ("cluster_is_said_once", {JOB + "clusterSelector": _SELECTOR}),
    ("cluster_is_said_once", {JOB + "rayClusterSpec": ABSENT}),
    ("interactive_jobs_have_no_retries", {JOB + "submissionMode": "InteractiveMode"}),
    ("sidecars_stand_alone", {JOB + "submissionMode": "SidecarMode"}),
    ("submitters_end", {JOB + "submitterPodTemplate/spec/restartPolicy": "Always"}),
    ("runtime_env_is_yaml", {JOB + "runtimeEnvYAML": "env_vars: {"}),
    ("runtime_env_is_yaml", {JOB + "runtimeEnvYAML": "- a list"}),
    (
        "resources_are_said_once",
        {MODEL + "rayStartParams": {"num-gpus": "1"}, MODEL + "resources": {"GPU": "1"}},
    ),
    ("labels_are_labels", {MODEL + "rayStartParams": {"labels": "a=b"}}),
    ("labels_are_labels", {MODEL + "labels": {"role": "not a label"}}),
    ("restarts_are_the_operators", {MODEL + "template/spec/restartPolicy": "Always"}),
    (
        "autoscaler_is_said_once",
        {HEAD + CONTAINER + "env": [{"name": "RAY_enable_autoscaler_v2", "value": "1"}]},
    ),
    (
        "gcs_faults_are_options",
        {HEAD + CONTAINER + "env": [{"name": "RAY_REDIS_ADDRESS", "value": "redis:6379"}]},
    ),
    ("gcs_faults_are_options", {HEAD + "rayStartParams/redis-username": "ray"}),
    ("tokens_need_a_version", {CLUSTER + "rayVersion": "2.51.0"}),
    ("tokens_need_a_version", {CLUSTER + "rayVersion": ABSENT}),
    ("tokens_need_a_version", {CLUSTER + "authOptions/enableK8sTokenAuth": True}),
]
"""Changes to the overlay corpus' RayJob."""

HOUSE: list[tuple[str, Change]] = [
    ("api_is_v1", {"apiVersion": "ray.io/v1alpha1"}),
    ("no_alpha_fields", {CLUSTER + "networkPolicy": {}}),
    ("no_alpha_fields", {CLUSTER + "gcsFaultToleranceOptions": {"backend": "rocksdb"}}),
    ("ray_is_the_pinned_one", {CLUSTER + "rayVersion": "2.59.0"}),
    ("images_are_ours", {HEAD + CONTAINER + "image": "winnow:latest"}),
    ("images_are_ours", {HEAD + CONTAINER + "image": "winnow:0.1.0-cpu"}),
    ("entrypoint_is_plain", {JOB + "entrypoint": "python jobs/x.py && echo done"}),
    ("entrypoint_is_plain", {JOB + "entrypoint": "python jobs/x.py run.name=$(date)"}),
    ("entrypoint_starts", {JOB + "entrypoint": "python jobs/none.py conf/none.yaml"}),
    ("entrypoint_starts", {JOB + "entrypoint": "bash -c x conf/none.yaml"}),
    (
        "entrypoint_starts",
        {JOB + "entrypoint": "python jobs/offline_igp.py conf/offline_igp/none.yaml"},
    ),
    (
        "entrypoint_starts",
        {JOB + "entrypoint": "python jobs/offline_igp.py conf/offline_igp/demo.yaml run.rot=x"},
    ),
    ("driver_stays_on_the_head", {JOB + "entrypointNumGpus": 1}),
    ("driver_stays_on_the_head", {HEAD + "rayStartParams": {"dashboard-host": "0.0.0.0"}}),
    ("head_has_its_ports", {HEAD + CONTAINER + "ports": [{"name": "dashboard"}]}),
    ("ray_comes_first", {MODEL + CONTAINER + "name": "log-shipper"}),
    ("memory_is_reserved", {MODEL + CONTAINER + "resources/requests/memory": "1Gi"}),
    ("memory_is_reserved", {MODEL + CONTAINER + "resources/requests/nvidia.com~gpu": ABSENT}),
    ("replicas_are_in_range", {MODEL + "replicas": 2}),
    ("replicas_are_in_range", {MODEL + "maxReplicas": ABSENT}),
    ("idle_workers_are_kept_a_while", {CLUSTER + "autoscalerOptions/idleTimeoutSeconds": 60}),
    ("idle_workers_are_kept_a_while", {CLUSTER + "autoscalerOptions/idleTimeoutSeconds": 600}),
    ("idle_workers_are_kept_a_while", {CLUSTER + "autoscalerOptions/version": "v1"}),
    (
        "shared_memory_is_the_operators",
        {MODEL + CONTAINER + "volumeMounts/0": {"name": "scratch", "mountPath": "/dev/shm"}},
    ),
    ("models_are_read_only", {MODEL + CONTAINER + "volumeMounts/1/readOnly": False}),
    ("workers_hold_no_account", {MODEL + "template/spec/automountServiceAccountToken": ABSENT}),
    (
        "secrets_are_referred_to",
        {MODEL + CONTAINER + "env": [{"name": "HF_TOKEN", "value": "hf_abc"}]},
    ),
    ("jobs_end", {JOB + "activeDeadlineSeconds": ABSENT}),
    ("jobs_end", {JOB + "preRunningDeadlineSeconds": ABSENT}),
    ("jobs_end", _NO_SHUTDOWN),
    ("kueue_counts_pods", {"metadata/labels/kueue.x-k8s.io~queue-name": "igp"}),
    ("pods_are_restricted", {MODEL + CONTAINER + "securityContext": {}}),
    ("pods_are_restricted", {MODEL + "template/spec/securityContext/runAsNonRoot": False}),
    ("pods_are_restricted", {CLUSTER + "autoscalerOptions/securityContext": ABSENT}),
    ("pods_are_restricted", {JOB + "submitterPodTemplate/spec/securityContext": ABSENT}),
    (
        "pods_are_restricted",
        {MODEL + "template/spec/volumes/0": {"name": "scratch", "hostPath": {"path": "/"}}},
    ),
]
"""Changes to the overlay corpus' RayJob."""
