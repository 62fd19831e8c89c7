"""What the rendered overlays mean, beyond being valid: references, volumes, policies, schedules."""

from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from k8s.render_nightly import only_rayjob
from tests.k8s.house_rules import first_nodes, unrestricted
from tests.k8s.manifests import (
    COMPOSED,
    K8S,
    OVERLAYS,
    VOLUMES,
    Object,
    containers,
    environment,
    parsed,
    pod_specs,
    ray,
    rays,
    rendered,
    start_flags,
)

SECRETS = {"igp-hf-token", "igp-ray-token"}
"""What k8s/secret.example.yaml tells users to make."""


def of_kind(objects: list[Object], kind: str) -> list[Object]:
    return [item for item in objects if item["kind"] == kind]


def named(objects: list[Object], kind: str, name: str) -> Object:
    (found,) = (item for item in of_kind(objects, kind) if item["metadata"]["name"] == name)
    return found


def references(spec: Object) -> Iterator[tuple[str, str]]:
    """Kind and name of what a pod needs to be there."""
    if "serviceAccountName" in spec:
        yield "ServiceAccount", spec["serviceAccountName"]
    for volume in spec.get("volumes", []):
        if "persistentVolumeClaim" in volume:
            yield "PersistentVolumeClaim", volume["persistentVolumeClaim"]["claimName"]
        if "configMap" in volume:
            yield "ConfigMap", volume["configMap"]["name"]
    for one in containers(spec):
        yield from (("ConfigMap", s["configMapRef"]["name"]) for s in one.get("envFrom", []))
        for variable in one.get("env", []):
            if "secretKeyRef" in variable.get("valueFrom", {}):
                yield "Secret", variable["valueFrom"]["secretKeyRef"]["name"]


def test_what_pods_refer_to_is_there(
    everything: dict[str, list[Object]], volumes: list[Object]
) -> None:
    claims = {("PersistentVolumeClaim", one["metadata"]["name"]) for one in volumes}
    for name, objects in everything.items():
        there = {(item["kind"], item["metadata"]["name"]) for item in objects}
        there |= {("Secret", secret) for secret in SECRETS} | claims
        for pod, spec in pod_specs(objects):
            assert set(references(spec)) <= there, f"{name} {pod}"
            mounted = {m["name"] for one in containers(spec) for m in one.get("volumeMounts", [])}
            assert mounted <= {volume["name"] for volume in spec.get("volumes", [])}


def test_deleting_what_is_meant_to_be_used_leaves_the_volumes(
    everything: dict[str, list[Object]], volumes: list[Object]
) -> None:
    assert [item["kind"] for item in volumes] == ["PersistentVolumeClaim"] * 2
    for name in ("corpus", "nightly", "nightly-rayjob", "standing-cluster"):
        assert of_kind(everything[name], "PersistentVolumeClaim") == [], name


def test_the_example_secrets_are_all_that_is_referred_to_and_are_in_no_overlay(
    everything: dict[str, list[Object]],
) -> None:
    example = parsed((K8S / "secret.example.yaml").read_text())
    assert {item["metadata"]["name"] for item in example} == SECRETS
    assert not any(value for item in example for value in item["stringData"].values())
    assert not any(of_kind(objects, "Secret") for objects in everything.values())


def test_every_component_is_rendered_by_an_overlay_or_a_composition() -> None:
    used = {name for components in COMPOSED.values() for name in components}
    for path in OVERLAYS.values():
        lines = yaml.safe_load((path / "kustomization.yaml").read_text()).get("components", [])
        used |= {line.rpartition("/")[2] for line in lines}
    assert used == {path.name for path in (K8S / "components").iterdir()}


def test_auth_is_said_in_the_environment_of_every_ray_node(
    everything: dict[str, list[Object]],
) -> None:
    for name, objects in everything.items():
        for it in rays(objects):
            mode = it.cluster.get("authOptions", {}).get("mode", "disabled")
            for node, spec in ((node, group["template"]["spec"]) for node, group in it.nodes):
                assert environment(objects, spec)["RAY_AUTH_MODE"] == mode, f"{name} {node}"


def test_what_is_meant_to_be_used_asks_for_a_token(everything: dict[str, list[Object]]) -> None:
    for name in ("dev-cpu", "corpus", "nightly-rayjob", "standing-cluster"):
        (it,) = rays(everything[name])
        assert it.cluster["authOptions"]["mode"] == "token"


@pytest.mark.parametrize("name", ["corpus", "nightly", "nightly-rayjob", "standing-cluster"])
def test_root_file_systems_are_read_only_beside_a_writable_tmp(
    name: str, everything: dict[str, list[Object]]
) -> None:
    for pod, spec in pod_specs(everything[name]):
        for one in containers(spec):
            assert one["securityContext"].get("readOnlyRootFilesystem") is True, pod
        assert "/tmp" in {mount["mountPath"] for mount in spec["containers"][0]["volumeMounts"]}


def test_pods_of_core_kinds_are_restricted_and_of_our_image(
    everything: dict[str, list[Object]],
) -> None:
    for objects in everything.values():
        for pod, spec in pod_specs(objects):
            assert list(unrestricted(spec)) == [], pod
            assert all(one["image"].startswith("winnow:0.1.0-") for one in containers(spec)), pod


def test_the_dashboard_is_open_to_nodes_submitter_and_operator(
    everything: dict[str, list[Object]],
) -> None:
    for name, objects in everything.items():
        policy = named(objects, "NetworkPolicy", "igp-ray-ingress")["spec"]
        open_to = [
            peer["podSelector"]
            for rule in policy["ingress"]
            for peer in rule["from"]
            if 8265 in [port["port"] for port in rule.get("ports", [{"port": 8265}])]
        ]
        operator = {"app.kubernetes.io/component": "kuberay-operator"}
        submitter = {"app.kubernetes.io/component": "igp-submitter"}
        assert open_to == [
            policy["podSelector"],
            {"matchLabels": submitter},
            {"matchLabels": operator},
        ], name
        for it in rays(objects):
            if it.job:
                assert it.job["submitterPodTemplate"]["metadata"]["labels"] == submitter


def test_hardened_pods_still_find_names_and_each_other(
    everything: dict[str, list[Object]],
) -> None:
    policy = named(everything["corpus"], "NetworkPolicy", "igp-ray-egress")["spec"]
    names, nodes, web = policy["egress"]
    assert {(p["port"], p["protocol"]) for p in names["ports"]} == {(53, "UDP"), (53, "TCP")}
    assert "to" not in names
    assert nodes == {"to": [{"podSelector": policy["podSelector"]}]}
    assert [port["port"] for port in web["ports"]] == [443, 6443]


def test_only_the_spot_group_may_be_taken_away(everything: dict[str, list[Object]]) -> None:
    (it,) = rays(everything["corpus"])
    *steady, (spot_name, spot) = it.nodes
    for name, node in steady:
        terms = node["template"]["spec"]["affinity"]["nodeAffinity"]
        (term,) = terms["requiredDuringSchedulingIgnoredDuringExecution"]["nodeSelectorTerms"]
        (match,) = term["matchExpressions"]
        assert match == {"key": "cloud.google.com/gke-spot", "operator": "DoesNotExist"}, name
    assert spot_name == "model-spot"
    assert "affinity" not in spot["template"]["spec"]
    assert spot["template"]["spec"]["nodeSelector"] == {"cloud.google.com/gke-spot": "true"}
    assert it.groups[1]["priority"] > spot["priority"]


def test_spot_nodes_are_like_the_model_group_but_for_their_place(
    everything: dict[str, list[Object]],
) -> None:
    (it,) = rays(everything["corpus"])
    model, spot = (dict(group["template"]["spec"]) for group in it.groups[1:])
    for spec in (model, spot):
        for key in ("affinity", "nodeSelector", "tolerations"):
            spec.pop(key, None)
    assert model == spot


def test_the_submitted_manifest_is_the_nightly_overlay_rendered(
    everything: dict[str, list[Object]],
) -> None:
    fresh = only_rayjob(rendered(OVERLAYS["nightly-rayjob"]))
    kept = (OVERLAYS["nightly"] / "rayjob.yaml").read_text()
    assert kept == fresh, "run: python k8s/render_nightly.py"
    maps = [item["data"] for item in of_kind(everything["nightly"], "ConfigMap")]
    assert [data["rayjob.yaml"] for data in maps if "rayjob.yaml" in data] == [kept]


def test_what_the_submitted_rayjob_refers_to_comes_with_the_cronjob(
    everything: dict[str, list[Object]], volumes: list[Object]
) -> None:
    objects = [*everything["nightly"], *volumes]
    there = {(item["kind"], item["metadata"]["name"]) for item in objects}
    it = ray(parsed((OVERLAYS["nightly"] / "rayjob.yaml").read_text())[0])
    assert {found for _, spec in it.pods for found in references(spec)} <= there


def test_the_cronjob_outlives_its_rayjob_and_may_only_make_and_read_them(
    everything: dict[str, list[Object]],
) -> None:
    objects = everything["nightly"]
    cron = named(objects, "CronJob", "igp-nightly")["spec"]
    (night,) = rays(everything["nightly-rayjob"])
    job = cron["jobTemplate"]["spec"]
    assert job["activeDeadlineSeconds"] > night.job["activeDeadlineSeconds"]
    assert job["backoffLimit"] == night.job["backoffLimit"] == 0
    assert cron["concurrencyPolicy"] == "Forbid"
    pod = job["template"]["spec"]
    assert f"--time-zone={cron['timeZone']}" in pod["containers"][0]["args"]
    assert pod["serviceAccountName"] == "igp-nightly"
    (binding,) = of_kind(objects, "RoleBinding")
    assert binding["subjects"] == [
        {"kind": "ServiceAccount", "name": "igp-nightly", "namespace": "igp"}
    ]
    (role,) = of_kind(objects, "Role")
    (rule,) = role["rules"]
    assert rule == {
        "apiGroups": ["ray.io"],
        "resources": ["rayjobs"],
        "verbs": ["create", "get", "list", "watch"],
    }


def test_a_raycronjob_carries_the_rayjob_that_it_replaces(
    everything: dict[str, list[Object]],
) -> None:
    (it,) = rays(everything["raycronjob"])
    assert it.top["kind"] == "RayCronJob"
    (same,) = rays(everything["kueue"])  # but for the autoscaler that Kueue takes away
    for key in ("entrypoint", "submitterPodTemplate", "activeDeadlineSeconds"):
        assert it.job[key] == same.job[key]
    assert it.job["rayClusterSpec"]["workerGroupSpecs"] == same.cluster["workerGroupSpecs"]


def test_the_head_waits_for_the_model_that_the_prefetch_marks(
    everything: dict[str, list[Object]],
) -> None:
    objects = everything["corpus"]
    (it,) = rays(objects)
    (wait,) = it.cluster["headGroupSpec"]["template"]["spec"]["initContainers"]
    (load,) = named(objects, "Job", "igp-model-prefetch")["spec"]["template"]["spec"]["containers"]
    mark = '"/models/$MODEL.complete-$REVISION"'
    assert f"test -f {mark}" in wait["args"][0]
    assert load["args"][0].rstrip().endswith(f"touch {mark}")
    model = named(objects, "ConfigMap", "igp-model")["data"]
    assert len(model["REVISION"]) == 40
    assert f"generator.model=/models/{model['MODEL']}" in it.job["entrypoint"].split()


def test_the_standing_cluster_is_the_jobs_cluster_kept(
    everything: dict[str, list[Object]],
) -> None:
    (standing,) = rays(everything["standing-cluster"])
    (job,) = rays(everything["nightly-rayjob"])
    for (_, ours), (name, theirs) in zip(standing.nodes, job.nodes, strict=True):
        spec, other = ours["template"]["spec"], dict(theirs["template"]["spec"])
        other.pop("initContainers", None)  # the standing cluster waits for no model
        assert spec == other, name
        assert ours.get("labels") == theirs.get("labels")
    assert all(group["minReplicas"] >= 1 for group in standing.groups)


def test_dev_cpu_places_a_model_on_the_gpu_that_its_one_worker_claims(
    everything: dict[str, list[Object]],
) -> None:
    (it,) = rays(everything["dev-cpu"])
    assert start_flags(it) == [
        ("head", ["--head", "--num-cpus=0", "--num-gpus=0"]),
        ("model", ["--num-cpus=1", "--num-gpus=1", "--labels=igp.io/role=model"]),
    ]
    assert first_nodes(it) == [{"CPU": 0, "GPU": 0}, {"CPU": 1, "GPU": 1}]
    limits = [node["template"]["spec"]["containers"][0]["resources"] for _, node in it.nodes]
    assert not any("nvidia.com/gpu" in one["limits"] for one in limits)
    assert it.job["entrypoint"].split()[:3] == [
        *("python", "jobs/offline_igp.py", "conf/offline_igp/demo.yaml"),
    ]


def test_one_rayjob_is_taken_from_a_rendering_and_no_other_number() -> None:
    config, job = "kind: ConfigMap\n", "kind: RayJob\nspec: {}\n"
    assert only_rayjob(f"{config}---\n{job}") == job
    for wrong in (config, f"{job}---\n{job}"):
        with pytest.raises(ValueError, match="RayJobs"):
            only_rayjob(wrong)


def test_no_kustomization_is_left_out_of_the_tests() -> None:
    tested = {path.resolve() for path in OVERLAYS.values()}
    found = {path.parent for path in K8S.rglob("kustomization.yaml")}
    parts = {path for path in found if Path("components") in [*path.relative_to(K8S).parents]}
    assert found - parts - tested == {K8S / "common", VOLUMES}
