"""Tests of pipeline.config.clues and of the policies over clues."""

import math
from typing import Any

import pytest
from pydantic import ValidationError

from pipeline.config import CluesConfig, GridEntry, OfflineIgpConfig, SelectionConfig

BASE: dict[str, Any] = {
    "input": {"questions": "q.jsonl", "candidates": "c.json"},
    "generator": {"engine": "vllm", "model": "m"},
    "probe": {"template": "literal", "top_k": 128, "max_tokens": 8},
    "arms": {"top_m": [5], "empty_context": "frame", "grid": [{"selector": "clues"}]},
}
FAKE = {"engine": "fake", "model": "fake"}


def config(**sections: Any) -> OfflineIgpConfig:
    return OfflineIgpConfig.model_validate({**BASE, **sections})


def test_an_extractor_is_held_to_numbers_and_not_to_sentences() -> None:
    held = {"constrained": True, "reply": "numbers"}
    assert config(clues={"extractor": held, "truncator": {"constrained": True}})
    with pytest.raises(ValidationError, match=r"clues\.extractor\.reply to numbers"):
        config(clues={"extractor": {"constrained": True}})


@pytest.mark.parametrize("part", ["extractor", "truncator"])
def test_a_model_that_cannot_be_held_to_a_grammar_is_refused_by_its_section(part: str) -> None:
    asked = {"constrained": True} | ({"reply": "numbers"} if part == "extractor" else {})
    with pytest.raises(ValidationError, match=rf"clues\.{part}\.constrained: engine fake"):
        config(clues={part: asked}, generator=FAKE)
    with pytest.raises(ValidationError, match=rf"clues\.{part}\.constrained: engine fake"):
        config(clues={part: asked | {"model": FAKE}})
    assert config(clues={part: asked | {"model": BASE["generator"]}}, generator=FAKE)


def test_a_model_of_its_own_needs_its_gpus_where_an_arm_asks_it() -> None:
    own = {"truncator": {"model": {"engine": "vllm", "model": "other"}}}
    on_gpus = {"generator": {"num_gpus": 1}}
    with pytest.raises(ValidationError, match=r"cluster\.truncator\.num_gpus 0 is too few for"):
        config(clues=own, cluster=on_gpus)
    uncut = {**BASE["arms"], "grid": [{"selector": "clues", "truncate": "none"}]}
    assert config(clues=own, cluster=on_gpus, arms=uncut)


def test_the_parts_are_options_of_the_selector_clues_alone() -> None:
    for option in ({"extract": "none"}, {"rerank": "ig"}, {"truncate": "random"}):
        (name,) = option
        with pytest.raises(ValidationError, match=f"{name} is of selector clues alone"):
            GridEntry.model_validate({"selector": "ig", **option})
        assert GridEntry.model_validate({"selector": "clues", **option})


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"rerank": "none", "threshold": 0.1}, "clues with rerank none has no threshold"),
        ({"order_by": "adarank"}, "clues chooses sentences: no order_by"),
        ({"duplicate_penalty": 0.1}, "clues chooses sentences: no duplicate_penalty"),
        ({"selector": "ig", "fallback": "clues"}, "fallback clues has no signal"),
    ],
)
def test_what_has_no_meaning_over_sentences_is_refused(
    options: dict[str, Any], message: str
) -> None:
    base = {"selector": "clues", "threshold": -math.inf, "top_m": 1, "empty_context": "frame"}
    with pytest.raises(ValidationError, match=message):
        SelectionConfig.model_validate(base | options)


@pytest.mark.parametrize(
    ("options", "models"),
    [
        ({}, ("extractor", "truncator")),
        ({"extract": "none"}, ("truncator",)),
        ({"truncate": "random"}, ("extractor",)),
        ({"extract": "none", "truncate": "none"}, ()),
    ],
)
def test_a_policy_asks_only_the_models_of_its_parts(
    options: dict[str, Any], models: tuple[str, ...]
) -> None:
    assert GridEntry.model_validate({"selector": "clues", **options}).clue_models == models
    assert GridEntry(selector="ig").clue_models == ()


def test_gains_of_sentences_need_an_engine_that_can_be_probed() -> None:
    gains = GridEntry(selector="clues", rerank="ig")
    assert gains.probes_clues and not gains.probed
    assert not GridEntry(selector="clues").probes_clues


def test_a_policy_names_the_rankings_that_it_reads() -> None:
    entry = GridEntry(selector="ig", order_by="listwise", veto="adarank")
    assert entry.rankings == ("adarank", "listwise")
    assert GridEntry(selector="ig").rankings == ()


def test_the_language_is_a_code() -> None:
    with pytest.raises(ValidationError, match="language"):
        CluesConfig(language="English")
