"""Where a night's numbers come from: input, models, code, settings; what differs between two.

It is a night's manifest.json, and the footer of its scores, so a frozen baseline brings its own.
"""

import hashlib
import os
import subprocess
from collections.abc import Iterator, Mapping
from importlib import metadata
from pathlib import Path
from typing import Any

from pipeline.config import NightlyConfig
from pipeline.nightly.nights import Night, config_hash
from pipeline.report.finished import Finished

PACKAGE = Path(__file__).resolve().parents[1]
COMMIT, IMAGE = "WINNOW_COMMIT", "WINNOW_IMAGE"
_LEFT_OUT = ("config.run.root", "config.run.name", "config.cluster.", "config.generator.runtime.")


def lineage(
    cfg: NightlyConfig, night: Night, run: Finished, environment: Mapping[str, str] | None = None
) -> dict[str, Any]:
    """JSON-able. Sinks and gate are left out: they decide no number, and may hold secrets."""
    made = run.manifest
    return {
        "id": night.id,
        "name": night.name,
        "date": night.date.isoformat(),
        "config_hash": config_hash(cfg),
        "code": code(os.environ if environment is None else environment),
        "run": {"folder": run.storage.root, "fingerprint": made["fingerprint"]},
        **{key: made[key] for key in ("config", "policy", "packages", "source", "arms", "stages")},
    }


def code(environment: Mapping[str, str]) -> dict[str, str | None]:
    """Version, hash of the sources, and commit and image where they are known: from WINNOW_COMMIT
    and WINNOW_IMAGE, the commit of a checkout from git."""
    return {
        "version": metadata.version("winnow-rag"),
        "sources": sources(PACKAGE),
        "commit": environment.get(COMMIT) or _head(PACKAGE.parent),
        "image": environment.get(IMAGE),
    }


def sources(package: Path) -> str:
    """16 hex digits over names and contents of a package's modules and templates."""
    whole = hashlib.sha256()
    for path in sorted(package.rglob("*")):
        if path.suffix in (".py", ".txt", ".j2"):
            whole.update(f"{path.relative_to(package)}\n".encode())
            whole.update(path.read_bytes())
    return whole.hexdigest()[:16]


def changes(before: Mapping[str, Any], now: Mapping[str, Any]) -> list[str]:
    """What differs between two lineages and may be why their numbers differ, a line each."""
    old, new = dict(_facts(before)), dict(_facts(now))
    return [
        f"{key}: {old.get(key, 'absent')} -> {new.get(key, 'absent')}"
        for key in {**old, **new}
        if old.get(key) != new.get(key) and not key.startswith(_LEFT_OUT)
    ]


def _facts(manifest: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    yield from _flat("code", manifest["code"])
    yield from _flat("packages", manifest["packages"])
    yield from ((f"input {file['path']}", file["sha256"][:16]) for file in _files(manifest))
    for stage in manifest["stages"]:
        yield from _flat(f"stage {stage['stage']}", stage["depends_on"])
    yield from _flat("config", manifest["config"])


def _files(manifest: Mapping[str, Any]) -> list[dict[str, Any]]:
    files: list[dict[str, Any]] = manifest["source"]["files"]
    return files


def _flat(key: str, value: Any) -> Iterator[tuple[str, Any]]:
    if isinstance(value, Mapping):
        for name, inner in value.items():
            yield from _flat(f"{key}.{name}", inner)
    else:
        yield key, value


def _head(folder: Path) -> str | None:
    """The commit of a checkout; None where it is none, or there is no git."""
    if not (folder / ".git").exists():
        return None
    command = ["git", "-C", str(folder), "rev-parse", "HEAD"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False)
    except FileNotFoundError:
        return None
    return done.stdout.strip() or None
