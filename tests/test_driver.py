"""Tests of pipeline.driver without a cluster: policy files, dry runs, errors as exit codes."""

from pathlib import Path
from typing import Any

import pytest

from jobs import sweep
from pipeline import driver
from pipeline.config import OfflineIgpConfig, SelectionConfig, SweepConfig
from pipeline.core.blend import Blend, to_json
from pipeline.loading import ConfigError
from tests.jobs.runs import DEMO, REPOSITORY, overrides
from tests.stages.plans import config

POLICY = """\
selection:
  selector: blend
  blend: weights.json
  threshold: 0.5
  top_m: 3
  empty_context: abstain
"""


def with_policy(folder: Path, text: str, **sections: Any) -> OfflineIgpConfig:
    """A config whose policy stands in a file."""
    path = folder / "policy.yaml"
    path.write_text(text, encoding="utf-8")
    given = config(folder, arms={"top_m": [1], "empty_context": "frame"}, **sections)
    kept = {name: getattr(given, name) for name in type(given).model_fields if name != "arms"}
    return OfflineIgpConfig(**{**kept, "policy": str(path)})


def dry(folder: Path, capsys: pytest.CaptureFixture[str], **changes: object) -> tuple[int, str]:
    """The exit code of a dry run of the main job, and all that it said."""
    arguments = [str(DEMO), *overrides(folder, **changes), "--dry-run"]
    code = driver.main("doc", OfflineIgpConfig, driver.run, arguments)
    said = capsys.readouterr()
    lines = (said.out + said.err).splitlines()
    return code, "\n".join(" ".join(line.split()) for line in lines)


def test_a_policy_file_stands_in_place_of_the_selection(tmp_path: Path) -> None:
    resolved = driver.resolve(with_policy(tmp_path, POLICY))
    assert resolved.policy is None
    assert resolved.selection == SelectionConfig(
        selector="blend",
        blend=str(tmp_path / "weights.json"),
        threshold=0.5,
        top_m=3,
        empty_context="abstain",
    )


def test_a_policy_that_does_not_go_with_the_config_is_an_error_that_names_its_file(
    tmp_path: Path,
) -> None:
    cfg = with_policy(tmp_path, POLICY, probe={"free_rule_threshold": 0.1})
    with pytest.raises(ConfigError) as caught:
        driver.resolve(cfg)
    assert str(caught.value) == (
        f"{tmp_path}/policy.yaml: selection: selector blend may need the rollouts that "
        "probe.free_rule_threshold skips; set it to null"
    )
    with pytest.raises(ConfigError, match=r"policy\.yaml: no such config file"):
        driver.resolve(cfg.model_copy(update={"policy": str(tmp_path / "x" / "policy.yaml")}))


def test_a_dry_run_tells_the_sizes_and_writes_nothing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code, said = dry(tmp_path, capsys)
    assert code == driver.DONE
    assert "questions 50 (0 malformed)" in said
    assert "probes at most questions x (candidates + 1), of 32 tokens" in said
    assert "at most 350 (7 arms; equal ones once)" in said
    assert "10 of 10 shards to do" in said
    assert not (tmp_path / "out").exists()


def test_a_dry_run_without_ig_speaks_of_no_probes_and_of_every_pool(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code, said = dry(tmp_path, capsys, selection__selector="qlm_gain")
    assert code == driver.DONE
    assert "probes" not in said
    assert "pools likelihood 1 x 0.1 CPU; generator 1 x 0.5 CPU" in said


def test_a_dry_run_shows_a_pool_as_often_as_its_actors_are_needed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    _, said = dry(tmp_path, capsys, scorers__also="[answer_pmi]")
    one, other = "generator 1 x 0.5 CPU", "likelihood 1 x 0.1 CPU"
    assert f"pools {one}; {other}; {one}" in said  # probe, score the probe's answers, answer


GRID = "{top_m: [1], empty_context: frame, grid: [%s]}"
ERRORS = {
    "two arms of one name": (
        {"selection": "null", "arms": GRID % "{selector: ig}, {selector: ig, nu0_limit: 0.1}"},
        "two arms would be called 'ig M1'",
    ),
    "a scorer without its model": (
        {"selection__selector": "cross_encoder"},
        "scorers.cross_encoder: missing",
    ),
    "a blend that is not there": (
        {"selection__selector": "blend", "selection__blend": "/no/weights.json"},
        "/no/weights.json: no such file",
    ),
}


@pytest.mark.parametrize("kind", ERRORS)
def test_what_is_wrong_with_the_arms_is_an_error_of_usage_in_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], kind: str
) -> None:
    changes, expected = ERRORS[kind]
    code, said = dry(tmp_path, capsys, **changes)
    assert code == driver.USAGE
    assert expected in said and len(said.strip().splitlines()) == 1


def test_a_sweep_is_the_main_job_over_its_grid(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = [
        str(REPOSITORY / "conf" / "sweep" / "demo.yaml"),
        *overrides(tmp_path, sweep__top_k="[8, 128]", sweep__max_tokens="[4]"),
    ]
    code = driver.main("doc", SweepConfig, sweep.run, [*arguments, "--dry-run"])
    said = capsys.readouterr().out
    assert code == driver.DONE
    # Five budgets: retrieval 5; IG 5 at -inf and 3 each at six thresholds; the heat map 2 x 3;
    # the oracle, no evidence, closed book.
    assert f"({5 + 5 + 6 * 5 * 3 + 2 * 3 + 3} arms; equal ones once)" in said


def test_a_blend_in_a_policy_file_is_planned_with_its_scorers(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    blend = Blend(("coverage",), (1.0,), 0.0, (0.0,), (1.0,))
    (tmp_path / "weights.json").write_text(to_json(blend), encoding="utf-8")
    assert driver.run(with_policy(tmp_path, POLICY), dry_run=True) == driver.DONE
    said = capsys.readouterr().out
    assert "stages/score_coverage-" in said and "stages/probe-" not in said
