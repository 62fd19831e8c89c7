"""Tests of pipeline.config.listwise, and of what a job asks of the section."""

import math
from typing import Any

import pytest
from pydantic import ValidationError

from pipeline.config import GridEntry, ListwiseConfig, OfflineIgpConfig, SelectionConfig
from tests.config.test_jobs import ARMS, SELECTION, offline

VLLM = {"engine": "vllm", "model": "org/model"}
POLICY = {**SELECTION, "selector": "adarank", "threshold": -math.inf}


def made(**listwise: Any) -> OfflineIgpConfig:
    return offline(selection=POLICY, listwise=listwise)


def test_only_vllm_can_be_held_to_a_grammar() -> None:
    said = "listwise.constrained: engine {} cannot be held to a grammar; allowed: vllm"
    with pytest.raises(ValidationError, match=said.format("fake")):
        made(constrained=True)
    for engine in ("transformers", "fake"):
        with pytest.raises(ValidationError, match=said.format(engine)):
            made(constrained=True, ranker=VLLM | {"engine": engine})
    assert made(constrained=True, ranker=VLLM).listwise.constrained
    assert offline(selection=POLICY, generator=VLLM, listwise={"constrained": True})


def test_windows_may_not_leave_passages_between_them() -> None:
    with pytest.raises(ValidationError, match="stride 21 is above window 20: passages would be"):
        ListwiseConfig(stride=21)
    assert ListwiseConfig(stride=20).window == 20


@pytest.mark.parametrize("selector", ["adarank", "listwise"])
def test_a_listwise_order_has_no_threshold(selector: str) -> None:
    def entry(*thresholds: float) -> GridEntry:
        return GridEntry.model_validate({"selector": selector, "thresholds": thresholds})

    with pytest.raises(ValidationError, match=f"{selector} has no threshold: thresholds 0.05; all"):
        entry(-math.inf, 0.05)
    with pytest.raises(ValidationError, match=f"{selector} has no threshold: threshold 0; allowed"):
        SelectionConfig.model_validate(POLICY | {"selector": selector, "threshold": 0})
    assert entry(-math.inf) == GridEntry.model_validate({"selector": selector})


@pytest.mark.parametrize(
    "asked",
    [
        {"selection": POLICY},
        {"arms": ARMS | {"grid": [{"selector": "listwise"}]}},
        {"selection": SELECTION | {"nu0_limit": 0.1, "fallback": "listwise"}},
    ],
)
def test_a_ranker_in_vllm_needs_a_gpu_where_the_generator_has_one(asked: dict[str, Any]) -> None:
    def made(gpus: float, **listwise: Any) -> OfflineIgpConfig:
        pools = {"generator": {"num_gpus": 1}, "ranker": {"num_gpus": gpus}}
        return offline(generator=VLLM, cluster=pools, listwise=listwise, **asked)

    with pytest.raises(ValidationError, match=r"cluster\.ranker\.num_gpus 0 is too few for"):
        made(0, ranker=VLLM)
    assert made(1, ranker=VLLM)
    assert made(0)  # the generator ranks itself, on its own GPU
    assert made(0, ranker=VLLM | {"engine": "transformers"})
