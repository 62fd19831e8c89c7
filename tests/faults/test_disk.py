"""A disk that is full, refuses large files, or is read-only: a clear error, and the run goes on."""

import json
import os
import resource
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.faults import small
from tests.jobs.runs import only_run

pytestmark = pytest.mark.usefixtures("here")


def mount(*arguments: str) -> bool:
    """Whether the machine let us."""
    done = subprocess.run(["mount", *arguments], capture_output=True, check=False)
    return done.returncode == 0


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 4 MiB of its own."""
    place = tmp_path / "disk"
    place.mkdir()
    # To mount takes a privilege that not every machine gives its tests; the test with a limited
    # file size needs none, and holds the same errors without a real full disk.
    if not mount("-t", "tmpfs", "-o", "size=4m", "tmpfs", str(place)):
        pytest.skip("NOT CHECKED: mounting a small tmpfs is not permitted here")
    yield place
    subprocess.run(["umount", "--lazy", str(place)], check=True)


@contextmanager
def files_of_at_most(size: int) -> Iterator[None]:
    """Larger writes of this process fail, as on a disk that is full."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


def message(capsys: pytest.CaptureFixture[str]) -> str:
    """The one error that the job ended with."""
    lines = [json.loads(line) for line in capsys.readouterr().err.splitlines()]
    (error,) = [line for line in lines if line["event"] == "error"]
    return str(error["message"])


def test_a_full_disk_is_told_with_the_file_and_the_run_goes_on_once_there_is_room(
    disk: Path, undisturbed: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert small.drive(disk, input__sample=5) == 0  # the questions, and a few shards' worth
    free = os.statvfs(disk).f_bavail * os.statvfs(disk).f_frsize
    ballast = disk / "ballast"
    ballast.write_bytes(bytes(free - 64 * 1024))
    capsys.readouterr()
    assert small.drive(disk, run__root=disk / "next") == 1
    said = message(capsys)
    assert "No space left on device" in said and f"{disk}/next/" in said
    assert not list(disk.rglob("*.tmp")) and not list((disk / "next").glob("runs/*/_SUCCESS"))
    ballast.unlink()
    assert small.drive(disk, run__root=disk / "next") == 0
    assert small.rows(disk / "next") == undisturbed


def test_a_write_that_fails_is_told_with_the_file_and_the_run_goes_on_afterwards(
    tmp_path: Path, undisturbed: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    with files_of_at_most(20 * 1024):  # a stage's part is smaller, one of finished rows larger
        assert small.drive(tmp_path) == 1
    said = message(capsys)
    part = only_run(tmp_path / "out") / "contexts" / "part-000000.parquet"
    assert said == f"[Errno 27] File too large: '{part}'"
    assert not list(tmp_path.rglob("*.tmp"))
    kept = small.stamps(tmp_path / "out")
    assert small.drive(tmp_path) == 0
    assert small.rows(tmp_path / "out") == undisturbed
    assert kept.items() <= small.stamps(tmp_path / "out").items()


def test_a_read_only_folder_is_refused_with_its_name_and_a_finished_run_in_it_is_still_told(
    disk: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert small.drive(disk) == 0
    assert mount("-o", "remount,ro", str(disk))
    assert small.drive(disk) == 0
    assert "was complete" in capsys.readouterr().out
    assert small.drive(disk, selection__threshold=0.3) == 1
    said = message(capsys)
    assert "Read-only file system" in said and str(disk / "out" / "runs") in said
