"""Tests of pipeline.calibration.audit_sample: what an audit takes from a finished run."""

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from pipeline.calibration.audit_sample import Sample, draw, subject
from pipeline.calibration.finished import open_run
from pipeline.config import ArmsConfig, GridEntry
from pipeline.core.agreement import Cut
from pipeline.readers import InputError
from pipeline.stages import arms
from tests.calibration.audits import (
    GENERATOR,
    PROBE,
    N,
    Row,
    change_manifest,
    change_rows,
    early_stopped,
    questions,
    write_run,
)


def sample(folder: Path, count: int = 100, seed: int = 1) -> Sample:
    run = open_run(str(folder))
    return draw(run, subject(run), questions=count, seed=seed)


def ids(found: Sample) -> list[str]:
    return [question.question_id for question in found.questions]


def test_the_subject_is_the_probe_of_the_manifest(tmp_path: Path) -> None:
    found = subject(open_run(str(write_run(tmp_path / "run"))))
    assert (found.generator, found.probe, found.notes) == (GENERATOR, PROBE, ())
    assert found.engine == "fake"


def test_the_cuts_are_those_of_the_arms_that_admit_by_ig(tmp_path: Path) -> None:
    ig = GridEntry(selector="ig", thresholds=(-math.inf, 0.1))
    replayed = GridEntry(selector="ig", label="short", ig_max_tokens=2, thresholds=(0.9,))
    grid = ArmsConfig(
        top_m=(5, 1), empty_context="frame", grid=(ig, GridEntry(selector="coverage"), replayed)
    )
    folder = write_run(tmp_path / "run")
    plain = [arm.plain() for arm in arms.grid_arms(grid)]
    change_manifest(folder, lambda manifest: manifest.update(arms=plain))
    expected = (Cut(-math.inf, 1), Cut(-math.inf, 5), Cut(0.1, 1), Cut(0.1, 5))
    assert subject(open_run(str(folder))).cuts == expected


def test_a_question_has_its_prompts_and_what_the_run_measured_with_them(tmp_path: Path) -> None:
    found = sample(write_run(tmp_path / "run"))
    assert ids(found) == [f"q{i}" for i in range(6)]
    assert (found.rollouts, found.free_rule, found.early_stopped) == (6 * (N + 1), 0, 0)
    for question in found.questions:
        assert len(question.prompts) == len(question.stored.nu) == len(question.stored.said)
        assert None not in question.stored.nu and None not in question.stored.said
    said = found.questions[0].stored.said[0]
    assert said is not None and said.token_ids is None and said.steps >= 1


def test_a_sample_is_the_same_for_a_seed_whatever_the_shards_and_in_the_runs_order(
    tmp_path: Path,
) -> None:
    folder, moved = write_run(tmp_path / "run", questions(40)), tmp_path / "moved"
    write_run(moved, questions(40)[::-1])
    chosen = ids(sample(folder, 10))
    assert len(chosen) == 10 and chosen == sorted(chosen, key=lambda name: int(name[1:]))
    assert set(ids(sample(moved, 10))) == set(chosen)
    assert set(ids(sample(folder, 10, seed=2))) != set(chosen)
    assert set(ids(sample(folder, 5))) < set(chosen)


def test_rows_without_probes_or_candidates_are_never_drawn(tmp_path: Path) -> None:
    rows = questions(4)
    rows[1]["candidates"] = []
    folder = write_run(tmp_path / "run", rows)

    def refused(row: Row) -> None:
        if row["question_id"] == "q2":
            row["probes"] = row["gains"] = None

    change_rows(folder, refused)
    assert ids(sample(folder)) == ["q0", "q3"]


def test_rollouts_that_the_free_rule_spared_have_no_value_and_are_counted(tmp_path: Path) -> None:
    folder = write_run(tmp_path / "run")

    def spare(row: Row) -> None:
        if row["question_id"] == "q1":
            probes = row["probes"]
            probes.update(nu=[None] * N, free_rule=True)
            for name in ("steps", "answers", "prompt_tokens", "u", "margins"):
                probes[name] = probes[name][:1]

    change_rows(folder, spare)
    found = sample(folder)
    stored = found.questions[1].stored
    assert found.free_rule == N and len(found.questions[1].prompts) == N + 1
    assert stored.nu[0] is not None and stored.nu[1:] == (None,) * N == stored.said[1:]


def test_the_nu_of_a_rollout_that_was_stopped_early_is_no_value_and_is_counted(
    tmp_path: Path,
) -> None:
    folder = write_run(tmp_path / "run")
    early_stopped(folder, {"q1": [True, False, True]})
    found = sample(folder)
    stored = found.questions[1].stored
    assert found.early_stopped == 2
    assert [value is None for value in stored.nu] == [False, True, False, True]
    assert [value is None for value in stored.said] == [False, True, False, True]
    assert None not in found.questions[0].stored.nu


def other_prompts(manifest: dict[str, Any]) -> None:
    manifest["stages"][0]["depends_on"]["prompts"] = "0" * 16


def other_model(manifest: dict[str, Any]) -> None:
    manifest["stages"][0]["depends_on"]["generator"]["model"] = "hash"


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda manifest: manifest.update(stages=[]), "the run has no probes"),
        (lambda manifest: manifest["config"]["probe"].pop("top_k"), "probe.top_k: Field required"),
        (
            lambda manifest: manifest["config"]["generator"].update(dtype="float8"),
            "generator.dtype: Input should be 'float32', 'bfloat16' or 'float16'",
        ),
        (other_prompts, "prompts of its probe are not those of this version"),
        (other_model, "model of 'fake' was 'hash', is None"),
    ],
)
def test_a_run_whose_probe_is_not_there_or_not_the_same_is_refused_with_its_folder(
    tmp_path: Path, change: Callable[[dict[str, Any]], None], message: str
) -> None:
    folder = write_run(tmp_path / "run")
    change_manifest(folder, change)
    with pytest.raises(InputError, match=message) as caught:
        subject(open_run(str(folder)))
    assert str(folder) in str(caught.value) and "\n" not in str(caught.value)


def test_another_version_of_the_engine_is_noted(tmp_path: Path) -> None:
    folder = write_run(tmp_path / "run")

    def older(manifest: dict[str, Any]) -> None:
        manifest["stages"][0]["depends_on"]["generator"]["version"] = "fake 0.1"

    change_manifest(folder, older)
    assert subject(open_run(str(folder))).notes == ("engine: fake 0.1 -> fake",)


def test_a_run_without_candidates_or_with_others_than_it_probed_is_refused(tmp_path: Path) -> None:
    folder = write_run(tmp_path / "run")

    def shorten(row: Row) -> None:
        row["candidates"] = row["candidates"][: N - 1]

    change_rows(folder, shorten)
    with pytest.raises(InputError, match=r"'q0' has 3 probed passages and 2 candidates"):
        sample(folder)
    change_rows(folder, lambda row: row.update(candidates=None))
    with pytest.raises(InputError, match=r"'q0' has 3 probed passages and 0 candidates"):
        sample(folder)


def test_a_run_in_which_nothing_was_probed_is_refused(tmp_path: Path) -> None:
    folder = write_run(tmp_path / "run")
    change_rows(folder, lambda row: row.update(probes=None, gains=None))
    with pytest.raises(InputError, match="no question of the run was probed with a candidate"):
        sample(folder)


def test_a_run_whose_rows_lack_a_column_is_refused(tmp_path: Path) -> None:
    folder = write_run(tmp_path / "run")
    for path in (folder / "contexts").iterdir():
        pq.write_table(pq.read_table(path).drop_columns(["candidates"]), path)
    with pytest.raises(InputError, match="the run's rows have no candidates"):
        sample(folder)
