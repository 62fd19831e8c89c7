"""What a crash may leave on the disk: parts cut short, lost or half written, and a dead lease."""

from pathlib import Path

import pytest

from tests.faults import small
from tests.jobs.runs import only_run

pytestmark = pytest.mark.usefixtures("here")
DAMAGES = {
    "cut short": lambda part: part.write_bytes(part.read_bytes()[:-100]),
    "empty": lambda part: part.write_bytes(b""),
    "lost": lambda part: part.unlink(),
}
PLACES = ["stages/source-*", "stages/probe-*/*", "stages/answer-*/*", "runs/*/contexts"]


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a finished run, which every test here damages anew."""
    folder = tmp_path_factory.mktemp("finished")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("pipeline.cluster.execute.execute", small.one_process)
        assert small.drive(folder) == 0
    return folder


def part_of(folder: Path, place: str, shard: int) -> Path:
    (part,) = (folder / "out").glob(f"{place}/part-{shard:06d}.parquet")
    return part


@pytest.mark.parametrize("damage", DAMAGES)
@pytest.mark.parametrize("place", PLACES)
def test_a_damaged_part_is_made_anew_and_no_other_shard_is(
    place: str, damage: str, finished: Path, undisturbed: list[str]
) -> None:
    part, row_part = part_of(finished, place, 1), part_of(finished, "runs/*/contexts", 1)
    if part != row_part:
        row_part.unlink()  # else the shard is done, and nothing would look at the part again
    DAMAGES[damage](part)
    others = {p: t for p, t in small.stamps(finished / "out").items() if "000001" not in p.name}
    others = {p: t for p, t in others.items() if "source-" not in str(p)}  # written as a whole
    assert small.drive(finished) == 0
    assert small.rows(finished / "out") == undisturbed
    assert others.items() <= small.stamps(finished / "out").items()
    assert part_of(finished, place, 1).stat().st_size > 100


def test_what_writers_left_half_written_is_neither_read_nor_kept(
    finished: Path, undisturbed: list[str]
) -> None:
    whole = part_of(finished, "runs/*/contexts", 1)
    half = whole.read_bytes()[:1000]
    for place in (*PLACES[1:], "runs/*/dead_letters", "runs/*"):
        for folder in (finished / "out").glob(place):
            (folder / ".part-000001.parquet.0123456789abcdef.tmp").write_bytes(half)
    whole.unlink()
    assert small.drive(finished) == 0
    assert small.rows(finished / "out") == undisturbed
    left = [path for path in (finished / "out").rglob("*.tmp") if "stages/" not in str(path)]
    assert left == []


def test_a_dead_driver_s_lease_locks_nobody_out(finished: Path, undisturbed: list[str]) -> None:
    part_of(finished, "runs/*/contexts", 2).unlink()
    lease = only_run(finished / "out") / "lease.json"
    lease.write_text('{"owner": "x", "host": "h", "pla')
    assert small.drive(finished) == 0
    assert small.rows(finished / "out") == undisturbed
    assert not lease.exists()
