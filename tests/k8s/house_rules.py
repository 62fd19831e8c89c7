"""What we ask of KubeRay's objects beyond what the operator refuses: known traps, kept shut."""

import re
from collections.abc import Iterator

from pipeline.cluster.errors import Infeasible
from pipeline.cluster.preflight import check
from pipeline.config import (
    Frozen,
    NightlyConfig,
    OfflineIgpConfig,
    PoolConfig,
    PrecomputeConfig,
)
from pipeline.loading import ConfigError, load
from tests.k8s.manifests import REPOSITORY, Object, Ray, containers, quantity
from tests.k8s.operator_rules import Rule
from tests.k8s.versions import pins

CONFIGS: dict[str, type[Frozen]] = {
    "jobs/offline_igp.py": OfflineIgpConfig,
    "jobs/nightly_eval.py": NightlyConfig,
    "jobs/precompute_contexts.py": PrecomputeConfig,
}
"""The config of every job that an entrypoint may name."""
SHELL = re.compile(r"[&|;<>$`()'\"\\*?\n]")
ALPHA = ("networkPolicy", "tlsOptions", "historyServerOptions")
HEAD_PORTS = {"gcs-server", "dashboard", "client", "metrics", "as-metrics", "dash-metrics"}
SECRET = re.compile(r"TOKEN|SECRET|PASSWORD|CREDENTIAL|ACCESS_KEY")
MOST_GROUPS = 17


def api_is_v1(it: Ray) -> Iterator[str]:
    """Never the alpha version, which is still served."""
    if it.top["apiVersion"] != "ray.io/v1":
        yield f"apiVersion {it.top['apiVersion']}: ray.io/v1"


def no_alpha_fields(it: Ray) -> Iterator[str]:
    """Fields behind feature gates that are off by default do nothing, silently."""
    yield from (f"{key}: alpha" for key in ALPHA if key in it.cluster)
    if it.cluster.get("gcsFaultToleranceOptions", {}).get("backend") == "rocksdb":
        yield "gcsFaultToleranceOptions.backend rocksdb: alpha"


def ray_is_the_pinned_one(it: Ray) -> Iterator[str]:
    """The operator chooses commands and probes by rayVersion, so it must be the image's."""
    if it.cluster and it.cluster.get("rayVersion") != pins()["RAY"]:
        yield f"rayVersion {it.cluster.get('rayVersion')}: {pins()['RAY']}"


def images_are_ours(it: Ray) -> Iterator[str]:
    """One image, of the pinned version, in every container: another Ray or Python is refused."""
    found = {one["image"] for _, spec in it.pods for one in containers(spec)}
    allowed = [{f"winnow:{pins()['WINNOW']}-{extra}"} for extra in ("cpu", "gpu")]
    if found not in allowed:
        yield f"images {sorted(found)}: one of {[min(one) for one in allowed]}"


def entrypoint_is_plain(it: Ray) -> Iterator[str]:
    """The submitter's shell reads it unquoted, so an operator would act in the submitter's pod."""
    found = SHELL.findall(it.job.get("entrypoint", ""))
    if found:
        yield f"entrypoint: {' '.join(sorted(set(found)))} would be read by the submitter's shell"


def entrypoint_starts(it: Ray) -> Iterator[str]:
    """A job of ours with a config that loads, and pools that the first nodes can hold."""
    if not it.job:
        return
    python, script, path, *settings = it.job["entrypoint"].split()
    if python != "python" or not script.startswith("jobs/"):
        yield f"entrypoint: {python} {script}: python jobs/..."
    elif script in CONFIGS:
        yield from _breaches(it, script, path, settings)
    else:
        yield f"entrypoint: {script}: one of {[*CONFIGS]}"


def _breaches(it: Ray, script: str, path: str, settings: list[str]) -> Iterator[str]:
    assert (REPOSITORY / script).is_file()
    try:
        config = load(CONFIGS[script], str(REPOSITORY / path), settings)
    except (ConfigError, FileNotFoundError) as error:
        yield f"entrypoint: {error}"
        return
    cluster = getattr(config, "cluster")  # noqa: B009  (every job's config has one)
    pools: dict[str, PoolConfig] = {n: getattr(cluster, n) for n in ("retriever", "generator")}
    try:
        check(pools, first_nodes(it))
    except Infeasible as error:
        yield f"entrypoint: {error}"


def first_nodes(it: Ray) -> list[dict[str, float]]:
    """What Ray will believe of the nodes that a cluster starts with."""
    nodes = []
    for name, node in it.nodes:
        limits = node["template"]["spec"]["containers"][0]["resources"]["limits"]
        said = node.get("rayStartParams", {})
        cpus = quantity(said.get("num-cpus", limits["cpu"]))
        gpus = quantity(said.get("num-gpus", limits.get("nvidia.com/gpu", 0)))
        nodes += [{"CPU": cpus, "GPU": gpus}] * (1 if name == "head" else node["replicas"])
    return nodes


def driver_stays_on_the_head(it: Ray) -> Iterator[str]:
    """Resources for the entrypoint would send the driver to a worker, which may be taken away."""
    for key in ("entrypointNumCpus", "entrypointNumGpus", "entrypointResources"):
        if it.job.get(key):
            yield key
    params = it.cluster.get("headGroupSpec", {}).get("rayStartParams", {})
    if it.cluster and params.get("num-cpus") != "0":
        yield f"head: num-cpus {params.get('num-cpus')}: 0, so that no actor crowds out the driver"


def head_has_its_ports(it: Ray) -> Iterator[str]:
    """PodMonitors find ports by name."""
    if it.cluster:
        ports = it.cluster["headGroupSpec"]["template"]["spec"]["containers"][0].get("ports", [])
        missing = HEAD_PORTS - {port["name"] for port in ports}
        if missing:
            yield f"head: no ports {sorted(missing)}"


def ray_comes_first(it: Ray) -> Iterator[str]:
    """KubeRay takes the first container for Ray's, and its limits for Ray's resources."""
    for name, node in it.nodes:
        first = node["template"]["spec"]["containers"][0]["name"]
        if not first.startswith("ray-"):
            yield f"{name}: the first container is {first}"


def memory_is_reserved(it: Ray) -> Iterator[str]:
    """Ray plans with the limits: what is not requested may not be there."""
    for name, node in it.nodes:
        resources = node["template"]["spec"]["containers"][0].get("resources", {})
        asked, limits = resources.get("requests", {}), resources.get("limits", {})
        for key in {"memory"} | {key for key in {*asked, *limits} if key.endswith("/gpu")}:
            if asked.get(key) != limits.get(key) or key not in limits:
                yield f"{name}: {key}: requests {asked.get(key)}, limits {limits.get(key)}"


def replicas_are_in_range(it: Ray) -> Iterator[str]:
    """minReplicas <= replicas <= maxReplicas; the operator would bend it without a word."""
    for group in it.groups:
        said = [group.get(key, -1) for key in ("minReplicas", "replicas", "maxReplicas")]
        if min(said) < 0 or said != sorted(said):
            yield f"{group['groupName']}: minReplicas, replicas, maxReplicas {said}: rising"


def idle_workers_are_kept_a_while(it: Ray) -> Iterator[str]:
    """The default of 60 s would end a worker between two stages, and load its model again; and a
    job's first nodes are idle until its last has come, which preRunningDeadlineSeconds allows."""
    options = it.cluster.get("autoscalerOptions", {})
    least = max(300, it.job.get("preRunningDeadlineSeconds", 0) + 1)
    if it.cluster.get("enableInTreeAutoscaling") and options.get("idleTimeoutSeconds", 60) < least:
        yield f"idleTimeoutSeconds {options.get('idleTimeoutSeconds', 60)}: {least} or more"
    if it.cluster.get("enableInTreeAutoscaling") and options.get("version") != "v2":
        yield f"autoscalerOptions.version {options.get('version')}: v2"


def shared_memory_is_the_operators(it: Ray) -> Iterator[str]:
    """The operator sizes /dev/shm by the container's memory; a mount of ours would undo it."""
    for name, node in it.nodes:
        for mount in node["template"]["spec"]["containers"][0].get("volumeMounts", []):
            if mount["mountPath"].startswith("/dev/shm"):
                yield f"{name}: a volume at {mount['mountPath']}"


def models_are_read_only(it: Ray) -> Iterator[str]:
    """Many workers read one copy."""
    for name, spec in it.pods:
        for one in containers(spec):
            for mount in one.get("volumeMounts", []):
                if mount["name"] == "models" and not mount.get("readOnly"):
                    yield f"{name}: models can be written"


def workers_hold_no_account(it: Ray) -> Iterator[str]:
    """Only the autoscaler on the head talks to the API server."""
    for name, spec in it.pods:
        if name != "head" and spec.get("automountServiceAccountToken") is not False:
            yield f"{name}: automountServiceAccountToken"


def secrets_are_referred_to(it: Ray) -> Iterator[str]:
    """No value in git."""
    for name, spec in it.pods:
        for one in containers(spec):
            for variable in one.get("env", []):
                if SECRET.search(variable["name"].upper()) and variable.get("value"):
                    yield f"{name}: {variable['name']} has a value; use secretKeyRef"


def jobs_end(it: Ray) -> Iterator[str]:
    """A job that never gets its GPUs, or hangs, or is done, frees the cluster."""
    for key in ("activeDeadlineSeconds", "preRunningDeadlineSeconds"):
        if it.job and not it.job.get(key):
            yield f"no {key}"
    if it.cluster and it.job and not it.job.get("shutdownAfterJobFinishes"):
        yield "no shutdownAfterJobFinishes"


def kueue_counts_pods(it: Ray) -> Iterator[str]:
    """Kueue admits a fixed number of pods, of a cluster that ends with its job."""
    if "kueue.x-k8s.io/queue-name" not in it.top["metadata"].get("labels", {}):
        return
    if it.cluster.get("enableInTreeAutoscaling"):
        yield "kueue: enableInTreeAutoscaling"
    if not it.job.get("shutdownAfterJobFinishes") or it.job.get("clusterSelector"):
        yield "kueue: shutdownAfterJobFinishes, and no clusterSelector"
    if len(it.groups) > MOST_GROUPS:
        yield f"kueue: {len(it.groups)} worker groups, at most {MOST_GROUPS}"


def pods_are_restricted(it: Ray) -> Iterator[str]:
    """The pod security standard "restricted"."""
    for name, spec in it.pods:
        yield from (f"{name}: {text}" for text in unrestricted(spec))
    if it.cluster.get("enableInTreeAutoscaling"):
        options = it.cluster.get("autoscalerOptions", {})
        yield from (f"autoscaler: {text}" for text in _unrestricted_container(options))


def unrestricted(spec: Object) -> Iterator[str]:
    """What of a pod the standard "restricted" refuses."""
    pod = spec.get("securityContext", {})
    if pod.get("runAsNonRoot") is not True or not pod.get("runAsUser"):
        yield "runAsNonRoot and runAsUser"
    if pod.get("seccompProfile") != {"type": "RuntimeDefault"}:
        yield "seccompProfile RuntimeDefault"
    for volume in spec.get("volumes", []):
        if "hostPath" in volume:
            yield f"volume {volume['name']}: hostPath"
    for one in containers(spec):
        yield from (f"{one['name']}: {text}" for text in _unrestricted_container(one))


def _unrestricted_container(one: Object) -> Iterator[str]:
    context = one.get("securityContext", {})
    if context.get("allowPrivilegeEscalation") is not False:
        yield "allowPrivilegeEscalation"
    if context.get("capabilities", {}).get("drop") != ["ALL"]:
        yield "capabilities.drop ALL"


RULES: dict[str, Rule] = {
    rule.__name__: rule
    for rule in (
        *(api_is_v1, no_alpha_fields, ray_is_the_pinned_one, images_are_ours),
        *(entrypoint_is_plain, entrypoint_starts, driver_stays_on_the_head, head_has_its_ports),
        *(ray_comes_first, memory_is_reserved, replicas_are_in_range),
        *(idle_workers_are_kept_a_while, shared_memory_is_the_operators, models_are_read_only),
        *(workers_hold_no_account, secrets_are_referred_to, jobs_end, kueue_counts_pods),
        *(pods_are_restricted,),
    )
}
