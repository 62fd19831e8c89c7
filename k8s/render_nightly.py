"""Write overlays/nightly/rayjob.yaml: the RayJob that the CronJob submits, as kustomize renders it.

python k8s/render_nightly.py

Kustomize cannot put one object into another as text, so the rendered file is kept beside its
source, and a test holds the two together.
"""

import subprocess
from pathlib import Path

NIGHTLY = Path(__file__).resolve().parent / "overlays" / "nightly"


def main() -> None:
    """Renders and writes."""
    command = ["kubectl", "kustomize", str(NIGHTLY / "rayjob")]
    rendered = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    (NIGHTLY / "rayjob.yaml").write_text(only_rayjob(rendered))


def only_rayjob(rendered: str) -> str:
    """The one RayJob among rendered documents; ValueError when there is none or several."""
    documents = rendered.split("\n---\n")
    jobs = [text for text in documents if "\nkind: RayJob\n" in f"\n{text}"]
    if len(jobs) != 1:
        raise ValueError(f"{len(jobs)} RayJobs in {len(documents)} documents, 1 expected")
    return jobs[0].rstrip("\n") + "\n"


if __name__ == "__main__":
    main()
