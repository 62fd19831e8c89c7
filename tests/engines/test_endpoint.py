"""Tests of pipeline.engines.endpoint and its client, against a server that misbehaves."""

import asyncio
import math
import threading
from collections.abc import Awaitable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeline.config import EndpointConfig, GeneratorConfig, ListwiseConfig, ProbeConfig
from pipeline.core.uncertainty import normalised_uncertainty
from pipeline.engines import endpoint, endpoint_client
from pipeline.engines.base import Constrained, EngineDead, ModelNotFound, Refusal, Rollout
from pipeline.engines.endpoint import EndpointGenerator
from pipeline.engines.endpoint_client import retry_after_seconds, wait_seconds
from pipeline.engines.tokenizer import HfTokenizer
from pipeline.stages.rank_listwise import RankListwise
from tests.engines.completions_server import Act, Server, completion, refusal, serving
from tests.stages import plans
from tests.stages.tables import candidate, table

T = TypeVar("T")
LOOP = asyncio.Runner()  # one for all, as a worker has one
K = 4
PROMPT = [5, 6, 7]


@pytest.fixture(scope="module", autouse=True)
def ended() -> Iterator[None]:
    with LOOP:
        yield


@pytest.fixture(scope="module")
def tokenizer(demo_folder: Path) -> HfTokenizer:
    return HfTokenizer(config(demo_folder, "http://127.0.0.1/v1"))


@pytest.fixture(autouse=True)
def one_tokenizer(tokenizer: HfTokenizer, monkeypatch: pytest.MonkeyPatch) -> None:
    """Read once for all: that takes a second."""
    monkeypatch.setattr(endpoint, "HfTokenizer", lambda cfg: tokenizer)


@pytest.fixture
def server() -> Iterator[Server]:
    with serving() as made:
        yield made


def config(folder: Path, url: str, **changes: Any) -> GeneratorConfig:
    quick = {"backoff_seconds": 0.001, "retries": 2, "timeout_seconds": 20.0}
    section = {"base_url": url, "model": "served", "extensions": "vllm", **quick, **changes}
    base = {"engine": "endpoint", "model": str(folder), "max_model_len": 256}
    return GeneratorConfig.model_validate({**base, "endpoint": section})


@pytest.fixture
def generator(demo_folder: Path, server: Server) -> EndpointGenerator:
    return generator_of(demo_folder, server)


def generator_of(folder: Path, server: Server, **changes: Any) -> EndpointGenerator:
    probe = ProbeConfig(template="literal", top_k=K, max_tokens=8)
    return EndpointGenerator(config(folder, server.url, **changes), probe)


def run(request: Awaitable[T]) -> T:
    async def go() -> T:
        return await request

    return LOOP.run(go())


def rolled(generator: EndpointGenerator) -> Rollout:
    return run(generator.rollout(PROMPT))


def test_uncertainty_and_margin_come_from_the_log_probabilities_of_the_reply(
    generator: EndpointGenerator,
) -> None:
    rollout = rolled(generator)
    # p = 8/15, 4/15, 2/15, 1/15: H = log2(15) - (8 * 3 + 4 * 2 + 2 * 1) / 15 bits, of log2(4) = 2.
    u = (math.log2(15) - 34 / 15) / 2
    assert rollout.token_ids == (100, 101, 2)
    np.testing.assert_allclose(rollout.u_T, [u, u, u], atol=1e-6)
    assert normalised_uncertainty(rollout.u_T) == pytest.approx(0.8201, abs=1e-4)
    np.testing.assert_allclose(rollout.margin_T, [math.log(2)] * 3, atol=1e-6)


def test_of_more_log_probabilities_than_asked_for_the_largest_count(
    generator: EndpointGenerator, server: Server
) -> None:
    plain = rolled(generator)
    server.answer = lambda body: Act(body=completion(body | {"logprobs": K + 3}))
    np.testing.assert_array_equal(rolled(generator).u_T, plain.u_T)


def test_a_request_holds_the_prompts_own_ids_and_is_greedy(
    generator: EndpointGenerator, server: Server
) -> None:
    rolled(generator)
    assert server.bodies == [
        {
            "model": "served",
            "prompt": PROMPT,
            "max_tokens": 8,
            "temperature": 0,
            "stop_token_ids": [2],
            "ignore_eos": True,
            "repetition_penalty": 1.0,
            "return_token_ids": True,
            "logprobs": K,
            "return_tokens_as_token_ids": True,
        }
    ]


def test_a_server_without_extensions_is_sent_the_apis_own_fields_and_answers(
    demo_folder: Path, server: Server
) -> None:
    generator = generator_of(demo_folder, server, extensions="none")
    answer = run(generator.complete(PROMPT, max_tokens=3))
    assert server.bodies == [
        {"model": "served", "prompt": PROMPT, "max_tokens": 3, "temperature": 0}
    ]
    assert (answer.text, answer.prompt_tokens, answer.answer_tokens) == ("an answer", 3, 3)
    assert answer.finish_reason == "stop"
    for asked in (
        generator.rollout(PROMPT),
        generator.complete_matching(PROMPT, "a", max_tokens=3),
    ):
        with pytest.raises(ModelNotFound, match="needs generator.endpoint.extensions vllm"):
            run(asked)
    assert len(server.bodies) == 1


def test_an_answer_is_decoded_here_and_says_how_it_ended(generator: EndpointGenerator) -> None:
    long, short = (run(generator.complete(PROMPT, max_tokens=n)) for n in (3, 2))
    assert long.text == short.text == generator.tokenizer.decode([100, 101])
    assert (long.finish_reason, short.finish_reason) == ("stop", "length")


def test_a_grammar_travels_as_vllms_structured_output(
    generator: EndpointGenerator, server: Server
) -> None:
    assert isinstance(generator, Constrained)
    run(generator.complete_matching(PROMPT, r"\[[1-3]\]", max_tokens=4))
    assert server.bodies[0]["structured_outputs"] == {"regex": r"\[[1-3]\]"}


@pytest.mark.parametrize(
    "failure",
    [
        refusal(429, "slow down", Retry_After="0"),
        refusal(500, "internal"),
        refusal(503, "loading"),
        refusal(408, "late"),
        Act(body='{"choices": [{"text": "cut o'),
        Act(body="<html>a proxy's page</html>"),
        Act(body={"choices": []}),
        Act(body={"choices": [{"text": "no usage"}]}),
        Act(body={"choices": [{"message": {"content": "a chat"}}], "usage": {}}),
        Act(body="[]"),
    ],
    ids=lambda act: f"{act.status}-{str(act.body)[:20]}",
)
def test_what_may_pass_is_tried_again(
    generator: EndpointGenerator, server: Server, failure: Act
) -> None:
    server.acts = [failure, failure]
    assert rolled(generator).token_ids == (100, 101, 2)
    assert len(server.bodies) == 3
    assert server.bodies[0] == server.bodies[2]
    assert (generator.usage.requests, generator.usage.retries) == (1, 2)


def test_what_does_not_pass_ends_the_engine_with_the_last_reason(
    generator: EndpointGenerator, server: Server
) -> None:
    server.acts = [refusal(500, "first"), refusal(500, "second"), refusal(429, "out of quota")]
    with pytest.raises(EngineDead, match=r"given up after 3 tries: 429 \(out of quota\)"):
        rolled(generator)


def test_a_server_that_is_silent_is_asked_again(demo_folder: Path, server: Server) -> None:
    generator = generator_of(demo_folder, server, timeout_seconds=0.3, retries=1)
    server.acts = [Act(hang=True)]
    assert rolled(generator).token_ids == (100, 101, 2)
    server.acts = [Act(hang=True)] * 2
    with pytest.raises(EngineDead, match=r"2 tries: no reply within 0\.3 seconds"):
        rolled(generator)


def test_a_server_that_is_not_there_ends_the_engine(demo_folder: Path) -> None:
    with serving() as gone:
        pass
    generator = generator_of(demo_folder, gone, retries=1)
    with pytest.raises(EngineDead, match=rf"{gone.url}: given up after 2 tries: no connection: "):
        rolled(generator)


def test_the_server_decides_how_long_to_wait_where_that_is_longer(
    demo_folder: Path, server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    waited: list[float] = []

    async def sleep(seconds: float) -> None:
        waited.append(seconds)

    monkeypatch.setattr(endpoint_client, "sleep", sleep)
    generator = generator_of(demo_folder, server, retries=3, max_wait_seconds=30.0)
    server.acts = [refusal(429, "x", Retry_After=asked) for asked in ("7", "900", "soon")]
    rolled(generator)
    assert waited[:2] == [7.0, 30.0]
    assert 0.002 <= waited[2] <= 0.004  # the third backoff of 0.001, doubled twice


@pytest.mark.parametrize(
    ("header", "seconds"),
    [
        (None, 0.0),
        ("3", 3.0),
        ("0.5", 0.5),
        ("-1", 0.0),
        ("nan", 0.0),
        ("later", 0.0),
        ("Wed, 21 Oct 2015 07:28:10 GMT", 10.0),
        ("Wed, 21 Oct 2015 07:28:10 -0000", 10.0),
        ("Wed, 21 Oct 2015 07:27:00 GMT", 0.0),
    ],
)
def test_retry_after_is_a_number_of_seconds_or_a_date(header: str | None, seconds: float) -> None:
    now = datetime(2015, 10, 21, 7, 28, 0, tzinfo=UTC)
    assert retry_after_seconds(header, now=now) == seconds


@given(
    attempt=st.integers(1, 200),
    asked=st.floats(0, 1e9),
    lot=st.floats(0, 1, exclude_max=True),
)
def test_a_wait_is_never_longer_than_the_limit_nor_shorter_than_what_is_asked_within_it(
    attempt: int, asked: float, lot: float
) -> None:
    cfg = EndpointConfig(base_url="http://h/v1", backoff_seconds=0.5, max_wait_seconds=60)
    wait = wait_seconds(attempt, asked, cfg, lot=lot)
    assert min(asked, 60) <= wait <= 60
    assert wait >= min(60, 0.25 * 2.0 ** (attempt - 1))


def test_the_concurrency_limit_holds_and_is_used(demo_folder: Path, server: Server) -> None:
    generator = generator_of(demo_folder, server, concurrency=3, retries=0)
    gate, most, now = threading.Barrier(3), 0, 0

    def answer(body: dict[str, Any]) -> Act:
        nonlocal most, now
        with server.lock:
            now += 1
            most = max(most, now)
        gate.wait(timeout=20)  # fewer than three at once would never pass it
        server.closing.wait(0.05)  # so that a fourth, were there one, would be seen
        with server.lock:
            now -= 1
        return Act(body=completion(body))

    async def go() -> None:
        await asyncio.gather(*(generator.complete([5, n], max_tokens=3) for n in range(9)))

    server.answer = answer
    run(go())
    assert most == 3
    assert len(server.bodies) == 9


def test_a_prompt_that_the_server_finds_too_long_dies_alone(
    generator: EndpointGenerator, server: Server
) -> None:
    said = "This model's maximum context length is 128 tokens. However, you requested 131 tokens"

    def answer(body: dict[str, Any]) -> Act:
        return refusal(400, said) if 9 in body["prompt"] else Act(body=completion(body))

    async def go() -> list[Any]:
        asked = (generator.rollout([5, n]) for n in (8, 9, 10))
        return list(await asyncio.gather(*asked, return_exceptions=True))

    server.answer = answer
    found = run(go())
    assert isinstance(found[1], Refusal)
    assert f"400 ({said})" in str(found[1])
    assert [type(found[0]), type(found[2])] == [Rollout, Rollout]


def test_a_prompt_beyond_the_configs_window_is_not_even_sent(
    generator: EndpointGenerator, server: Server
) -> None:
    with pytest.raises(Refusal, match="249 tokens and 8 new ones exceed the window of 256"):
        run(generator.rollout([5] * 249))
    assert server.bodies == []


@pytest.mark.parametrize("status", [401, 403, 404])
def test_a_key_or_a_name_that_is_not_known_names_address_and_variable_and_never_the_key(
    demo_folder: Path, server: Server, monkeypatch: pytest.MonkeyPatch, status: int
) -> None:
    monkeypatch.setenv("SOME_KEY", "sk-secret")
    generator = generator_of(demo_folder, server, api_key_env="SOME_KEY")
    server.acts = [refusal(status, "nobody knows sk-secret here")]
    with pytest.raises(ModelNotFound) as failed:
        rolled(generator)
    assert f"{server.url}: {status} for" in str(failed.value)
    assert "'served'" in str(failed.value)
    assert "the key in SOME_KEY" in str(failed.value)
    assert "sk-secret" not in str(failed.value)
    assert len(server.bodies) == 1


def test_the_key_is_sent_and_stands_in_no_reason(
    demo_folder: Path, server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SOME_KEY", "sk-secret")
    generator = generator_of(demo_folder, server, api_key_env="SOME_KEY")
    server.acts = [refusal(400, "bad request of Bearer sk-secret")]
    with pytest.raises(Refusal, match=r"bad request of Bearer \*\*\*\)"):
        rolled(generator)
    assert server.headers[0]["authorization"] == "Bearer sk-secret"


def test_a_variable_that_is_not_set_is_named_before_any_request(
    demo_folder: Path, server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("SOME_KEY", raising=False)
    with pytest.raises(ModelNotFound, match="environment variable SOME_KEY is not set"):
        generator_of(demo_folder, server, api_key_env="SOME_KEY")


def test_fewer_log_probabilities_than_k_are_an_error_that_names_both(
    generator: EndpointGenerator, server: Server
) -> None:
    server.answer = lambda body: Act(body=completion(body | {"logprobs": 3}))
    with pytest.raises(ModelNotFound, match=r"gave 3 log-prob.* probe\.top_k asks for 4: set gen"):
        rolled(generator)
    for missing in (None, {}, {"top_logprobs": None}, {"top_logprobs": [None] * 3}):
        server.acts = [Act(body=completion(server.bodies[0], logprobs=missing))]
        with pytest.raises(ModelNotFound, match=r"gave 0 log-prob.* probe\.top_k asks for 4"):
            rolled(generator)


def test_a_server_that_refuses_so_many_log_probabilities_names_both(
    generator: EndpointGenerator, server: Server
) -> None:
    server.acts = [refusal(400, "Requested sample logprobs of 4, which is greater than max: 2")]
    with pytest.raises(ModelNotFound, match=r"gives no K = 4 .*max: 2; set generator.max_logprobs"):
        rolled(generator)


def test_log_probabilities_of_other_steps_than_the_tokens_end_the_run(
    generator: EndpointGenerator, server: Server
) -> None:
    one = {"top_logprobs": [{f"token_id:{i}": -1.0 - i for i in range(K)}]}
    server.answer = lambda body: Act(body=completion(body, logprobs=one))
    with pytest.raises(RuntimeError, match="1 steps for 3"):
        rolled(generator)


@pytest.mark.parametrize(
    ("changes", "kind", "said"),
    [
        ({"token_ids": None}, ModelNotFound, "gives no token_ids"),
        ({"token_ids": []}, Refusal, "ended without a token"),
        ({"finish_reason": "content_filter"}, Refusal, "ended with 'content_filter'"),
        ({"finish_reason": None}, Refusal, "ended with None"),
        ({"finish_reason": "abort"}, EngineDead, "gave a request up: abort"),
    ],
)
def test_a_completion_that_is_none_is_told_by_its_kind(
    generator: EndpointGenerator,
    server: Server,
    changes: dict[str, Any],
    kind: type[Exception],
    said: str,
) -> None:
    server.answer = lambda body: Act(body=completion(body, **changes))
    with pytest.raises(kind, match=said):
        rolled(generator)


def test_a_server_that_reads_other_tokens_than_were_sent_is_found_out(
    generator: EndpointGenerator, server: Server
) -> None:
    server.answer = lambda body: Act(body=completion(body | {"prompt": [1, *body["prompt"]]}))
    with pytest.raises(ModelNotFound, match="read 4 tokens where 3 were sent"):
        rolled(generator)


def test_tokens_are_counted_over_every_reply(generator: EndpointGenerator, server: Server) -> None:
    server.acts = [refusal(500, "once")]
    rolled(generator)
    run(generator.complete([5, 6], max_tokens=2))
    usage = generator.usage
    assert (usage.requests, usage.retries) == (2, 1)
    assert (usage.prompt_tokens, usage.completion_tokens, usage.cached_tokens) == (5, 5, 2)


def test_an_endpoint_is_a_teacher_for_listwise_ranking(demo_folder: Path, server: Server) -> None:
    generator = generator_of(demo_folder, server, extensions="none")
    server.answer = lambda body: Act(body=completion(body, text=" [2] > [1]"))
    rank = RankListwise(ListwiseConfig(max_tokens=20), generator, "contents", selector="adarank")
    candidates = [candidate("a", "north wind"), candidate("b", "south wind")]
    row = {"question_id": "q", "question": "Which?", "candidates": candidates}
    made = run(rank(table([row], ["question_id", "question", "candidates"]))).to_pylist()[0]
    assert made["error"] is None
    assert made["ranking_adarank"]["positions"] == [1, 0]
    assert made["ranking_adarank"]["tokens"] == len(server.bodies[0]["prompt"]) + 3


def test_a_whole_run_over_an_endpoint_records_the_smaller_k_and_outlives_a_rate_limit(
    demo_folder: Path, server: Server, tmp_path: Path
) -> None:
    server.acts = [refusal(429, "slow down")] * 2
    generator = config(demo_folder, server.url).plain(exclude={"max_model_len"})
    cfg = plans.config(
        tmp_path,
        input={"sample": 3},
        generator=generator,
        probe={"allow_smaller_k": True, "trace": True},
    )
    plan, counts = plans.run(cfg)
    probe = next(step.stage for step in plan.steps if step.stage.name == "probe")
    assert probe.depends_on["top_k"] == 20
    assert probe.depends_on["generator"]["endpoint"]["model"] == "served"
    assert {body["logprobs"] for body in server.bodies if "logprobs" in body} == {20}
    assert counts.sums["probe"]["rollouts"] == 3 * (plans.N + 1)
    rows = plans.finished(plan).to_pylist()
    assert len(rows) == 3
    # Every rollout reads the same log-probabilities, so no passage gains anything.
    assert {gain for row in rows for gain in row["gains"]} == {0.0}
    assert {answer["answer_tokens"] for row in rows for answer in row["answers"]} == {3}
