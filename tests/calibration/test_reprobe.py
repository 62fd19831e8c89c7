"""Tests of pipeline.calibration.reprobe: a sample probed again, alone and in company."""

import math
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from pipeline.calibration.audit_sample import Sample, Subject, draw, subject
from pipeline.calibration.finished import open_run
from pipeline.calibration.reprobe import Comparison, Pass, comparisons, labels, passes
from pipeline.config import AuditConfig, GeneratorConfig, ProbeConfig
from pipeline.engines.base import EngineDead
from pipeline.engines.table import GENERATORS
from tests.calibration.audits import Crowded, Dying, N, Overflowing, write_run

RUN = "the run (float32)"
COMPOSITIONS = (
    {"name": "alone", "in_flight": 1},
    {"name": "three", "in_flight": 3, "repeats": 2},
    {"name": "crowd", "shuffled": True},
)


def config(folder: Path, **settings: Any) -> AuditConfig:
    given = {"run": str(folder), "compositions": COMPOSITIONS, **settings}
    return AuditConfig.model_validate(given)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return write_run(tmp_path / "run")


def opened(cfg: AuditConfig) -> tuple[Subject, Sample]:
    run = open_run(cfg.run)
    found = subject(run)
    return found, draw(run, found, questions=cfg.questions, seed=cfg.seed)


def probe(cfg: AuditConfig) -> tuple[list[Pass], Counter[str]]:
    ticks = Counter[str]()
    return list(passes(cfg, *opened(cfg), lambda label: ticks.update([label]))), ticks


def compared(cfg: AuditConfig) -> dict[tuple[str, str, str], Comparison]:
    made, _ = probe(cfg)
    found = comparisons(made, *opened(cfg))
    return {(entry.dtype, entry.composition, entry.against): entry for entry in found}


def test_every_pass_probes_the_whole_sample_and_reports_each_rollout(folder: Path) -> None:
    cfg = config(folder, dtypes=[None, "bfloat16", "float32"])
    made, ticks = probe(cfg)
    found, sample = opened(cfg)
    names = ["alone", "three", "three #2", "crowd"]
    expected = [f"{dtype} {name}" for dtype in ("float32", "bfloat16") for name in names]
    assert [entry.label for entry in made] == labels(cfg, found) == expected
    assert ticks == dict.fromkeys(expected, sample.rollouts)
    for entry in made:
        assert [len(row.nu) for row in entry.probed] == [N + 1] * 6


def test_on_a_deterministic_engine_nothing_differs_anywhere(folder: Path) -> None:
    found = compared(config(folder))
    assert list(found) == [
        ("float32", "alone", RUN),
        *(
            ("float32", name, against)
            for name in ("three", "three #2", "crowd")
            for against in (RUN, "alone")
        ),
    ]
    for entry in found.values():
        agreement = entry.agreement
        assert (agreement.questions, agreement.rollouts, agreement.pairs) == (6, 24, 18)
        assert (agreement.nu.max, agreement.ig.max, agreement.nu_alike) == (0, 0, 0)
        assert (agreement.texts, agreement.steps, agreement.flips, agreement.admissions) == (0,) * 4
        assert entry.refused == ()


def test_an_engine_that_answers_otherwise_in_company_is_found_out(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(GENERATORS, "fake", Crowded)
    found = compared(config(folder))
    assert found["float32", "alone", RUN].agreement.ig.max == 0  # each rollout was alone
    for name in ("three", "three #2", "crowd"):
        agreement = found["float32", name, "alone"].agreement
        assert agreement.ig.max > 0 and agreement.nu.max > 0
        assert agreement.texts == 0 and agreement.nu_alike == agreement.nu.max
    # What depends on the crowd alone repeats, so the audit itself is deterministic.
    again = compared(config(folder))
    assert repr(again) == repr(found)  # NaN is NaN


def test_as_many_rollouts_are_in_flight_as_the_composition_says(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    built: list[Crowded] = []

    def build(cfg: GeneratorConfig, settings: ProbeConfig) -> Crowded:
        built.append(Crowded(cfg, settings))
        return built[-1]

    monkeypatch.setitem(GENERATORS, "fake", build)
    probe(config(folder))
    # One engine a composition, its repeats included; null is the whole sample at once.
    assert [engine.largest for engine in built] == [1, 3, 24]


def test_each_dtype_is_compared_with_the_run_and_within_itself(folder: Path) -> None:
    found = compared(config(folder, dtypes=["bfloat16"]))
    assert set(found) == {
        ("bfloat16", "alone", RUN),
        *(("bfloat16", name, RUN) for name in ("three", "three #2", "crowd")),
        *(("bfloat16", name, "alone") for name in ("three", "three #2", "crowd")),
    }


def test_what_an_engine_refuses_in_another_dtype_is_part_of_the_finding(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(GENERATORS, "fake", Overflowing)
    found = compared(config(folder, dtypes=["float32", "float16"]))
    entry = found["float16", "alone", RUN]
    assert entry.refused == ("the model's logits are not finite",) * 18
    assert (entry.agreement.rollouts, entry.agreement.incomparable) == (6, 18)
    assert math.isnan(entry.agreement.ig.max)
    assert found["float32", "alone", RUN].refused == ()


def test_a_lost_engine_ends_the_audit(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(GENERATORS, "fake", Dying)
    with pytest.raises(EngineDead, match="the engine is gone"):
        probe(config(folder))
