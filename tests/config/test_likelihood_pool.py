"""Tests of pipeline.config.jobs: the likelihood's model and the GPUs of its pool."""

from typing import Any

import pytest
from pydantic import ValidationError

from pipeline.config import OfflineIgpConfig
from tests.config.test_jobs import ARMS, SELECTION, offline

VLLM = {"engine": "vllm", "model": "org/model"}
ASKED: dict[str, dict[str, Any]] = {
    "a policy": {"selection": SELECTION | {"selector": "qlm_gain"}},
    "its fallback": {"selection": SELECTION | {"nu0_limit": 0.1, "fallback": "yes_no"}},
    "a grid": {"arms": ARMS | {"grid": [{"selector": "qlm"}]}},
    "nobody, yet it runs": {"selection": SELECTION, "scorers": {"also": ["answer_prior"]}},
}


@pytest.mark.parametrize("by", ASKED)
def test_a_likelihood_in_vllm_needs_a_gpu_where_the_generator_has_one(by: str) -> None:
    def made(generator: dict[str, Any], gpus: tuple[float, float]) -> OfflineIgpConfig:
        pools = {"generator": {"num_gpus": gpus[0]}, "likelihood": {"num_gpus": gpus[1]}}
        return offline(generator=generator, cluster=pools, **ASKED[by])

    with pytest.raises(ValidationError, match=r"cluster\.likelihood\.num_gpus 0 is too few for"):
        made(VLLM, (1, 0))
    pair = VLLM | {"runtime": {"tensor_parallel": 2}}
    with pytest.raises(ValidationError, match="num_gpus 1 is too few for .* the 2 GPUs"):
        made(pair, (2, 1))
    assert made(VLLM, (1, 1)) and made(VLLM, (0, 0)) and made(pair, (2, 2))


def test_a_likelihood_that_nobody_asks_for_or_that_runs_on_a_cpu_needs_no_gpu() -> None:
    pools = {"generator": {"num_gpus": 1}}
    assert offline(generator=VLLM, cluster=pools, selection=SELECTION)
    scorers = {"also": ["qlm"], "likelihood": {"engine": "transformers"}}
    assert offline(generator=VLLM, cluster=pools, selection=SELECTION, scorers=scorers)
