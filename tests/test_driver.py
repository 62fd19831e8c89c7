"""Tests of pipeline.driver without a cluster: policy files, dry runs, errors as exit codes."""

import json
from pathlib import Path
from typing import Any

import pytest

from jobs import evaluate, sweep
from pipeline import driver
from pipeline.config import (
    EvaluateConfig,
    OfflineIgpConfig,
    RetrieverConfig,
    SelectionConfig,
    SweepConfig,
)
from pipeline.core.blend import Blend, to_json
from pipeline.engines import indexes
from pipeline.engines.index_folder import MANIFEST
from pipeline.loading import ConfigError
from pipeline.readers import InputError
from pipeline.stages.plan import run_local
from tests.jobs.runs import DEMO, REPOSITORY, overrides
from tests.stages.plans import config, prepared

COVERAGE = Blend(("coverage",), (1.0,), 0.0, (0.0,), (1.0,))
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


FOUND = """\
selection: {threshold: 0.5, top_m: 3, empty_context: frame}
origin:
  verdict: as good as any
  run: 0123abcd
  model: fake
  probe: {template: chat, passage_format: contents, top_k: 64, max_tokens: 8, trace: false}
"""


def test_a_policy_s_origin_stands_in_the_manifest_and_other_settings_are_told_in_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    cfg = with_policy(tmp_path, FOUND)
    origin = driver.read_origin(cfg)
    (line,) = capsys.readouterr().err.splitlines()
    assert json.loads(line)["differs"] == (
        "probe.template 'chat' there, 'literal' here, probe.top_k 64 there, 128 here"
    )
    one = driver.resolve(cfg)
    plan = prepared(one)
    run_local(plan, one)
    assert driver.run_plan(plan, one, origin) == driver.DONE
    manifest = json.loads((tmp_path / "out" / plan.run_folder / "manifest.json").read_text())
    assert manifest["policy"]["path"] == f"{tmp_path}/policy.yaml"
    assert manifest["policy"]["origin"]["verdict"] == "as good as any"
    assert manifest["config"]["selection"]["threshold"] == 0.5


def test_a_policy_found_under_the_run_s_own_settings_needs_no_word(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    alike = FOUND.replace("chat", "literal").replace("64", "128")
    assert driver.read_origin(with_policy(tmp_path, alike)) is not None
    assert driver.read_origin(with_policy(tmp_path, POLICY)) == {
        "path": f"{tmp_path}/policy.yaml",
        "origin": {},
    }
    assert driver.read_origin(config(tmp_path)) is None
    assert capsys.readouterr().err == ""


def test_a_policy_may_be_named_by_a_uri_with_its_blend_beside_it(tmp_path: Path) -> None:
    cfg = with_policy(tmp_path, POLICY)
    there = cfg.model_copy(update={"policy": f"file://{tmp_path}/policy.yaml"})
    selection = driver.resolve(there).selection
    assert selection is not None and selection.blend == f"file://{tmp_path}/weights.json"
    (tmp_path / "weights.json").write_text(to_json(COVERAGE), encoding="utf-8")
    assert driver.run(there, dry_run=True) == driver.DONE


@pytest.mark.parametrize("allowed", [0.0, 1.0])
def test_a_run_in_which_every_question_dies_is_incomplete_whatever_is_tolerated(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], allowed: float
) -> None:
    cfg = config(tmp_path, run={"max_error_rate": allowed}, generator={"max_model_len": 64})
    plan = prepared(cfg)
    run_local(plan, cfg)
    assert driver.run_plan(plan, cfg) == driver.INCOMPLETE
    (line,) = capsys.readouterr().err.splitlines()
    assert "50 of 50 questions died" in json.loads(line)["message"]
    assert "leaves none to report on" in json.loads(line)["message"]
    assert not (tmp_path / "out" / plan.run_folder / "_SUCCESS").exists()


@pytest.mark.parametrize("features", [("coverage", "qlm"), ("coverage", "retriever_z"), None])
def test_a_blend_that_is_replaced_while_the_run_is_under_way_ends_it_with_a_reason(
    tmp_path: Path, features: tuple[str, ...] | None
) -> None:
    path = tmp_path / "weights.json"
    path.write_text(to_json(COVERAGE), encoding="utf-8")
    selection = {"selector": "blend", "blend": str(path)}
    cfg = config(tmp_path, selection=selection)
    plan = prepared(cfg)
    run_local(plan, cfg)
    if features is None:
        path.unlink()
    else:
        size = len(features)
        other = Blend(features, (1.0,) * size, 0.0, (0.0,) * size, (1.0,) * size)
        path.write_text(to_json(other), encoding="utf-8")
    with pytest.raises(InputError, match=r"changed while the run was under way|no such file"):
        driver.run_plan(plan, cfg)
    assert not (tmp_path / "out" / plan.run_folder / "_SUCCESS").exists()


def evaluate_dry(folder: Path, capsys: pytest.CaptureFixture[str]) -> str:
    """What a dry run of the evaluation over the examples prints."""
    fakes = ("generator", "scorers.bi_encoder")
    arguments = [
        str(REPOSITORY / "conf" / "evaluate" / "demo.yaml"),
        *(f"{section}.{key}=fake" for section in fakes for key in ("engine", "model")),
        *(f"run.root={folder}/out", "--dry-run"),
    ]
    assert driver.main("doc", EvaluateConfig, evaluate.run, arguments) == driver.DONE
    return capsys.readouterr().out


def test_a_dry_evaluation_builds_no_index_and_plans_over_one_that_is_there(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(REPOSITORY)
    corpus = REPOSITORY / "examples" / "corpus.jsonl"
    assert evaluate_dry(tmp_path, capsys) == f"== examples\nindex: to be built over {corpus}\n"
    assert not (tmp_path / "out").exists()
    retriever = RetrieverConfig(engine="bm25", n=5)
    there = Path(indexes.place(retriever, str(corpus), f"{tmp_path}/out"))
    there.mkdir(parents=True)
    (there / MANIFEST).write_text('{"fingerprint": "x"}', encoding="utf-8")
    assert "stages/retrieve-" in evaluate_dry(tmp_path, capsys)
    assert [path.name for path in (tmp_path / "out").iterdir()] == ["indexes"]


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


@pytest.mark.parametrize("order", ["given", "random"])
def test_a_dry_run_tells_the_order_and_the_cut_of_given_candidates(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], order: str
) -> None:
    _, whole = dry(tmp_path, capsys, input__order=order)
    assert f"candidates per question as many as given, order: {order}" in whole
    _, cut = dry(tmp_path, capsys, input__order=order, input__max_candidates=3)
    assert f"candidates per question at most 3, order: {order}" in cut
    assert "probes at most 200, of 32 tokens" in cut


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
    assert f"({5 + 5 + 6 * 5 * 3 + 2 * 3 + 3} arms; equal ones once;" in said


def test_a_blend_in_a_policy_file_is_planned_with_its_scorers(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "weights.json").write_text(to_json(COVERAGE), encoding="utf-8")
    assert driver.run(with_policy(tmp_path, POLICY), dry_run=True) == driver.DONE
    said = capsys.readouterr().out
    assert "stages/score_coverage-" in said and "stages/probe-" not in said
