"""The pin file k8s/versions.env."""

import functools

from tests.k8s.manifests import K8S


@functools.cache
def pins() -> dict[str, str]:
    """Every pinned version by its name; ValueError for a line that is no NAME=version."""
    lines = [line for line in (K8S / "versions.env").read_text().splitlines() if line]
    return dict(pair(line) for line in lines if not line.startswith("#"))


def pair(line: str) -> tuple[str, str]:
    """Name and version of one line."""
    name, sign, version = line.partition("=")
    if not sign or not version:
        raise ValueError(f"versions.env: {line!r}: NAME=version")
    return name, version
