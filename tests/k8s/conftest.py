"""Every overlay and the compositions of components, rendered once."""

from pathlib import Path

import pytest

from tests.k8s.crds import Schemas, schemas
from tests.k8s.manifests import COMPOSED, OVERLAYS, VOLUMES, Object, compose, parsed, rendered


@pytest.fixture(scope="session")
def everything(tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[Object]]:
    """The objects of every overlay and composition, by its name. Not to be changed."""
    found = {name: parsed(rendered(folder)) for name, folder in OVERLAYS.items()}
    for name, components in COMPOSED.items():
        found[name] = compose(tmp_path_factory.mktemp(name), components)
    return found


@pytest.fixture(scope="session")
def volumes() -> list[Object]:
    """The objects that no overlay but dev-cpu owns."""
    return parsed(rendered(VOLUMES))


@pytest.fixture(scope="session")
def crds(shared_root: Path) -> Schemas:
    """The schemas of KubeRay's and the Prometheus operator's kinds, kept beside the repository."""
    folder = shared_root / "crds"
    if not (folder / "SOURCES.txt").is_file():
        # Megabytes of other projects' text, so they stay outside this repository; without them
        # the operator's rules and the core kinds are still checked.
        pytest.skip(f"NOT CHECKED: {folder} is absent; set WINNOW_SHARED to check against it")
    return schemas(folder)
