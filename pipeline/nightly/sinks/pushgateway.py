"""Prometheus Pushgateway: the night's numbers as gauges, in place of the night's before.

The grouping key is the job and the config's name, never the night's id: a gateway keeps every
group that it ever saw.
"""

import datetime
from collections.abc import Callable, Mapping

from prometheus_client import CollectorRegistry, Gauge, push_to_gateway

from pipeline.config import PushgatewayConfig
from pipeline.nightly.evaluate import Result
from pipeline.nightly.http import Client
from pipeline.nightly.sinks.figures import figures

BASE = "http://gateway"
"""Stands for the address, which the client knows."""


def send(client: Client, cfg: PushgatewayConfig, own: Mapping[str, str], result: Result) -> None:
    """Replaces the group's metrics; `own` are headers."""

    def handler(
        url: str, method: str, timeout: float | None, headers: list[tuple[str, str]], data: bytes
    ) -> Callable[[], None]:
        return lambda: void(
            client.send(method, url.removeprefix(BASE), data, {**dict(headers), **own})
        )

    push_to_gateway(
        BASE,
        job=cfg.job,
        registry=registry(result),
        grouping_key={"config": result.night.name},
        handler=handler,
    )


def void(_: bytes) -> None:
    """What a Pushgateway answers says nothing."""


def registry(result: Result) -> CollectorRegistry:
    """The gauges of a night; an undefined number is left out."""
    made = CollectorRegistry()
    score = Gauge(
        "igp_eval_score", "Mean over the night's questions.", ("metric", "arm"), registry=made
    )
    for arm, numbers in figures(result).items():
        for metric, value in numbers.items():
            score.labels(metric, arm).set(value)
    midnight = datetime.datetime.combine(result.night.date, datetime.time(), datetime.UTC)
    for name, meaning, value in (
        ("igp_eval_gate_passed", "1 where the night passed its gate.", float(result.passed)),
        ("igp_eval_questions", "Living questions.", result.metrics["questions"]),
        ("igp_eval_dead_letters", "Questions that died.", result.metrics["dead_letters"]),
        ("igp_eval_date_seconds", "Scheduled date, 00:00 UTC.", midnight.timestamp()),
        (
            "igp_run_last_success_timestamp_seconds",
            "When the last night had its numbers.",
            result.gate["written_at_seconds"],
        ),
    ):
        Gauge(name, meaning, registry=made).set(value)
    return made
