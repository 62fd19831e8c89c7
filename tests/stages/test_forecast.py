"""Tests of pipeline.stages.forecast: bounds of a run's model requests, told before it runs."""

from pathlib import Path
from typing import Any

import pytest

from pipeline.config import OfflineIgpConfig
from pipeline.stages.forecast import forecast
from tests.stages.plans import N, config, prepared, run

ENCODERS = {name: {"engine": "fake", "model": "fake"} for name in ("bi_encoder", "cross_encoder")}
SCORERS = {**ENCODERS, "also": ["coverage", "qlm_gain", "yes_no", "answer_prior", *ENCODERS]}


def grid(*entries: dict[str, Any], **settings: Any) -> dict[str, Any]:
    """A grid of arms with an oracle."""
    return {"top_m": [1, 3], "empty_context": "frame", "grid": entries, **settings}


def everything(folder: Path, **given: Any) -> OfflineIgpConfig:
    """A run with every scorer, IG and its set-aware kin."""
    entries = ({"selector": "ig"}, {"selector": "set_aware", "top_m": [3]})
    return config(folder, arms=grid(*entries), scorers=SCORERS, input=given)


def said(cfg: OfflineIgpConfig) -> dict[str, str]:
    """The forecast of a config."""
    return forecast(prepared(cfg), cfg)


def test_every_request_is_bounded_where_the_number_of_candidates_is_known(tmp_path: Path) -> None:
    found = said(everything(tmp_path, max_candidates=4))
    # 50 questions. Retriever M1 and M3, IG M1 and M3, set-aware M3, no evidence, closed book: 7,
    # and the oracle's 4 single passages. Set-aware: 3 rollouts in round 2, 2 in round 3.
    assert found["final prompts"] == (
        f"at most {50 * (7 + 4)} (8 arms; equal ones once; the oracle's are one a candidate), "
        "of 32 tokens each"
    )
    assert found["probes"] == "at most 250, of 8 tokens each"
    assert found["set-aware rollouts"] == f"at most {50 * (3 + 2)}, of 8 tokens each"
    assert {name: line for name, line in found.items() if name.startswith("score_")} == {
        "score_bi_encoder": "at most 250 encodings",
        "score_cross_encoder": "at most 200 pairs",
        "score_qlm": "at most 250 prefills",
        "score_yes_no": "at most 200 prefills",
        "score_answer_pmi": "at most 400 prefills",
    }


def test_a_listwise_ranker_is_asked_once_a_window(tmp_path: Path) -> None:
    arms = grid({"selector": "adarank"}, {"selector": "listwise"})
    listwise = {"window": 3, "stride": 1, "max_tokens": 64}
    found = said(config(tmp_path, arms=arms, listwise=listwise, input={"max_candidates": 5}))
    for stage in ("rank_adarank", "rank_listwise"):  # windows from 2, 1 and 0
        assert found[stage] == "at most 150 replies of 64 tokens each, malformed ones twice"
    found = said(config(tmp_path, arms=arms, listwise=listwise))
    assert found["rank_adarank"].startswith("questions x windows of 3 candidates, of 64 tokens")


def test_without_a_number_of_candidates_the_bounds_are_told_in_words(tmp_path: Path) -> None:
    found = said(everything(tmp_path))
    assert found["candidates per question"].startswith("as many as given")
    assert found["final prompts"].startswith("at most questions x (7 + candidates) (8 arms; ")
    assert found["probes"] == "at most questions x (candidates + 1), of 8 tokens each"
    assert found["set-aware rollouts"].startswith("at most questions x 2 x (candidates - 1), ")
    assert found["score_yes_no"] == "at most questions x candidates prefills"
    assert found["score_answer_pmi"] == "at most questions x 2 x candidates prefills"


@pytest.mark.parametrize("oracle", [True, False])
def test_no_run_makes_more_requests_than_were_foretold(tmp_path: Path, oracle: bool) -> None:
    arms = grid({"selector": "ig"}, {"selector": "set_aware"}, oracle=oracle)
    cfg = config(tmp_path, arms=arms, input={"max_candidates": N})
    plan, counts = run(cfg)
    found = forecast(plan, cfg)
    bounds = {
        "probes": counts.sums["probe"]["rollouts"],
        "set-aware rollouts": counts.sums["probe_sets"]["rollouts"],
        "final prompts": counts.sums["answer"]["prompts"],
    }
    for name, made in bounds.items():
        assert 0 < made <= int(found[name].split()[2].rstrip(","))
    assert ("the oracle's" in found["final prompts"]) == oracle


def test_what_a_run_does_not_do_is_not_foretold(tmp_path: Path) -> None:
    found = said(config(tmp_path, arms=grid({"selector": "coverage"}, oracle=False)))
    assert set(found) == {"questions", "shards", "candidates per question", "final prompts"}
