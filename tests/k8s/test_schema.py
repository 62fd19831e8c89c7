"""Strict schemas: KubeRay's and the Prometheus operator's CRDs with CEL, and Kubernetes' own."""

import warnings
from typing import Any

import kubernetes_validate
import pytest

from tests.k8s.changes import ABSENT, CLUSTER, CONTAINER, HEAD, JOB, MODEL, Change, changed
from tests.k8s.crds import Schema, Schemas, errors
from tests.k8s.manifests import OVERLAYS, Object, pod_specs, rays

CUSTOM = ("ray.io/", "monitoring.coreos.com/")
KUBERNETES = "1.37"

BAD_FOR_THE_CRD: list[tuple[str, Change]] = [
    ("'ttlSecondsAfterFinish' was unexpected", {JOB + "ttlSecondsAfterFinish": 600}),
    ("'1' is not of type 'integer'", {JOB + "backoffLimit": "1"}),
    ("'resource' was unexpected", {MODEL + CONTAINER + "resource": {}}),
    ("'http' is not of type 'integer'", {HEAD + CONTAINER + "ports/0/containerPort": "http"}),
    ("'headGroupSpec' is a required property", {CLUSTER + "headGroupSpec": ABSENT}),
    ("is not one of", {CLUSTER + "authOptions/mode": "password"}),
    ("managedBy field value must be", {JOB + "managedBy": "someone"}),
    (
        "JobStatus and JobDeploymentStatus cannot be used together",
        {
            JOB + "deletionStrategy": {
                "deletionRules": [
                    {
                        "policy": "DeleteSelf",
                        "condition": {"jobStatus": "FAILED", "jobDeploymentStatus": "Failed"},
                    }
                ]
            }
        },
    ),
    ("requires either BOTH onSuccess and onFailure", {JOB + "deletionStrategy": {}}),
]
BAD_FOR_KUBERNETES: list[tuple[str, str, Change]] = [
    ("CronJob", "'concurrencyPolice' was unexpected", {"spec/concurrencyPolice": "Forbid"}),
    ("Role", "is not of type 'array'", {"rules/0/verbs": "create"}),
    ("NetworkPolicy", "'podSelectors' was unexpected", {"spec/podSelectors": {}}),
    ("PersistentVolumeClaim", "is not of type", {"spec/accessModes": "ReadWriteMany"}),
]


def core_errors(item: Object) -> list[str]:
    """Why Kubernetes' own schemas refuse an object."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of the library, about its own resource files
            kubernetes_validate.validate(item, KUBERNETES, strict=True)
    except kubernetes_validate.ValidationError as error:
        return [str(error.message)]
    return []


def is_custom(item: Object) -> bool:
    return bool(item["apiVersion"].startswith(CUSTOM))


@pytest.fixture
def corpus(everything: dict[str, list[Object]]) -> Object:
    (found,) = rays(everything["corpus"])
    return found.top


def test_custom_resources_keep_their_schemas(
    everything: dict[str, list[Object]], crds: Schemas
) -> None:
    kinds = set()
    for name, objects in everything.items():
        for item in filter(is_custom, objects):
            schema = crds[item["apiVersion"], item["kind"]]
            assert errors(schema, item) == [], f"{name} {item['kind']}"
            kinds.add(item["kind"])
    assert kinds == {"RayJob", "RayCluster", "RayCronJob", "PodMonitor", "PrometheusRule"}


@pytest.mark.parametrize(("reason", "change"), BAD_FOR_THE_CRD)
def test_a_bad_rayjob_is_refused_with_its_reason(
    reason: str, change: Change, corpus: Object, crds: Schemas
) -> None:
    found = errors(crds["ray.io/v1", "RayJob"], changed(corpus, change))
    assert len(found) == 1
    assert reason in found[0]


def test_a_required_field_with_a_default_may_be_left_out(corpus: Object, crds: Schemas) -> None:
    left_out = changed(corpus, {MODEL + "minReplicas": ABSENT})
    assert errors(crds["ray.io/v1", "RayJob"], left_out) == []


def test_core_kinds_keep_kubernetes_schemas(
    everything: dict[str, list[Object]], volumes: list[Object]
) -> None:
    rendered = [volumes, *everything.values()]
    distinct = {repr(item): item for objects in rendered for item in objects}
    core = [item for item in distinct.values() if not is_custom(item)]
    for item in core:
        assert core_errors(item) == [], item["metadata"]
    kinds = {item["kind"] for item in core}
    assert kinds >= {"ConfigMap", "CronJob", "Job", "NetworkPolicy", "PersistentVolumeClaim"}


def test_the_pods_inside_keep_kubernetes_schemas_too(everything: dict[str, list[Object]]) -> None:
    distinct = {
        repr(spec): (pod, spec) for name in OVERLAYS for pod, spec in pod_specs(everything[name])
    }
    for pod, spec in distinct.values():
        assert core_errors(as_pod(spec)) == [], pod


@pytest.mark.parametrize(("kind", "reason", "change"), BAD_FOR_KUBERNETES)
def test_a_bad_core_object_is_refused_with_its_reason(
    kind: str,
    reason: str,
    change: Change,
    everything: dict[str, list[Object]],
    volumes: list[Object],
) -> None:
    good = next(item for item in [*everything["nightly"], *volumes] if item["kind"] == kind)
    assert reason in core_errors(changed(good, change))[0]


def test_a_bad_pod_is_refused(corpus: Object) -> None:
    spec = corpus["spec"]["submitterPodTemplate"]["spec"]
    bad = changed(as_pod(spec), {"spec/containers/0/imagePolicy": "Always"})
    assert core_errors(bad) == [
        "Additional properties are not allowed ('imagePolicy' was unexpected)"
    ]


def as_pod(spec: Object) -> Object:
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "x"}, "spec": spec}


RULE = "self.low <= self.high"


def test_a_rule_in_cel_is_asked_where_it_stands() -> None:
    pair: dict[str, Any] = {
        "type": "object",
        "properties": {"low": {"type": "integer"}, "high": {"type": "integer", "default": 9}},
        "x-kubernetes-validations": [{"rule": RULE, "message": "low over high"}],
    }
    schema = Schema.of({"type": "object", "properties": {"pairs": {"items": pair}}})
    good = {"pairs": [{"low": 1, "high": 2}, {"low": 9}]}
    assert errors(schema, good) == []
    assert errors(schema, {"pairs": [{"low": 1}, {"low": 3, "high": 2}]}) == [
        "$.pairs[1]: low over high"
    ]


def test_a_number_or_a_string_and_nothing_else_fits_where_both_are_allowed() -> None:
    port = {"x-kubernetes-int-or-string": True, "anyOf": [{"type": "integer"}, {"type": "string"}]}
    schema = Schema.of({"type": "object", "properties": {"port": port}})
    assert errors(schema, {"port": 80}) == errors(schema, {"port": "http"}) == []
    assert len(errors(schema, {"port": [80]})) == 1
