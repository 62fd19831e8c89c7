"""Rendered manifests, and the parts of them that rules look at."""

import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

REPOSITORY = Path(__file__).resolve().parents[2]
K8S = REPOSITORY / "k8s"
KUBECTL = Path(sys.executable).parent / "kubectl"

Object = dict[str, Any]
"""One Kubernetes object, as parsed."""

OVERLAYS = {
    "base": K8S / "base",
    "dev-cpu": K8S / "overlays" / "dev-cpu",
    "corpus": K8S / "overlays" / "corpus",
    "nightly": K8S / "overlays" / "nightly",
    "nightly-rayjob": K8S / "overlays" / "nightly" / "rayjob",
    "standing-cluster": K8S / "standing-cluster",
}
VOLUMES = K8S / "volumes"
"""Applied once, by itself."""
COMPOSED = {
    "kueue": ["gpu-nvidia", "token-auth", "kueue", "monitoring"],
    "raycronjob": ["gpu-nvidia", "token-auth", "raycronjob"],
}
"""Components over the base that no overlay uses."""
GPU_IMAGE = "images: [{name: winnow, newName: winnow, newTag: 0.1.0-gpu}]\n"


def rendered(folder: Path) -> str:
    """What `kubectl apply -k folder` would send; AssertionError with kustomize's words."""
    command = [str(KUBECTL), "kustomize", str(folder)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stderr == "", done.stderr  # a warning, such as of a deprecated field
    return done.stdout


def parsed(text: str) -> list[Object]:
    """The objects of a YAML stream."""
    return [item for item in yaml.load_all(text, yaml.CSafeLoader) if item is not None]


def compose(folder: Path, components: Sequence[str]) -> list[Object]:
    """The base with components, as an overlay in `folder` would render."""
    place = os.path.relpath(K8S, folder.resolve())
    lines = [f"resources: [{place}/base]", "namespace: igp", "components:"]
    lines += [f"  - {place}/components/{name}" for name in components]
    (folder / "kustomization.yaml").write_text("\n".join(lines) + "\n" + GPU_IMAGE)
    return parsed(rendered(folder))


@dataclass(frozen=True)
class Ray:
    """An object of KubeRay. `job` is a RayJob's spec, a RayCronJob's template, empty for a
    RayCluster; `cluster` the RayCluster's spec wherever it stands, empty if there is none."""

    top: Object
    job: Object
    cluster: Object

    @property
    def groups(self) -> list[Object]:
        """The worker groups."""
        groups: list[Object] = self.cluster.get("workerGroupSpecs", [])
        return groups

    @property
    def nodes(self) -> list[tuple[str, Object]]:
        """Head and worker groups with their names, each with rayStartParams and a template."""
        head = [("head", self.cluster["headGroupSpec"])] if self.cluster else []
        return head + [(group["groupName"], group) for group in self.groups]

    @property
    def pods(self) -> list[tuple[str, Object]]:
        """The specs of all pods, the submitter's too."""
        found = [(name, node["template"]["spec"]) for name, node in self.nodes]
        if "submitterPodTemplate" in self.job:
            found.append(("submitter", self.job["submitterPodTemplate"]["spec"]))
        return found


def ray(top: Object) -> Ray:
    """KubeRay's object in parts; KeyError where a RayCluster has no spec."""
    if top["kind"] == "RayCluster":
        return Ray(top, {}, top["spec"])
    job = top["spec"]["jobTemplate"] if top["kind"] == "RayCronJob" else top["spec"]
    return Ray(top, job, job.get("rayClusterSpec", {}))


def rays(objects: Sequence[Object]) -> list[Ray]:
    """All of KubeRay's objects."""
    return [ray(item) for item in objects if item["apiVersion"].startswith("ray.io/")]


def pod_specs(objects: Sequence[Object]) -> Iterator[tuple[str, Object]]:
    """Every pod's spec with a name to tell it by, of core kinds and of KubeRay's."""
    for item in objects:
        name = f"{item['kind']} {item['metadata']['name']}"
        if item["kind"] == "Job":
            yield name, item["spec"]["template"]["spec"]
        elif item["kind"] == "CronJob":
            yield name, item["spec"]["jobTemplate"]["spec"]["template"]["spec"]
        elif item["apiVersion"].startswith("ray.io/"):
            yield from ((f"{name} {part}", spec) for part, spec in ray(item).pods)


def containers(spec: Object) -> list[Object]:
    """All containers of a pod, those that run before it too."""
    return [*spec.get("initContainers", []), *spec["containers"]]


def quantity(text: str | int) -> float:
    """A Kubernetes quantity as a number of its unit: "500m" is 0.5, "16Gi" is 2**34."""
    units = {"m": 1e-3, "k": 1e3, "M": 1e6, "G": 1e9, "Ki": 2**10, "Mi": 2**20, "Gi": 2**30}
    number = str(text).rstrip("mkMGKi")
    return float(number) * units.get(str(text)[len(number) :], 1.0)


def start_flags(it: Ray) -> list[tuple[str, list[str]]]:
    """`ray start` flags that give a local process what the pod would claim: a list for the head
    and for each worker of the first replicas, with its group's name. Ports are left to the caller.
    """
    found = []
    for name, node in it.nodes:
        limits = node["template"]["spec"]["containers"][0]["resources"]["limits"]
        said = node.get("rayStartParams", {})
        flags = ["--head"] if name == "head" else []
        flags.append(f"--num-cpus={said.get('num-cpus', limits['cpu'])}")
        flags.append(f"--num-gpus={said.get('num-gpus', limits.get('nvidia.com/gpu', 0))}")
        labels = ",".join(f"{key}={value}" for key, value in node.get("labels", {}).items())
        flags += [f"--labels={labels}"] if labels else []
        found += [(name, flags)] * (1 if name == "head" else node["replicas"])
    return found


def environment(objects: Sequence[Object], spec: Object) -> dict[str, str]:
    """What a pod's first container finds in its environment, of ConfigMaps and literal values."""
    maps = {one["metadata"]["name"]: one["data"] for one in objects if one["kind"] == "ConfigMap"}
    found: dict[str, str] = {}
    first = spec["containers"][0]
    for source in first.get("envFrom", []):
        found |= maps[source["configMapRef"]["name"]]
    return found | {one["name"]: one["value"] for one in first.get("env", []) if "value" in one}
