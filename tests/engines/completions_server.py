"""A server in the test's own process that speaks /completions, and misbehaves where it is told.

Without an act it answers as vLLM's server does: two tokens and the end token 2, each with
log-probabilities that halve from one entry to the next.
"""

import json
import math
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

MADE = [100, 101, 2]


@dataclass(frozen=True)
class Act:
    """What happens to one request; `hang` holds it until the server ends."""

    status: int = 200
    body: str | Mapping[str, Any] = ""
    headers: Mapping[str, str] = field(default_factory=dict)
    hang: bool = False


def refusal(status: int, message: str, **headers: str) -> Act:
    """An error as OpenAI's API words it."""
    named = {key.replace("_", "-"): value for key, value in headers.items()}
    return Act(status, {"error": {"message": message, "code": status}}, named)


@dataclass
class Server:
    """`acts` are used up in order, then every request is answered by `answer`."""

    url: str = ""
    acts: list[Act] = field(default_factory=list)
    bodies: list[dict[str, Any]] = field(default_factory=list)
    headers: list[Mapping[str, str]] = field(default_factory=list)
    answer: Callable[[dict[str, Any]], Act] = field(default=lambda body: Act(body=completion(body)))
    closing: threading.Event = field(default_factory=threading.Event)
    lock: threading.Lock = field(default_factory=threading.Lock)


def completion(asked: Mapping[str, Any], **changes: Any) -> dict[str, Any]:
    """vLLM's reply to a request; `changes` are of its only choice."""
    made = MADE[: asked["max_tokens"]]
    choice: dict[str, Any] = {
        "index": 0,
        "text": " an answer ",
        "finish_reason": "stop" if made[-1] == 2 else "length",
        "token_ids": made if asked.get("return_token_ids") else None,
        "logprobs": None,
    }
    if (k := asked.get("logprobs")) is not None:
        rows = [{f"token_id:{i}": -(i + 1) * math.log(2) for i in reversed(range(k))} for _ in made]
        choice["logprobs"] = {"top_logprobs": rows}
    usage = {
        "prompt_tokens": len(asked["prompt"]),
        "completion_tokens": len(made),
        "prompt_tokens_details": {"cached_tokens": 1},
    }
    return {"choices": [{**choice, **changes}], "usage": usage}


class _Quiet(ThreadingHTTPServer):
    daemon_threads = True

    def handle_error(self, *_: Any) -> None:
        """A client that hung up is no news."""


@contextmanager
def serving() -> Iterator[Server]:
    """A server on a free port, ended afterwards with what it holds."""
    state = Server()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            with state.lock:
                state.bodies.append(asked)
                state.headers.append({k.lower(): v for k, v in self.headers.items()})
                act = state.acts.pop(0) if state.acts else None
            act = act or state.answer(asked)
            if act.hang:
                state.closing.wait()
                return
            text = act.body if isinstance(act.body, str) else json.dumps(act.body)
            self.send_response(act.status)
            for name, value in {"Content-Type": "application/json", **act.headers}.items():
                self.send_header(name, value)
            self.send_header("Content-Length", str(len(text.encode())))
            self.end_headers()
            self.wfile.write(text.encode())

        def log_message(self, format: str, *args: Any) -> None:
            """Says nothing."""

    with _Quiet(("127.0.0.1", 0), Handler) as http:
        state.url = f"http://127.0.0.1:{http.server_address[1]}/v1"
        thread = threading.Thread(target=http.serve_forever, kwargs={"poll_interval": 0.02})
        thread.start()
        try:
            yield state
        finally:
            state.closing.set()
            http.shutdown()
            thread.join()
