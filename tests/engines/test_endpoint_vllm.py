"""An endpoint that is vLLM's own server, held to the plain loop's numbers."""

import asyncio
import os
import re
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.error import URLError

import numpy as np
import psutil
import pytest

from pipeline.config import GeneratorConfig, ProbeConfig, RuntimeConfig
from pipeline.core.replies import pattern
from pipeline.core.uncertainty import normalised_uncertainty
from pipeline.engines.base import Completion, Generator, ModelNotFound, Refusal, Rollout
from pipeline.engines.endpoint import EndpointGenerator
from pipeline.engines.transformers import TransformersGenerator
from tests.engines.test_contract import PROMPTS

MT, WINDOW, KEY = 32, 512, "a-key-of-this-test"
START_SECONDS = 600
SETTINGS = {
    "served-model-name": "tiny",
    "host": "127.0.0.1",
    "dtype": "float32",
    "max-model-len": WINDOW,
    "max-num-seqs": 8,
    "kv-cache-memory-bytes": 2**28,
}


@contextmanager
def vllm_server(folder: Path, log: Path) -> Iterator[str]:
    """vLLM's server over a model; its processes end with it."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    options = [f"--{name}={value}" for name, value in {**SETTINGS, "port": port}.items()]
    # `vllm serve` asks for a package of the name vllm, which the CPU build is not.
    module = "vllm.entrypoints.openai.api_server"
    command = [sys.executable, "-m", module, f"--model={folder}", *options]
    quiet = {"VLLM_NO_USAGE_STATS": "1", "VLLM_CPU_OMP_THREADS_BIND": "nobind"}
    environment = {**os.environ, **quiet, "OMP_NUM_THREADS": "2", "VLLM_API_KEY": KEY}
    with log.open("w") as file:
        server = subprocess.Popen(
            [*command, "--enforce-eager"], env=environment, stdout=file, stderr=subprocess.STDOUT
        )
    try:
        wait_until_healthy(server, f"http://127.0.0.1:{port}/health", log)
        yield f"http://127.0.0.1:{port}/v1"
    finally:
        stop(server)


def wait_until_healthy(server: "subprocess.Popen[bytes]", url: str, log: Path) -> None:
    end = time.monotonic() + START_SECONDS
    while time.monotonic() < end and server.poll() is None:
        try:
            with urllib.request.urlopen(url, timeout=5):
                return
        except (URLError, OSError):
            time.sleep(0.5)
    raise AssertionError(f"vLLM's server did not start: {log.read_text()[-3000:]}")


def stop(server: "subprocess.Popen[bytes]") -> None:
    children = psutil.Process(server.pid).children(recursive=True) if server.poll() is None else []
    server.terminate()
    try:
        server.wait(timeout=20)
    except subprocess.TimeoutExpired:
        server.kill()
        server.wait()
    _, alive = psutil.wait_procs(children, timeout=10)
    for child in alive:
        child.kill()


def endpoint(folder: Path, url: str, *, k: int = 20, **changes: Any) -> EndpointGenerator:
    section = {"base_url": url, "model": "tiny", "extensions": "vllm", "api_key_env": "TINY_KEY"}
    cfg = {"engine": "endpoint", "model": str(folder), "max_model_len": WINDOW}
    made = GeneratorConfig.model_validate({**cfg, **changes, "endpoint": {**section, "retries": 0}})
    return EndpointGenerator(made, probe(k))


def probe(k: int) -> ProbeConfig:
    return ProbeConfig(template="literal", top_k=k, max_tokens=MT, trace=True)


async def measured(generator: Generator) -> tuple[list[Rollout], list[Completion]]:
    ids = [generator.tokenizer.encode(prompt) for prompt in PROMPTS]
    rollouts = await asyncio.gather(*(generator.rollout(i) for i in ids))
    return rollouts, await asyncio.gather(*(generator.complete(i, max_tokens=12) for i in ids))


@pytest.mark.engine
def test_vllms_own_server_gives_the_plain_loops_tokens_nu_and_answers(
    tiny_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TINY_KEY", KEY)
    runtime = RuntimeConfig(max_num_seqs=8, threads=2)
    cfg = GeneratorConfig(
        engine="transformers", model=str(tiny_folder), max_model_len=WINDOW, runtime=runtime
    )
    plain, plain_answers = asyncio.run(measured(TransformersGenerator(cfg, probe(20))))
    with vllm_server(tiny_folder, tmp_path / "server.log") as url, asyncio.Runner() as runner:
        generator = endpoint(tiny_folder, url)
        rollouts, answers = runner.run(measured(generator))
        for ours, theirs in zip(rollouts, plain, strict=True):
            assert ours.token_ids == theirs.token_ids
            ours_nu, theirs_nu = (normalised_uncertainty(r.u_T) for r in (ours, theirs))
            assert ours_nu == pytest.approx(theirs_nu, abs=1e-4)
            np.testing.assert_allclose(ours.u_T, theirs.u_T, atol=1e-4)
            np.testing.assert_allclose(ours.margin_T, theirs.margin_T, atol=1e-4)
        assert answers == plain_answers
        assert generator.usage.requests == 2 * len(PROMPTS)

        held = pattern(3, dropout=True)
        ids = generator.tokenizer.encode(PROMPTS[0])
        ranking = runner.run(generator.complete_matching(ids, held, max_tokens=60))
        assert re.fullmatch(held, ranking.text)

        with pytest.raises(ModelNotFound, match=r"K = 21 .*20.*set generator\.max_logprobs"):
            runner.run(endpoint(tiny_folder, url, k=21).rollout(ids))
        wide = endpoint(tiny_folder, url, max_model_len=2048)
        with pytest.raises(Refusal, match=r"400 \(.*512"):
            runner.run(wide.rollout([5] * 600))
        monkeypatch.setenv("TINY_KEY", "another")
        with pytest.raises(ModelNotFound, match=r"401 .* with the key in TINY_KEY"):
            runner.run(endpoint(tiny_folder, url).rollout(ids))
