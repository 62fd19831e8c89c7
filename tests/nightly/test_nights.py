"""Ids of nights, and which night is compared with which."""

import datetime
import json
from pathlib import Path

import pytest

from pipeline.nightly import nights
from pipeline.nightly.nights import Night
from pipeline.readers import InputError
from pipeline.runs.storage import Storage
from tests.nightly.world import config

DATE = datetime.date(2026, 11, 30)


def of(*more: str) -> Night:
    return nights.night_of(config(Path("/d"), Path("/r"), "2026-11-30", *more), DATE)


def test_an_id_is_name_date_and_hash_and_stands_under_its_date() -> None:
    night = of()
    name, digits = night.id.rsplit("-", 1)
    assert name == "demo-2026-11-30" and len(digits) == 8 and int(digits, 16) >= 0
    assert night.folder == f"nights/date=2026-11-30/{night.id}"
    assert night.name == "demo"


@pytest.mark.parametrize(
    "more",
    [
        ("run.root=/elsewhere",),
        ("run.max_error_rate=0.1",),
        ("generator.runtime.threads=7",),
        ("cluster.generator.size=3",),
        ("gate.tolerances.f1=0.2", "drift=null"),
        ("sinks.webhook={url: 'http://a'}",),
    ],
)
def test_what_decides_no_number_leaves_the_id_as_it_is(more: tuple[str, ...]) -> None:
    assert of(*more) == of()


@pytest.mark.parametrize(
    "more",
    [
        ("generator.max_model_len=1024",),
        ("selection.threshold=0.1",),
        ("run.seed=1",),
        ("input.sample=10",),
        ("answer.max_tokens=8",),
        ("probe.top_k=64",),
    ],
)
def test_what_decides_a_number_makes_another_id(more: tuple[str, ...]) -> None:
    assert of(*more).id != of().id


def put(
    root: Path, date: str, name: str = "demo", *, passed: bool = True, done: bool = True
) -> Night:
    """A night of hardly anything."""
    night = Night(datetime.date.fromisoformat(date), f"{name}-{date}-0123abcd")
    folder = root / night.folder
    folder.mkdir(parents=True)
    if done:
        (folder / "gate.json").write_text(json.dumps({"passed": passed, "baseline": None}))
        (folder / "_SUCCESS").touch()
    return night


def found(root: Path, *more: str) -> str | None:
    cfg = config(Path("/d"), root, "2026-11-30", *more)
    return nights.baseline(Storage(str(root)), cfg, nights.night_of(cfg, DATE))


def test_the_baseline_is_the_last_earlier_night_of_the_name_that_passed(tmp_path: Path) -> None:
    assert found(tmp_path) is None
    put(tmp_path, "2026-11-26")
    expected = put(tmp_path, "2026-11-27")
    put(tmp_path, "2026-11-28", passed=False)
    put(tmp_path, "2026-11-29", done=False)
    put(tmp_path, "2026-11-29", "other")
    put(tmp_path, "2026-11-30")
    put(tmp_path, "2026-12-01")
    assert found(tmp_path) == f"{tmp_path}/{expected.folder}/scores.parquet"


def test_a_named_night_is_the_baseline_whatever_its_gate_said(tmp_path: Path) -> None:
    night = put(tmp_path, "2026-11-28", passed=False)
    assert found(tmp_path, f"gate.night={night.id}") == f"{tmp_path}/{night.folder}/scores.parquet"


@pytest.mark.parametrize("what", ["unfinished", "absent", "itself"])
def test_a_named_night_that_cannot_be_one_is_refused(tmp_path: Path, what: str) -> None:
    name = "demo-2026-11-01-00000000"
    if what == "unfinished":
        name = put(tmp_path, "2026-11-28", done=False).id
    if what == "itself":
        cfg = config(Path("/d"), tmp_path, "2026-11-30")
        name = nights.night_of(cfg, DATE).id
    with pytest.raises(InputError, match=rf"gate\.night {name}: no other finished night in"):
        found(tmp_path, f"gate.night={name}")


def test_none_asked_for_is_none(tmp_path: Path) -> None:
    put(tmp_path, "2026-11-28")
    assert found(tmp_path, "gate.night=null") is None


def test_a_frozen_baseline_goes_before_any_night_and_must_be_there(tmp_path: Path) -> None:
    put(tmp_path, "2026-11-28")
    with pytest.raises(InputError, match=r"kept\.parquet: absent"):
        found(tmp_path, f"gate.scores={tmp_path}/kept.parquet")
    (tmp_path / "kept.parquet").touch()
    assert found(tmp_path, f"gate.scores={tmp_path}/kept.parquet") == f"{tmp_path}/kept.parquet"
