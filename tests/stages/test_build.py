"""Tests of pipeline.stages.build: which stages a config asks for, and its arms and blends."""

import json
from pathlib import Path
from typing import Any

import pytest

from pipeline.config import OfflineIgpConfig
from pipeline.config.policy import SCORERS
from pipeline.core.blend import Blend, to_json
from pipeline.engines import models
from pipeline.loading import ConfigError
from pipeline.readers import InputError
from pipeline.stages import build, score, source
from pipeline.stages.plan import make_plan
from pipeline.stages.stage import Stage
from tests.stages.plans import SOURCE, config, searched

END = ["select", "answer", "evaluate"]


def names(cfg: OfflineIgpConfig) -> list[str]:
    """The stages of a config, which fit together."""
    made = build.stages(cfg)
    make_plan("root", "x", SOURCE, source.columns(cfg.input), made)
    return [stage.name for stage in made]


def by_name(cfg: OfflineIgpConfig) -> dict[str, Stage]:
    """The stages of a config."""
    return {stage.name: stage for stage in build.stages(cfg)}


def grid(*entries: dict[str, Any], **options: Any) -> dict[str, Any]:
    """A grid of arms as a config's section."""
    return {"top_m": [1, 3], "empty_context": "frame", "grid": entries, **options}


def write_blend(folder: Path, *features: str) -> str:
    """A blend's file; its path."""
    size = len(features)
    blend = Blend(features, (1.0,) * size, 0.0, (0.0,) * size, (1.0,) * size)
    path = folder / "blend.json"
    path.write_text(to_json(blend), encoding="utf-8")
    return str(path)


def test_the_default_policy_probes_selects_answers_and_evaluates(tmp_path: Path) -> None:
    assert names(config(tmp_path)) == ["probe", *END]


def test_every_model_is_pinned_under_the_key_of_its_section(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The hub is not asked: what it would be asked for, under which key, is kept."""
    keys = {
        "one/generator": "generator.model",
        "one/bi": "scorers.bi_encoder.model",
        "one/cross": "scorers.cross_encoder.model",
        "one/likelihood": "scorers.likelihood.model",
        "one/ranker": "listwise.ranker.model",
        "one/extractor": "clues.extractor.model.model",
        "one/truncator": "clues.truncator.model.model",
        "one/reranker": "clues.reranker.model",
        "one/judge": "evaluation.nli.model",
    }
    asked = {}

    def commit(model: str, revision: str, *, key: str) -> str:
        asked[model] = key
        return f"{revision} of {model}"

    monkeypatch.setattr(models, "commit", commit)
    vllm = {"engine": "vllm", "revision": "branch"}
    cfg = config(
        tmp_path,
        generator={**vllm, "model": "one/generator"},
        scorers={
            "bi_encoder": {"model": "one/bi", "revision": "branch"},
            "cross_encoder": {"model": "one/cross", "revision": "branch"},
            "likelihood": {**vllm, "model": "one/likelihood"},
        },
        listwise={"ranker": {**vllm, "model": "one/ranker"}},
        clues={
            "extractor": {"model": {**vllm, "model": "one/extractor"}},
            "truncator": {"model": {**vllm, "model": "one/truncator"}},
            "reranker": {"model": "one/reranker", "revision": "branch"},
        },
        evaluation={"nli": {"engine": "classifier", "model": "one/judge", "revision": "branch"}},
        answer={"task": "eli5", "template": "literal"},
    )
    pinned = build.pin(cfg).model_dump_json()
    assert asked == keys
    assert all(f'"branch of {model}"' in pinned for model in keys)


def test_without_given_candidates_retrieval_comes_first(tmp_path: Path) -> None:
    assert names(searched(tmp_path)) == ["retrieve", "probe", *END]


def test_a_pool_is_ranked_in_place_of_retrieval(tmp_path: Path) -> None:
    given = config(tmp_path).input.model_dump() | {"order": "retriever", "max_candidates": 2}
    cfg = searched(tmp_path, input=given)
    assert names(cfg) == ["rank_pool", "probe", *END]
    made = by_name(cfg)["rank_pool"]
    assert (made.pool, made.durable, made.depends_on["max_candidates"]) == ("retriever", True, 2)
    assert names(searched(tmp_path, input=given | {"order": "random"})) == ["probe", *END]


def test_without_ig_there_are_no_probes(tmp_path: Path) -> None:
    assert names(config(tmp_path, arms=grid())) == END
    cfg = config(tmp_path, arms=grid({"selector": "qlm", "thresholds": [0.0]}))
    assert names(cfg) == ["score_qlm", *END]
    made = by_name(cfg)
    assert "probes" not in (*made["select"].needs, *made["evaluate"].needs)


@pytest.mark.parametrize(
    "gate", [{"nu0_limit": 0.1}, {"on_refusal": "fallback"}, {"fallback": "ig"}]
)
def test_a_gate_on_the_model_s_own_answer_needs_the_probes(
    tmp_path: Path, gate: dict[str, Any]
) -> None:
    cfg = config(tmp_path, arms=grid({"selector": "qlm", **gate}))
    assert names(cfg) == ["score_qlm", "probe", *END]


def test_scorers_come_before_the_probe_but_for_those_that_read_it(tmp_path: Path) -> None:
    cfg = config(
        tmp_path,
        arms=grid({"selector": "answer_prior"}, {"selector": "coverage"}, {"selector": "yes_no"}),
    )
    assert names(cfg) == ["score_coverage", "score_yes_no", "probe", "score_answer_pmi", *END]


def test_a_pass_that_two_scorers_share_runs_once(tmp_path: Path) -> None:
    cfg = config(tmp_path, arms=grid({"selector": "qlm"}, {"selector": "qlm_gain"}))
    assert names(cfg) == ["score_qlm", *END]


def test_a_scorer_that_no_arm_asks_for_runs_where_also_names_it(tmp_path: Path) -> None:
    cfg = config(tmp_path, arms=grid(), scorers={"also": ["coverage", "answer_pmi"]})
    assert names(cfg) == ["score_coverage", "probe", "score_answer_pmi", *END]


def test_set_aware_searches_as_far_as_its_loosest_policy(tmp_path: Path) -> None:
    cfg = config(
        tmp_path,
        arms=grid(
            {"selector": "set_aware", "thresholds": [0.2, 0.1], "top_m": [2]},
            {"selector": "set_aware", "label": "more", "thresholds": [0.3], "top_m": [4]},
            {"selector": "ig"},
        ),
    )
    assert names(cfg) == ["probe", "probe_sets", *END]
    depends_on = by_name(cfg)["probe_sets"].depends_on
    assert (depends_on["max_rounds"], depends_on["threshold"]) == (4, 0.1)


def test_every_scorer_of_the_config_has_its_stage() -> None:
    assert set(score.SCORERS) == set(SCORERS)


@pytest.mark.parametrize("scorer", ["bi_encoder", "cross_encoder"])
@pytest.mark.parametrize("asked", ["arm", "also", "blend"])
def test_a_scorer_without_its_model_is_an_error_of_the_config(
    tmp_path: Path, scorer: str, asked: str
) -> None:
    sections: dict[str, Any] = {
        "arm": {"arms": grid({"selector": scorer})},
        "also": {"scorers": {"also": [scorer]}},
        "blend": {"arms": grid({"selector": "blend", "blend": write_blend(tmp_path, scorer)})},
    }[asked]
    with pytest.raises(ConfigError, match=rf"scorers\.{scorer}: missing, and the scorer {scorer}"):
        build.stages(config(tmp_path, **sections))


BLENDS: list[tuple[list[str], list[str]]] = [
    (["retriever"], []),
    (["neg_nu_z"], ["probe"]),
    (["qlm_gap", "coverage", "qlm_gain_z"], ["score_coverage", "score_qlm"]),
    (["answer_pmi"], ["probe", "score_answer_pmi"]),
]


@pytest.mark.parametrize(("features", "stages"), BLENDS)
def test_a_blend_brings_the_stages_of_its_signals_and_its_arms_pay_for_them(
    tmp_path: Path, features: list[str], stages: list[str]
) -> None:
    path = write_blend(tmp_path, *features)
    entry = {"selector": "blend", "blend": path, "thresholds": [0.0]}
    cfg = config(tmp_path, arms=grid(entry))
    assert names(cfg) == [*stages, *END]
    arms = {arm.name: arm for arm in build.arms_of(cfg)}
    for name in ("blend 0 M3", "blend 0 M3 [random]"):
        assert set(arms[name].stages) == set(stages)
    assert arms["retriever M3"].stages == ()


def test_a_blend_is_read_from_the_file_that_the_policy_names(tmp_path: Path) -> None:
    path = write_blend(tmp_path, "qlm", "retriever_z")
    assert build.read_blend(path).features == ("qlm", "retriever_z")


def test_a_blend_s_weights_and_not_its_place_decide_what_is_selected(tmp_path: Path) -> None:
    def depends_on(folder: str, *features: str) -> dict[str, Any]:
        (tmp_path / folder).mkdir(exist_ok=True)
        path = write_blend(tmp_path / folder, *features)
        cfg = config(tmp_path, arms=grid({"selector": "blend", "blend": path}))
        return dict(by_name(cfg)["select"].depends_on)

    first = depends_on("a", "qlm", "qlm_z")
    assert first == depends_on("b", "qlm", "qlm_z") != depends_on("a", "qlm", "qlm_gap")


BROKEN = {
    "no JSON": ("{", "not JSON"),
    "another thing": (json.dumps({"version": 1}), "allowed: exactly version, features"),
    "unknown feature": (
        to_json(Blend(("qlm",), (1.0,), 0.0, (0.0,), (1.0,))).replace("qlm", "bm52"),
        "unknown feature 'bm52'; allowed: retriever",
    ),
}


@pytest.mark.parametrize("kind", BROKEN)
def test_a_blend_that_cannot_be_read_is_an_error_that_names_its_file(
    tmp_path: Path, kind: str
) -> None:
    text, said = BROKEN[kind]
    path = tmp_path / "broken.json"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(InputError) as caught:
        build.read_blend(str(path))
    assert str(caught.value).startswith(f"{path}: ") and said in str(caught.value)


def test_a_blend_that_is_not_there_or_no_text_is_an_error_that_names_its_file(
    tmp_path: Path,
) -> None:
    with pytest.raises(InputError, match=r"blend: .*gone\.json: no such file"):
        build.read_blend(str(tmp_path / "gone.json"))
    (tmp_path / "bytes.json").write_bytes(b"\xff\xfe")
    with pytest.raises(InputError, match=r"bytes\.json: .*utf-8"):
        build.read_blend(str(tmp_path / "bytes.json"))


def test_a_policy_file_that_was_not_read_makes_no_arms(tmp_path: Path) -> None:
    given = config(tmp_path).model_copy(update={"selection": None, "policy": "policy.yaml"})
    with pytest.raises(ValueError, match="the policy file was not read"):
        build.arms_of(given)


def test_a_generator_without_branches_is_pinned_as_it_is(tmp_path: Path) -> None:
    cfg = config(tmp_path)
    assert build.pin(cfg) == cfg


OPTIONAL: list[tuple[list[dict[str, Any]], list[str], set[str]]] = [
    ([], ["coverage", "qlm"], {"score_coverage", "score_qlm"}),
    ([{"selector": "qlm_gain"}], ["qlm", "coverage"], {"score_coverage"}),
    ([{"selector": "ig", "fallback": "coverage"}], ["qlm", "coverage"], {"score_qlm"}),
    ([], ["answer_pmi"], {"probe", "score_answer_pmi"}),
    ([{"selector": "ig"}], ["answer_pmi"], {"score_answer_pmi"}),
    ([{"selector": "qlm", "fallback": "answer_prior"}], ["answer_pmi"], set()),
    ([{"selector": "ig"}, {"selector": "set_aware"}], [], set()),
]


@pytest.mark.parametrize(("entries", "also", "optional"), OPTIONAL)
def test_a_stage_that_no_arm_needs_is_optional(
    tmp_path: Path, entries: list[dict[str, Any]], also: list[str], optional: set[str]
) -> None:
    made = build.stages(config(tmp_path, arms=grid(*entries), scorers={"also": also}))
    assert {stage.name for stage in made if stage.optional} == optional


def test_the_probe_spares_what_every_gate_spares_and_nothing_where_also_reads_it(
    tmp_path: Path,
) -> None:
    gated = {"selector": "ig", "thresholds": [0.0], "nu0_limit": 0.3}

    def spared(*also: str, entries: tuple[dict[str, Any], ...] = (gated,)) -> Any:
        cfg = config(tmp_path, arms=grid(*entries), scorers={"also": list(also)})
        return by_name(cfg)["probe"].depends_on["spared_below"]

    assert spared() == spared("qlm") == 0.3
    assert spared("answer_pmi") is None
    assert spared(entries=(gated, {"selector": "ig", "label": "open"})) is None
    path = write_blend(tmp_path, "qlm", "neg_nu")
    assert spared(entries=(gated, {"selector": "blend", "blend": path})) is None
    assert spared(entries=(gated, {"selector": "blend", "blend": path, "nu0_limit": 0.4})) is None


@pytest.mark.parametrize("change", [{"probe_mode": "flat_logprobs"}, {"max_logprobs": 128}])
def test_answers_are_shared_whatever_way_the_rollouts_are_measured(
    tmp_path: Path, change: dict[str, Any]
) -> None:
    before, after = (by_name(config(tmp_path, generator=g)) for g in ({}, change))
    assert before["answer"].family == after["answer"].family
    assert before["select"].depends_on == after["select"].depends_on
    assert before["probe"].depends_on != after["probe"].depends_on


def test_a_blend_s_likelihood_in_vllm_needs_a_gpu_where_the_generator_has_one(
    tmp_path: Path,
) -> None:
    path = write_blend(tmp_path, "qlm")
    arms = grid({"selector": "blend", "blend": path})
    pools = {"generator": {"num_gpus": 1}}
    scorers = {"likelihood": {"engine": "vllm"}}
    with pytest.raises(ConfigError, match=r"cluster\.likelihood\.num_gpus 0 is too few for qlm"):
        build.stages(config(tmp_path, arms=arms, cluster=pools, scorers=scorers))
    assert build.stages(config(tmp_path, arms=arms, cluster=pools))  # the fake needs none
