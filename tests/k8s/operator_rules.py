"""The KubeRay operator's own checks, restated: what its schema cannot say, it refuses at run time.

After ValidateRayJobSpec, ValidateRayClusterSpec and their like in KubeRay 1.7. Each rule yields
one line for each breach.
"""

import re
from collections.abc import Callable, Iterator

import yaml

from tests.k8s.manifests import Object, Ray

Rule = Callable[[Ray], Iterator[str]]

NAME_LIMITS = {"RayJob": 47, "RayCronJob": 36, "RayCluster": 53}
_LABEL = re.compile(r"[a-z]([-a-z0-9]*[a-z0-9])?")
_LABEL_VALUE = re.compile(r"([A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?)?")
_LABEL_KEY = re.compile(r"([a-z0-9.-]{1,253}/)?[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?")


def names_fit(it: Ray) -> Iterator[str]:
    """DNS-1035 labels, short enough for what the operator adds to them."""
    name, limit = it.top["metadata"]["name"], NAME_LIMITS[it.top["kind"]]
    if len(name) > limit or not _LABEL.fullmatch(name):
        yield f"name {name!r}: at most {limit} of a-z, 0-9, -, a letter first"


def limits_are_positive(it: Ray) -> Iterator[str]:
    """Deadlines over 0, retries and time to live from 0."""
    lowest = {
        "activeDeadlineSeconds": 1,
        "preRunningDeadlineSeconds": 1,
        "backoffLimit": 0,
        "ttlSecondsAfterFinished": 0,
    }
    for key, least in lowest.items():
        if it.job.get(key, least) < least:
            yield f"{key} {it.job[key]}: at least {least}"


def ttl_needs_shutdown(it: Ray) -> Iterator[str]:
    """Only a cluster that is shut down has a time to live."""
    if it.job.get("ttlSecondsAfterFinished") and not it.job.get("shutdownAfterJobFinishes"):
        yield "ttlSecondsAfterFinished without shutdownAfterJobFinishes"


def suspend_needs_shutdown(it: Ray) -> Iterator[str]:
    """A job is held back only where its cluster ends with it."""
    if it.job.get("suspend") and not it.job.get("shutdownAfterJobFinishes"):
        yield "suspend without shutdownAfterJobFinishes"


def deletion_is_said_once(it: Ray) -> Iterator[str]:
    """Deletion rules exclude shutdownAfterJobFinishes."""
    if _deletion_rules(it) and it.job.get("shutdownAfterJobFinishes"):
        yield "deletionStrategy.deletionRules beside shutdownAfterJobFinishes"


def deletion_rules_are_ordered(it: Ray) -> Iterator[str]:
    """Workers go before the cluster, the cluster before the job; no pair of rules is the same."""
    seen: dict[tuple[str, str], int] = {}
    for rule in _deletion_rules(it):
        condition = rule["condition"]
        status = condition.get("jobStatus") or condition.get("jobDeploymentStatus", "")
        if (status, rule["policy"]) in seen:
            yield f"deletionRules: {rule['policy']} on {status} twice"
        seen[status, rule["policy"]] = condition.get("ttlSeconds", 0)
    order = ["DeleteWorkers", "DeleteCluster", "DeleteSelf"]
    for status in {status for status, _ in seen}:
        ttls = [seen[status, policy] for policy in order if (status, policy) in seen]
        if ttls != sorted(ttls):
            yield f"deletionRules on {status}: ttlSeconds {ttls} must rise from {order}"


def deletion_suits_the_cluster(it: Ray) -> Iterator[str]:
    """The autoscaler brings deleted workers back; another's cluster is not ours to delete."""
    policies = {rule["policy"] for rule in _deletion_rules(it)}
    if "DeleteWorkers" in policies and it.cluster.get("enableInTreeAutoscaling"):
        yield "deletionRules: DeleteWorkers with autoscaling"
    if it.job.get("clusterSelector") and policies & {"DeleteWorkers", "DeleteCluster"}:
        yield f"deletionRules: {sorted(policies)} with clusterSelector"


def cluster_is_said_once(it: Ray) -> Iterator[str]:
    """A cluster of its own or another's, which then allows neither retries nor suspend."""
    selector = it.job.get("clusterSelector")
    if it.job and bool(selector) == bool(it.cluster):
        yield "one of rayClusterSpec and clusterSelector"
    if selector and not selector.get("ray.io/cluster"):
        yield "clusterSelector without ray.io/cluster"
    if selector and (it.job.get("backoffLimit") or it.job.get("suspend")):
        yield "clusterSelector with backoffLimit or suspend"


def interactive_jobs_have_no_retries(it: Ray) -> Iterator[str]:
    """The operator knows no second interactive job."""
    if it.job.get("submissionMode") == "InteractiveMode" and it.job.get("backoffLimit"):
        yield "InteractiveMode with backoffLimit"


def sidecars_stand_alone(it: Ray) -> Iterator[str]:
    """A sidecar submitter has no pod of its own to describe, and ends with the head."""
    if it.job.get("submissionMode") != "SidecarMode":
        return
    for key in ("submitterPodTemplate", "submitterConfig", "clusterSelector"):
        if it.job.get(key):
            yield f"SidecarMode with {key}"


def submitters_end(it: Ray) -> Iterator[str]:
    """A Kubernetes Job takes no pod that always restarts."""
    for name, spec in it.pods:
        if name == "submitter" and spec.get("restartPolicy") not in ("Never", "OnFailure"):
            yield f"submitter: restartPolicy {spec.get('restartPolicy')}: Never or OnFailure"


def runtime_env_is_yaml(it: Ray) -> Iterator[str]:
    """A string that holds a YAML mapping."""
    try:
        value = yaml.safe_load(it.job.get("runtimeEnvYAML", "{}"))
    except yaml.YAMLError as error:
        yield f"runtimeEnvYAML: {str(error).splitlines()[0]}"
        return
    if not isinstance(value, dict):
        yield f"runtimeEnvYAML: a mapping, not {type(value).__name__}"


def resources_are_said_once(it: Ray) -> Iterator[str]:
    """In rayStartParams or in `resources`, not both."""
    for name, node in it.nodes:
        own = {"num-cpus", "num-gpus", "memory", "resources"} & set(node.get("rayStartParams", {}))
        if own and node.get("resources"):
            yield f"{name}: {sorted(own)} in rayStartParams beside resources"


def labels_are_labels(it: Ray) -> Iterator[str]:
    """In `labels` and nowhere else, in Kubernetes' syntax."""
    for name, node in it.nodes:
        if "labels" in node.get("rayStartParams", {}):
            yield f"{name}: labels in rayStartParams"
        for key, value in node.get("labels", {}).items():
            if not (_LABEL_KEY.fullmatch(key) and _LABEL_VALUE.fullmatch(value)):
                yield f"{name}: label {key}={value}"


def restarts_are_the_operators(it: Ray) -> Iterator[str]:
    """Autoscaler v2 and sidecar submitters replace pods, and containers do not restart."""
    if not (it.cluster.get("enableInTreeAutoscaling") or _sidecar(it)):
        return
    for name, node in it.nodes:
        policy = node["template"]["spec"].get("restartPolicy", "Never")
        if policy != "Never":
            yield f"{name}: restartPolicy {policy}: Never or unset"


def autoscaler_is_said_once(it: Ray) -> Iterator[str]:
    """By autoscalerOptions.version, not by Ray's environment variable."""
    for name, node in it.nodes:
        for variable in node["template"]["spec"]["containers"][0].get("env", []):
            if variable["name"] == "RAY_enable_autoscaler_v2":
                yield f"{name}: RAY_enable_autoscaler_v2; use autoscalerOptions.version"


def gcs_faults_are_options(it: Ray) -> Iterator[str]:
    """Redis is named in gcsFaultToleranceOptions alone."""
    for name, node in it.nodes:
        if {"redis-password", "redis-username"} & set(node.get("rayStartParams", {})):
            yield f"{name}: Redis in rayStartParams"
        for variable in node["template"]["spec"]["containers"][0].get("env", []):
            if variable["name"] in ("RAY_REDIS_ADDRESS", "REDIS_PASSWORD", "REDIS_USERNAME"):
                yield f"{name}: {variable['name']}; use gcsFaultToleranceOptions"


def tokens_need_a_version(it: Ray) -> Iterator[str]:
    """Ray knows tokens from 2.52, and the operator must be told; a RayJob takes no other kind."""
    options = it.cluster.get("authOptions", {})
    version = tuple(map(int, re.findall(r"\d+", it.cluster.get("rayVersion", ""))[:2]))
    if options.get("mode") == "token" and version < (2, 52):
        yield f"authOptions.mode token: rayVersion {it.cluster.get('rayVersion')}: 2.52 or newer"
    if options.get("enableK8sTokenAuth") and it.job:
        yield "authOptions.enableK8sTokenAuth in a RayJob"


def schedules_have_no_zone(it: Ray) -> Iterator[str]:
    """Five fields; the time zone has its own."""
    if it.top["kind"] == "RayCronJob":
        schedule = it.top["spec"]["schedule"]
        if "TZ=" in schedule or len(schedule.split()) != 5:
            yield f"schedule {schedule!r}: five fields, the zone in timeZone"


def _deletion_rules(it: Ray) -> list[Object]:
    rules: list[Object] = it.job.get("deletionStrategy", {}).get("deletionRules", [])
    return rules


def _sidecar(it: Ray) -> bool:
    return it.job.get("submissionMode") == "SidecarMode"


RULES: dict[str, Rule] = {
    rule.__name__: rule
    for rule in (
        *(names_fit, limits_are_positive, ttl_needs_shutdown, suspend_needs_shutdown),
        *(deletion_is_said_once, deletion_rules_are_ordered, deletion_suits_the_cluster),
        *(cluster_is_said_once, interactive_jobs_have_no_retries, sidecars_stand_alone),
        *(submitters_end, runtime_env_is_yaml, resources_are_said_once, labels_are_labels),
        *(restarts_are_the_operators, autoscaler_is_said_once, gcs_faults_are_options),
        *(tokens_need_a_version, schedules_have_no_zone),
    )
}
