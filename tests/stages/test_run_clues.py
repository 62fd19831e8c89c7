"""Tests of arms over clues in a whole run: perfect parts reach the oracle, bad ones are seen."""

from pathlib import Path
from typing import Any

import pytest

from pipeline.core import answers
from pipeline.engines.table import GENERATORS
from pipeline.loading import ConfigError
from pipeline.report import rankings, summary
from pipeline.stages import build, clues
from pipeline.stages.forecast import forecast
from pipeline.stages.plan import Plan
from tests.stages.plans import Counts, N, config, finished, prepared, run
from tests.stages.rankers import Knowing

GRID: dict[str, Any] = {
    "top_m": [1, 10],
    "empty_context": "frame",
    "grid": [
        {"selector": "clues"},
        {"selector": "clues", "label": "no-extractor", "extract": "none"},
        {"selector": "clues", "label": "no-reranker", "rerank": "none"},
        {"selector": "clues", "label": "no-truncator", "truncate": "none"},
        {"selector": "clues", "label": "random-cut", "truncate": "random"},
        {"selector": "clues", "label": "by-gain", "rerank": "ig", "truncate": "none"},
        {"selector": "clues", "label": "all", **dict.fromkeys(("extract", "truncate"), "none")},
        {"selector": "retriever", "label": "vetoed", "veto": "adarank"},
    ],
}
FAKE = {"engine": "fake", "model": "fake"}
SECTIONS: dict[str, Any] = {
    "listwise": {"template": "literal"},
    "clues": {"extractor": {"template": "literal"}, "truncator": {"template": "literal"}},
    "scorers": {"bi_encoder": FAKE},
}


def summarised(plan: Plan, cfg: Any) -> dict[str, Any]:
    plain = [arm.plain() for arm in build.arms_of(cfg)]
    return summary.summarise([finished(plan)], arms=plain, seed=1, samples=100)


def f1(rows: list[dict[str, Any]], arm: str) -> list[float]:
    return [one["f1"] for row in rows for one in row["metrics"] if one["arm"] == arm]


@pytest.fixture(scope="module")
def perfect(tmp_path_factory: pytest.TempPathFactory) -> tuple[Any, Plan, Counts]:
    """The config, plan and counts of a run whose model knows the golden answers."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(GENERATORS, "fake", Knowing)
        cfg = config(tmp_path_factory.mktemp("perfect"), arms=GRID, **SECTIONS)
        return (cfg, *run(cfg))


def test_perfect_parts_reach_the_oracle_on_every_question(perfect: Any) -> None:
    rows = finished(perfect[1]).to_pylist()
    oracle = f1(rows, "oracle")
    assert 0 < sum(oracle) < len(rows)  # some questions have no answer among their candidates
    for label in ("clues", "no-reranker", "no-truncator"):
        for m in ("M1", "M10"):
            assert f1(rows, f"{label} {m}") == oracle
    for arm in ("retriever M10", "no-extractor M10", "random-cut M10", "clues M1 [random]"):
        assert sum(f1(rows, arm)) < sum(oracle)


def test_the_extractor_names_the_sentences_that_hold_an_answer_and_the_truncator_one(
    perfect: Any,
) -> None:
    for row in finished(perfect[1]).to_pylist():
        texts = [sentence["text"] for sentence in row["sentences"]]
        assert {sentence["position"] for sentence in row["sentences"]} == {*range(N)}
        held = [i for i, t in enumerate(texts) if answers.sub_exact_match(t, row["golden_answers"])]
        assert row["clues"]["named"] == held and row["clues"]["unfaithful"] == 0
        assert row["cut_clues_cosine"]["keep"] == min(1, len(held))
        for arm in row["arms"]:
            for piece in arm["evidence"]:
                passage = " ".join(row["candidates"][piece["position"]]["text"].split())
                assert piece["text"] is None or piece["text"] in passage
        # What the model says of passages vetoes where none of them holds an answer.
        vetoed = next(arm for arm in row["arms"] if arm["arm"] == "vetoed M1")
        assert len(vetoed["evidence"]) == bool(row["ranking_adarank"]["positions"])


def test_every_part_s_tokens_are_the_cost_of_its_arms_alone(perfect: Any) -> None:
    cfg, plan, counts = perfect
    assert "probe" not in counts.sums  # gains of sentences are rollouts of their own
    measured = {row["arm"]: row for row in summarised(plan, cfg)["arms"]}
    rows = len(finished(plan))

    def spent(*stages: str) -> Any:
        return pytest.approx(sum(counts.sums[stage]["tokens"] for stage in stages) / rows)

    scored, extracted = clues.RERANK, clues.EXTRACT
    paid = {name: measured[f"{name} M10"]["selection_tokens"] for name in ("clues", "by-gain")}
    assert paid["clues"] == spent(scored, extracted, "truncate_clues_cosine")
    assert paid["by-gain"] == spent(extracted, "probe_clues")
    assert measured["all M1"]["selection_tokens"] == spent(scored)
    assert measured["no-extractor M1"]["selection_tokens"] == spent(
        scored, "truncate_sentences_cosine"
    )


def test_rates_of_replies_stand_where_those_of_listwise_rankers_do(perfect: Any) -> None:
    cfg, plan, _ = perfect
    rates = summarised(plan, cfg)["listwise"]
    rows = finished(plan).to_pylist()
    none = sum(not row["clues"]["named"] for row in rows) / len(rows)
    assert rates["extract_clues"]["none"] == none > 0
    assert rates["extract_clues"]["unfaithful"] == rates["extract_clues"]["malformed"] == 0
    asked = sum(bool(row["clues"]["named"]) for row in rows)
    assert rates["truncate_clues_cosine"]["calls"] == asked
    assert rates["truncate_sentences_cosine"]["none"] == none
    assert "unfaithful" not in rates["adarank"]


def test_an_extractor_that_says_nothing_of_use_keeps_every_sentence_and_is_counted(
    tmp_path: Path,
) -> None:
    cfg = config(tmp_path, arms=GRID, **SECTIONS)
    plan, _ = run(cfg)  # the fake speaks the prompt's words
    rates = summarised(plan, cfg)["listwise"]["extract_clues"]
    rows = finished(plan).to_pylist()
    bad = [row for row in rows if row["clues"]["malformed"]]
    assert rates["malformed"] == len(bad) / len(rows) > 0 and rates["unfaithful"] > 0
    assert "unfaithful" in rankings.line("extract_clues", rates)
    assert all(row["clues"]["named"] == [*range(len(row["sentences"]))] for row in bad)


def test_it_dies_where_the_config_says_so_and_only_where_an_arm_needs_it(tmp_path: Path) -> None:
    kept = finished(run(config(tmp_path, arms=GRID, **SECTIONS))[0]).to_pylist()
    strict = {"extractor": {"template": "literal", "on_malformed": "dead_letter"}}
    sections = {**SECTIONS, "clues": SECTIONS["clues"] | strict}
    plan, _ = run(config(tmp_path, arms=GRID, **sections))
    read = [row["question_id"] for row in kept if not row["clues"]["malformed"]]
    assert finished(plan)["question_id"].to_pylist() == read
    assert 0 < len(read) < len(kept)


def test_a_second_grid_finds_the_clues_of_the_first(tmp_path: Path) -> None:
    first, _ = run(config(tmp_path, arms=GRID, **SECTIONS))
    grid = {**GRID, "top_m": [2], "grid": GRID["grid"][:1]}
    second, counts = run(config(tmp_path, arms=grid, **SECTIONS))
    for stage in (clues.RERANK, clues.EXTRACT, "truncate_clues_cosine"):
        assert stage not in counts.sums
    named = [[row["clues"] for row in finished(plan).to_pylist()] for plan in (first, second)]
    assert named[0] == named[1]


def test_only_the_stages_that_an_arm_needs_are_planned_the_lighter_models_first(
    tmp_path: Path,
) -> None:
    def planned(*grid: dict[str, Any], **sections: Any) -> list[str]:
        cfg = config(tmp_path, arms={**GRID, "grid": list(grid)}, **(SECTIONS | sections))
        return [stage.name for stage in build.stages(cfg)]

    ending = ["select", "answer", "evaluate"]
    assert planned(*GRID["grid"][:1]) == [
        *("split_sentences", "score_sentences", "extract_clues", "truncate_clues_cosine"),
        *ending,
    ]
    assert planned(GRID["grid"][-1]) == ["rank_adarank", *ending]
    assert planned() == ending
    with pytest.raises(ConfigError, match=r"clues\.reranker: missing, and scorers\.bi_encoder"):
        planned(*GRID["grid"][:1], scorers={})
    by_gain = [*("split_sentences", "extract_clues", "probe_clues"), *ending]
    assert planned(GRID["grid"][5], scorers={}) == by_gain


def test_a_dry_run_says_how_much_the_models_will_be_asked(tmp_path: Path) -> None:
    asked = SECTIONS["clues"] | {"passages": 2, "max_sentences": 3}
    sections = {**SECTIONS, "clues": asked, "input": {"max_candidates": N}}
    cfg = config(tmp_path, arms=GRID, **sections)
    plan = prepared(cfg)
    told, rows = forecast(plan, cfg), plan.source.rows
    assert told["score_sentences"] == f"at most {7 * rows} encodings"
    assert told["probe_clues"] == f"at most {7 * rows} rollouts, of 8 tokens each"
    replies = f"at most {rows} replies of {{}} tokens each, malformed ones twice"
    assert told["extract_clues"] == replies.format(512)
    assert told["truncate_sentences_cosine"] == replies.format(16)


def test_every_model_can_be_one_of_its_own(tmp_path: Path) -> None:
    own = {"template": "literal", "model": {"engine": "fake", "model": "x=1"}}
    section = {"extractor": own, "truncator": own, "reranker": FAKE | {"model": "delay=0"}}
    sections = {**SECTIONS, "clues": section, "scorers": {}}
    cfg = config(tmp_path, arms={**GRID, "grid": GRID["grid"][:1]}, **sections)
    pools = {stage.name: stage.pool for stage in build.stages(cfg)}
    assert pools["extract_clues"] == "extractor"
    assert pools["truncate_clues_cosine"] == "truncator"
    assert pools["score_sentences"] == "embedder" and pools["answer"] == "generator"
    assert len(finished(run(cfg)[0])) > 0


def test_the_main_job_takes_clues_for_its_policy(tmp_path: Path) -> None:
    selection = {"selector": "clues", "threshold": float("-inf"), "top_m": 3}
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(GENERATORS, "fake", Knowing)
        plan, _ = run(config(tmp_path, selection=selection, **SECTIONS))
    rows = finished(plan).to_pylist()
    assert [metric["arm"] for metric in rows[0]["metrics"]][:2] == ["clues", "retriever"]
    assert sum(f1(rows, "clues")) > sum(f1(rows, "retriever"))
