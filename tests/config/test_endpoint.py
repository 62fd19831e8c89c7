"""Tests of pipeline.config.endpoint and pipeline.config.probing: what a server can be asked for."""

import math
from typing import Any

import pytest
from pydantic import ValidationError

from pipeline.config import EndpointConfig, GeneratorConfig, OfflineIgpConfig, ProbeConfig
from pipeline.config.probing import with_smaller_k
from tests.config.test_jobs import ARMS, SELECTION, offline

URL = "http://host:8000/v1"


def made(
    probe: dict[str, Any] | None = None,
    *,
    endpoint: dict[str, Any] | None = None,
    max_logprobs: int | None = None,
    **sections: Any,
) -> OfflineIgpConfig:
    """The main job over an endpoint of vLLM's server, with IGP unless told otherwise."""
    section = {"base_url": URL, "extensions": "vllm"} | (endpoint or {})
    generator = {"engine": "endpoint", "model": "org/model", "max_logprobs": max_logprobs}
    given = {"selection": SELECTION, **sections}
    return offline(probe, generator={**generator, "endpoint": section}, **given)


def test_k_above_what_the_endpoint_gives_is_an_error_that_names_both() -> None:
    with pytest.raises(ValidationError, match=r"probe\.top_k 128 is above the 20 log-probabilit"):
        made()
    with pytest.raises(ValidationError, match=r"probe\.top_k 128 is above the 64 log-probabilit"):
        made(max_logprobs=64)
    assert made({"top_k": 20}).probe.top_k == 20
    assert made(max_logprobs=128).probe.top_k == 128


def test_an_allowed_smaller_k_is_the_k_of_the_run() -> None:
    allowed = made({"allow_smaller_k": True})
    assert allowed.probe.plain() == made({"top_k": 20}).probe.plain()
    assert made({"allow_smaller_k": True}, max_logprobs=5).probe.top_k == 5
    assert made({"allow_smaller_k": True, "top_k": 8}).probe.top_k == 8
    with pytest.raises(ValidationError, match="ig_top_k 64 needs probe.trace and probe.top_k >= "):
        made({"allow_smaller_k": True}, selection=SELECTION | {"ig_top_k": 64})


def test_sections_that_are_objects_are_cut_as_raw_ones_are() -> None:
    probe = ProbeConfig(template="chat", top_k=128, max_tokens=4, allow_smaller_k=True)
    generator = GeneratorConfig(
        engine="endpoint", model="m", endpoint=EndpointConfig(base_url=URL), max_logprobs=7
    )
    assert with_smaller_k({"generator": generator, "probe": probe})["probe"].top_k == 7
    assert probe.top_k == 128


@pytest.mark.parametrize(
    "raw",
    [
        None,
        [],
        {},
        {"generator": None, "probe": 3},
        {"generator": {"engine": "endpoint"}, "probe": {"allow_smaller_k": True}},
        {"generator": {"engine": "endpoint"}, "probe": {"allow_smaller_k": True, "top_k": "x"}},
        {"generator": {"engine": "vllm"}, "probe": {"allow_smaller_k": True, "top_k": 128}},
        {"generator": {"engine": "endpoint"}, "probe": {"top_k": 128}},
    ],
)
def test_what_is_no_k_to_be_cut_is_left_for_its_own_check(raw: Any) -> None:
    assert with_smaller_k(raw) == raw


def test_allowing_a_smaller_k_changes_no_fingerprint_of_other_engines() -> None:
    plain = offline(selection=SELECTION).probe.plain()
    assert offline({"allow_smaller_k": True}, selection=SELECTION).probe.plain() == plain
    assert "allow_smaller_k" not in plain


def test_the_engine_needs_its_section_and_another_engine_leaves_it_alone() -> None:
    with pytest.raises(ValidationError, match="engine endpoint needs the section endpoint"):
        GeneratorConfig(engine="endpoint", model="m")
    assert GeneratorConfig(engine="fake", model="m", endpoint=EndpointConfig(base_url=URL))


def test_rollouts_need_what_only_vllms_server_gives() -> None:
    without = {"extensions": "none"}
    said = "needs rollouts, whose token ids and end tokens only vLLM's server gives"
    with pytest.raises(ValidationError, match=f"selection {said}"):
        made({"top_k": 20}, endpoint=without)
    grid = [{"selector": "coverage"}, {"selector": "coverage", "nu0_limit": 0.1}]
    with pytest.raises(ValidationError, match=f"arms.grid.1 {said}"):
        made({"top_k": 20}, endpoint=without, selection=None, arms=ARMS | {"grid": grid})
    ranked = SELECTION | {"selector": "adarank", "threshold": -math.inf}
    assert made({"top_k": 20}, endpoint=without, selection=ranked)


def test_only_vllms_server_can_be_held_to_a_grammar() -> None:
    ranked = SELECTION | {"selector": "adarank", "threshold": -math.inf}
    held: dict[str, Any] = {"listwise": {"constrained": True}, "selection": ranked}
    assert made({"top_k": 20}, **held).listwise.constrained
    with pytest.raises(ValidationError, match="engine endpoint cannot be held to a grammar"):
        made({"top_k": 20}, endpoint={"extensions": "none"}, **held)


def test_an_endpoint_ends_no_rollouts_and_scores_no_given_tokens() -> None:
    with pytest.raises(ValidationError, match=r"probe\.early_stop_threshold: an endpoint ends no"):
        made({"top_k": 20, "early_stop_threshold": 0.05})
    asked = {"also": ["qlm"]}
    with pytest.raises(ValidationError, match="qlm: an endpoint says nothing of given tokens"):
        made({"top_k": 20}, scorers=asked)
    own = {"likelihood": {"engine": "transformers", "model": "org/model"}}
    assert made({"top_k": 20}, scorers=asked | own)


@pytest.mark.parametrize(
    ("url", "said"),
    [
        ("host:8000/v1", "must be http://host/v1 or https://host/v1"),
        ("http:///v1", "must be http://host/v1 or https://host/v1"),
        ("https://user:secret@host/v1", "no user, password or query"),
        ("https://host/v1?key=secret", "no user, password or query"),
    ],
)
def test_an_address_is_one_and_holds_no_secret(url: str, said: str) -> None:
    with pytest.raises(ValidationError, match=said):
        EndpointConfig(base_url=url)
    assert EndpointConfig(base_url="https://host/v1/").base_url == "https://host/v1"


def test_a_key_cannot_stand_where_its_variables_name_does() -> None:
    with pytest.raises(ValidationError, match="api_key_env"):
        EndpointConfig(base_url=URL, api_key_env="sk-123")
