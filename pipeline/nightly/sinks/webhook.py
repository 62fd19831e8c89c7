"""A webhook: one JSON object, whose `text` chat tools show; the rest is for programs."""

import json
from collections.abc import Mapping
from typing import Any

from pipeline.config import WebhookConfig
from pipeline.nightly.evaluate import Result
from pipeline.nightly.http import Client
from pipeline.nightly.pages import SAID
from pipeline.nightly.sinks.figures import figures


def send(client: Client, cfg: WebhookConfig, headers: Mapping[str, str], result: Result) -> None:
    """Posts the night, or nothing where it passed and only others are asked for."""
    if cfg.when == "always" or not result.passed:
        typed = {**headers, "Content-Type": "application/json"}
        body = json.dumps(message(result), ensure_ascii=False, allow_nan=False).encode()
        client.send("POST", "", body, typed)


def message(result: Result) -> dict[str, Any]:
    """JSON-able; NaN never stands in it."""
    gate = result.gate
    lines = [f"{result.night.id}: {SAID[gate['verdict']]}", *gate["reasons"]]
    return {
        "text": "\n".join(lines),
        "night": result.night.id,
        "date": gate["date"],
        "passed": gate["passed"],
        "verdict": gate["verdict"],
        "reasons": gate["reasons"],
        "baseline": gate["baseline"] and gate["baseline"]["id"],
        "arms": figures(result),
    }
