"""Tells a finished night to every sink that is configured, once, whatever becomes of the others."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from pipeline.config import SinkConfig, SinksConfig
from pipeline.loading import ConfigError
from pipeline.nightly.evaluate import Result
from pipeline.nightly.http import Client, HttpError
from pipeline.nightly.sinks import mlflow, pushgateway, webhook
from pipeline.progress import say
from pipeline.runs.storage import Storage

TOLD = "sinks.json"
SENDERS: dict[str, Callable[..., None]] = {
    "pushgateway": pushgateway.send,
    "webhook": webhook.send,
    "mlflow": mlflow.send,
}


@dataclass(frozen=True)
class Sink:
    """A sink with its address and token."""

    name: str
    cfg: SinkConfig
    url: str
    headers: Mapping[str, str]

    @property
    def client(self) -> Client:
        """Requests as its config asks."""
        return Client(
            self.url,
            retries=self.cfg.retries,
            backoff_seconds=self.cfg.backoff_seconds,
            timeout_seconds=self.cfg.timeout_seconds,
        )


def resolve(cfg: SinksConfig, environment: Mapping[str, str]) -> list[Sink]:
    """The sinks with what the environment holds for them; ConfigError where it lacks a variable."""
    made = []
    for name in SENDERS:
        one: SinkConfig | None = getattr(cfg, name)
        if one is not None:
            url = one.url or _variable(environment, one.url_env, f"sinks.{name}.url_env")
            headers = {}
            if one.token_env is not None:
                token = _variable(environment, one.token_env, f"sinks.{name}.token_env")
                headers["Authorization"] = f"Bearer {token}"
            made.append(Sink(name, one, url, headers))
    return made


def deliver(sinks: list[Sink], storage: Storage, result: Result) -> list[str]:
    """The names of required sinks that failed. A sink is not told the same verdict again; one that
    failed is. What became of each stands in sinks.json."""
    path = result.night.at(TOLD)
    known = storage.read_json(path) if storage.exists(path) else {}
    told, version = dict(known), result.gate["written_at_seconds"]
    for sink in sinks:
        before = known.get(sink.name)
        if before is not None and before["error"] is None and before["gate"] == version:
            continue
        error = None
        try:
            SENDERS[sink.name](sink.client, sink.cfg, sink.headers, result)
        except HttpError as failure:
            error = str(failure)
            say("sink failed", sink=sink.name, error=error)
        told[sink.name] = {"gate": version, "error": error}
    if told != known:
        storage.write_json(path, told)
    return [s.name for s in sinks if s.cfg.required and told[s.name]["error"] is not None]


def _variable(environment: Mapping[str, str], name: str | None, key: str) -> str:
    found = environment.get(name or "")
    if not found:
        raise ConfigError(f"{key}: the environment variable {name} is not set")
    return found
