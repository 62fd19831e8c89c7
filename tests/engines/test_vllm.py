"""vLLM engines that refuse, and one that dies."""

import asyncio
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import psutil
import pytest

from pipeline.config import GeneratorConfig, ProbeConfig
from pipeline.engines import vllm
from pipeline.engines.base import EngineDead, ModelNotFound, Refusal
from pipeline.engines.vllm import VllmGenerator
from pipeline.engines.vllm_engine import checked

PROBE = ProbeConfig(template="literal", top_k=128, max_tokens=8)


def config(folder: Path, **changes: object) -> GeneratorConfig:
    base = {"model": str(folder), "max_model_len": 256}
    return GeneratorConfig.model_validate({**base, **changes})


@pytest.mark.engine
def test_more_log_probabilities_than_the_cap_are_refused_and_a_killed_engine_is_reported_dead(
    tiny_folder: Path,
) -> None:
    cfg = config(tiny_folder, probe_mode="flat_logprobs", max_logprobs=20)
    generator = VllmGenerator(cfg, PROBE)

    async def go() -> None:
        with pytest.raises(Refusal, match=r"128.*20"):
            await generator.rollout([5, 6, 7])
        assert (await generator.complete([5, 6, 7], max_tokens=3)).answer_tokens == 3
        for child in psutil.Process().children(recursive=True):
            with suppress(psutil.ZombieProcess):  # of an earlier test's, which nobody waited for
                if "EngineCore" in f"{child.name()} {' '.join(child.cmdline())}":
                    child.kill()
        requests = (generator.complete([5, 6, n], max_tokens=200) for n in range(20))
        with pytest.raises(EngineDead, match="died"):
            await asyncio.gather(*requests)

    try:
        asyncio.run(go())
    finally:
        generator.close()


def test_k_beyond_the_vocabulary_is_refused_before_the_engine_is_asked(
    tiny_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Unasked:
        """In the engine's place: knows its vocabulary and takes no request."""

        vocabulary = 49152

        def __init__(self, *_: object, **__: object) -> None: ...

    monkeypatch.setattr(vllm, "VllmEngine", Unasked)
    generator = VllmGenerator(config(tiny_folder), PROBE.model_copy(update={"top_k": 60000}))
    with pytest.raises(Refusal, match="60000 exceeds the vocabulary of 49152"):
        asyncio.run(generator.rollout([5, 6, 7]))


def test_a_model_that_does_not_exist_is_named() -> None:
    with pytest.raises(ModelNotFound, match="no-such-folder"):
        VllmGenerator(config(Path("/no-such-folder")), PROBE)


@pytest.mark.engine
def test_metrics_without_what_exports_them_are_refused_with_what_to_install(
    tiny_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from vllm.v1.metrics import ray_wrappers

    monkeypatch.setattr(ray_wrappers, "ray_serve", None)
    cfg = config(tiny_folder, runtime={"engine_metrics": True})
    with pytest.raises(ModelNotFound, match=r"engine_metrics needs Ray Serve.*ray\[serve\]=="):
        VllmGenerator(cfg, PROBE)


@dataclass
class Output:
    """The part of vLLM's CompletionOutput that tells how it ended."""

    finish_reason: str | None
    token_ids: tuple[int, ...] = (5,)


@pytest.mark.parametrize("reason", ["stop", "length"])
def test_an_output_that_ended_as_it_should_is_kept(reason: str) -> None:
    output = Output(reason)
    assert checked(output) is output


@pytest.mark.parametrize("reason", ["abort", "error"])
def test_an_output_that_the_engine_gave_up_is_no_answer(reason: str) -> None:
    with pytest.raises(EngineDead, match=reason):
        checked(Output(reason))


@pytest.mark.parametrize("output", [Output("repetition"), Output(None), Output("stop", ())])
def test_any_other_end_is_refused(output: Output) -> None:
    with pytest.raises(Refusal, match="vLLM ended with"):
        checked(output)
