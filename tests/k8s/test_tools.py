"""Linters of other hands over the Dockerfile and the YAML, and what the image leaves out."""

import subprocess
import sys
from pathlib import Path

import pathspec
import pytest

from tests.k8s.manifests import REPOSITORY

BIN = Path(sys.executable).parent


def run(tool: str, *arguments: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        [str(BIN / tool), *arguments], cwd=REPOSITORY, capture_output=True, text=True, check=False
    )


def test_hadolint_finds_nothing_in_the_dockerfile() -> None:
    done = run("hadolint", "Dockerfile")
    assert done.returncode == 0, done.stdout + done.stderr


def test_hadolint_finds_a_planted_fault(tmp_path: Path) -> None:
    bad = tmp_path / "Dockerfile"
    bad.write_text("FROM python:latest\nRUN cd /app && pip install ray\n")
    done = run("hadolint", str(bad))
    assert done.returncode == 1
    assert "DL3007" in done.stdout


def test_yamllint_finds_nothing_in_the_manifests() -> None:
    done = run("yamllint", "--strict", "-c", "k8s/.yamllint.yaml", "k8s")
    assert (done.returncode, done.stdout) == (0, "")


def test_yamllint_finds_a_key_said_twice(tmp_path: Path) -> None:
    bad = tmp_path / "bad.yaml"
    bad.write_text("spec:\n  replicas: 1\n  replicas: 2\n")
    done = run("yamllint", "--strict", "-c", "k8s/.yamllint.yaml", str(bad))
    assert "duplication of key" in done.stdout


@pytest.mark.parametrize(
    ("name", "goes_in"),
    [
        *(("jobs/offline_igp.py", True), ("pipeline/core/lists.py", True)),
        *(("conf/offline_igp/demo.yaml", True), ("examples/corpus.jsonl", True)),
        *(("constraints.txt", True), (".git/config", False), ("out/runs/x/manifest.json", False)),
        *(("k8s/secret.yaml", False), (".venv/bin/python", False), ("tests/conftest.py", False)),
        *(("pipeline/core/__pycache__/lists.cpython-311.pyc", False), (".env", False)),
    ],
)
def test_the_image_takes_code_and_configs_alone(name: str, goes_in: bool) -> None:
    left_out = False
    for line in (REPOSITORY / ".dockerignore").read_text().splitlines():
        pattern = line.removeprefix("!")
        if not line.startswith("#") and covers(pattern, name):
            left_out = not line.startswith("!")  # the last line that covers a file decides
    assert goes_in == (not left_out)


def covers(pattern: str, name: str) -> bool:
    """Docker's reading: a pattern starts at the top, and covers what is below what it matches."""
    spec = pathspec.GitIgnoreSpec.from_lines([f"/{pattern}"])
    return any(spec.match_file(str(part)) for part in (Path(name), *Path(name).parents))


@pytest.mark.parametrize("name", [".git/config", ".venv/bin/ray", "out/x.parquet", "k8s/x.yaml"])
def test_a_submitted_working_directory_leaves_out_what_is_large_or_secret(name: str) -> None:
    lines = (REPOSITORY / ".rayignore").read_text().splitlines()
    spec = pathspec.GitIgnoreSpec.from_lines(lines)
    assert spec.match_file(name)
    assert not spec.match_file("jobs/offline_igp.py")
    assert not spec.match_file("examples/corpus.jsonl")
