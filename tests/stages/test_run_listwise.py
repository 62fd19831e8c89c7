"""Tests of listwise arms in a whole run: a perfect ranker reaches the oracle, a bad one is seen."""

from pathlib import Path
from typing import Any

import pytest

from pipeline.core import answers
from pipeline.engines.table import GENERATORS
from pipeline.report import summary
from pipeline.stages import build
from pipeline.stages.plan import Plan
from tests.stages.plans import Counts, N, config, finished, run
from tests.stages.rankers import Knowing

GRID: dict[str, Any] = {
    "top_m": [1, 3, 10],
    "empty_context": "frame",
    "grid": [
        {"selector": "adarank"},
        {"selector": "listwise"},
        {"selector": "adarank", "label": "adarank-gated", "top_m": [3], "pass_rate": [0.01, 1]},
    ],
}
LISTWISE = {"template": "literal"}


def summarised(plan: Plan, cfg: Any) -> dict[str, Any]:
    table = finished(plan)
    plain = [arm.plain() for arm in build.arms_of(cfg)]
    return summary.summarise([table], arms=plain, seed=1, samples=100)


def f1(row: dict[str, Any]) -> dict[str, float]:
    return {metric["arm"]: metric["f1"] for metric in row["metrics"]}


@pytest.fixture(scope="module")
def perfect(tmp_path_factory: pytest.TempPathFactory) -> tuple[Any, Plan, Counts]:
    """The config, plan and counts of a run whose model knows the golden answers."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(GENERATORS, "fake", Knowing)
        cfg = config(tmp_path_factory.mktemp("perfect"), arms=GRID, listwise=LISTWISE)
        return (cfg, *run(cfg))


def test_a_perfect_ranker_reaches_the_oracle_on_every_question(perfect: Any) -> None:
    _, plan, _ = perfect
    rows = finished(plan).to_pylist()
    oracle = [f1(row)["oracle"] for row in rows]
    assert 0 < sum(oracle) < len(rows)  # some questions have no answer among their candidates
    for arm in ("adarank M1", "adarank M3", "adarank M10", "listwise M1"):
        assert [f1(row)[arm] for row in rows] == oracle
    for arm in ("retriever M3", "listwise M3", "adarank M3 [random]"):
        assert sum(f1(row)[arm] for row in rows) < sum(oracle)


def test_it_names_the_passages_that_hold_an_answer_and_says_where_there_are_none(
    perfect: Any,
) -> None:
    cfg, plan, _ = perfect
    rows = finished(plan).to_pylist()
    for row in rows:
        texts = [f"{c['title']} {c['text']}" for c in row["candidates"]]
        held = [i for i in range(N) if answers.sub_exact_match(texts[i], row["golden_answers"])]
        assert row["ranking_adarank"]["positions"] == held
        assert row["ranking_listwise"]["positions"][: len(held)] == held
        arms = {arm["arm"]: arm for arm in row["arms"]}
        admitted = arms["adarank M10"]["admitted"]
        assert admitted == len(arms["adarank M10"]["evidence"]) == len(held)
        for control in ("retriever", "random"):
            assert len(arms[f"adarank M10 [{control}]"]["evidence"]) == admitted
        # The gate hands a question without any passage over to retrieval order.
        gated = [piece["position"] for piece in arms["adarank-gated M3"]["evidence"]]
        assert gated == (held[:3] or [0, 1, 2])
    none = sum(not row["ranking_adarank"]["positions"] for row in rows) / len(rows)
    rates = summarised(plan, cfg)["listwise"]
    assert rates["adarank"]["none"] == none > 0
    assert rates["listwise"]["none"] == rates["adarank"]["malformed"] == 0
    assert rates["adarank"]["calls"] == len(rows)
    assert not any(rates["adarank"]["repairs"].values())


def test_the_ranker_s_tokens_are_the_cost_of_its_arms_alone(perfect: Any) -> None:
    cfg, plan, counts = perfect
    assert "probe" not in counts.sums  # no arm needs rollouts
    measured = {row["arm"]: row for row in summarised(plan, cfg)["arms"]}
    rows = len(finished(plan))
    for selector in ("adarank", "listwise"):
        assert measured[f"{selector} M3"]["selection_tokens"] == pytest.approx(
            counts.sums[f"rank_{selector}"]["tokens"] / rows
        )
    assert measured["retriever M3"]["selection_tokens"] == 0
    assert measured["adarank M3"]["f1_minus_controls"].keys() == {"same_size", "random_same_size"}


def test_a_second_grid_finds_the_rankings_of_the_first(tmp_path: Path) -> None:
    first, counts = run(config(tmp_path, arms=GRID, listwise=LISTWISE))
    second, more = run(config(tmp_path, arms=GRID | {"top_m": [2]}, listwise=LISTWISE))
    assert counts.sums["rank_adarank"]["calls"] == len(finished(first))
    assert "rank_adarank" not in more.sums and "rank_listwise" not in more.sums
    rankings = [finished(plan)["ranking_adarank"].to_pylist() for plan in (first, second)]
    assert rankings[0] == rankings[1]


def test_a_ranker_that_says_nothing_of_use_keeps_every_passage_and_is_counted(
    tmp_path: Path,
) -> None:
    cfg = config(tmp_path, arms=GRID, listwise=LISTWISE)
    plan, _ = run(cfg)  # the fake speaks the prompt's words
    rates = summarised(plan, cfg)["listwise"]["adarank"]
    rows = finished(plan).to_pylist()
    bad = [row for row in rows if row["ranking_adarank"]["malformed"]]
    assert rates["malformed"] == len(bad) / len(rows) > 0
    assert rates["retried"] >= rates["malformed"]
    assert all(row["ranking_adarank"]["positions"] == list(range(N)) for row in bad)


def test_it_dies_where_the_config_says_so_and_nowhere_else(tmp_path: Path) -> None:
    kept = finished(run(config(tmp_path, arms=GRID, listwise=LISTWISE))[0]).to_pylist()
    strict = LISTWISE | {"on_malformed": "dead_letter"}
    plan, _ = run(config(tmp_path, arms=GRID, listwise=strict))
    columns = [f"ranking_{selector}" for selector in ("adarank", "listwise")]
    read = [r["question_id"] for r in kept if not any(r[name]["malformed"] for name in columns)]
    assert [row["question_id"] for row in finished(plan).to_pylist()] == read
    assert 0 < len(read) < len(kept)


def test_a_ranker_of_its_own_ranks_in_its_own_pool(tmp_path: Path) -> None:
    own = LISTWISE | {"ranker": {"engine": "fake", "model": "other", "max_model_len": 4096}}
    cfg = config(tmp_path, arms=GRID, listwise=own)
    made = {stage.name: stage.pool for stage in build.stages(cfg)}
    assert made["rank_adarank"] == made["rank_listwise"] == "ranker"
    assert made["answer"] == "generator"
    assert len(finished(run(cfg)[0])) > 0


def test_the_main_job_takes_the_model_s_list_for_its_policy(tmp_path: Path) -> None:
    selection = {"selector": "adarank", "threshold": float("-inf"), "top_m": 3}
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(GENERATORS, "fake", Knowing)
        cfg = config(tmp_path, selection=selection, listwise=LISTWISE)
        plan, _ = run(cfg)
    rows = finished(plan).to_pylist()
    assert [metric["arm"] for metric in rows[0]["metrics"]][:2] == ["adarank", "retriever"]
    assert "ranking_listwise" not in rows[0]
    assert all(f1(row)["adarank"] >= f1(row)["retriever"] for row in rows)
