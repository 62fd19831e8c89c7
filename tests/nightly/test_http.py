"""Requests against a real server: what is tried again, what is not, and what errors keep quiet."""

import socket

import pytest

from pipeline.nightly.http import Client, HttpError
from tests.nightly.server import scripted, serving


def client(url: str, retries: int = 3) -> Client:
    return Client(url, retries=retries, backoff_seconds=0, timeout_seconds=5)


@pytest.mark.parametrize("status", [429, 500, 502, 503, 504])
def test_a_server_in_trouble_is_asked_again(status: int) -> None:
    with serving(scripted((status, b""), (status, b""), (200, {"a": 1}))) as server:
        assert client(server.url).json("POST", "/x", {"b": 2}, {"K": "v"}) == {"a": 1}
    assert [request.json for request in server.requests] == [{"b": 2}] * 3
    assert server.requests[-1].headers["k"] == "v"


def test_a_refusal_is_final_and_its_words_are_told() -> None:
    with (
        serving(scripted((400, b"no such\nthing"))) as server,
        pytest.raises(HttpError, match=r"^POST: status 400: no such thing$") as caught,
    ):
        client(server.url).send("POST", "/x", b"", {})
    assert caught.value.status == 400
    assert len(server.requests) == 1


def test_a_server_that_stays_in_trouble_is_given_up_with_its_status() -> None:
    with (
        serving(scripted((503, b"busy"))) as server,
        pytest.raises(HttpError, match=r"status 503: busy"),
    ):
        client(server.url, retries=2).send("GET", "/secret", None, {})
    assert len(server.requests) == 3


def test_a_lost_connection_tells_no_path() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    with pytest.raises(HttpError) as caught:
        client(f"http://127.0.0.1:{port}/hooks/secret", retries=1).send("POST", "", b"", {})
    assert caught.value.status is None
    assert "secret" not in str(caught.value) and "\n" not in str(caught.value)


def test_an_answer_that_is_no_json_is_refused() -> None:
    with (
        serving(scripted((200, b"<html>"))) as server,
        pytest.raises(HttpError, match=r"the answer is no JSON: b'<html>'"),
    ):
        client(server.url).json("GET", "/", None, {})
