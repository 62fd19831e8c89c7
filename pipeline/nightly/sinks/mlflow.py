"""MLflow tracking by its REST API 2.0: one run a night, found again by its tag.

Its client would bring a hundred packages for the five calls that are made here.
"""

from collections.abc import Mapping
from typing import Any
from urllib.parse import urlencode

from pipeline.config import MlflowConfig
from pipeline.nightly.evaluate import Result
from pipeline.nightly.http import Client, HttpError
from pipeline.nightly.sinks.figures import figures

API = "/api/2.0/mlflow"
NIGHT = "winnow.night"


def send(client: Client, cfg: MlflowConfig, headers: Mapping[str, str], result: Result) -> None:
    """Makes the night's run, or takes it up, and logs metrics, parameters and tags."""
    ask = _Api(client, headers)
    run_id = ask.run(ask.experiment(cfg.experiment), result)
    at = int(result.gate["written_at_seconds"] * 1000)
    step = {"timestamp": at, "step": 0}
    values = [{"key": k, "value": v, **step} for k, v in metrics(result).items()]
    ask.post(
        "runs/log-batch",
        {
            "run_id": run_id,
            "metrics": values,
            "params": [{"key": key, "value": value} for key, value in params(result).items()],
            "tags": [{"key": key, "value": value} for key, value in tags(result).items()],
        },
    )
    ask.post("runs/update", {"run_id": run_id, "status": "FINISHED", "end_time": at})


class _Api:
    def __init__(self, client: Client, headers: Mapping[str, str]) -> None:
        self._client, self._headers = client, headers

    def post(self, path: str, value: Any) -> Any:
        return self._client.json("POST", f"{API}/{path}", value, self._headers)

    def experiment(self, name: str) -> str:
        """The experiment's id; it is made where it is not there."""
        query = urlencode({"experiment_name": name})
        path = f"{API}/experiments/get-by-name?{query}"
        try:
            found = self._client.json("GET", path, None, self._headers)["experiment"]
        except HttpError as error:
            if error.status != 404:
                raise
            found = self.post("experiments/create", {"name": name})
        return str(found["experiment_id"])

    def run(self, experiment: str, result: Result) -> str:
        """The id of the night's run; it is made where it is not there."""
        night = result.night.id
        asked = {
            "experiment_ids": [experiment],
            "filter": f"tags.`{NIGHT}` = '{night}'",
            "max_results": 1,
        }
        found = self.post("runs/search", asked).get("runs", [])
        if not found:
            made = {
                "experiment_id": experiment,
                "run_name": night,
                "start_time": int(result.gate["written_at_seconds"] * 1000),
                "tags": [{"key": NIGHT, "value": night}],
            }
            found = [self.post("runs/create", made)["run"]]
        return str(found[0]["info"]["run_id"])


def metrics(result: Result) -> dict[str, float]:
    """The arm's numbers by their names, those of retrieval order with a prefix, and the gate's."""
    by_arm = figures(result)
    made = dict(by_arm[str(result.arm["arm"])])
    other = result.arm["baseline"]
    if other is not None and other != result.arm["arm"]:
        made |= {f"retriever.{name}": value for name, value in by_arm[str(other)].items()}
    counts = {name: float(result.metrics[name]) for name in ("questions", "dead_letters")}
    return made | counts | {"gate_passed": float(result.passed)}


def params(result: Result) -> dict[str, str]:
    """Of the config what runs are searched by. MLflow lets none be changed, so no verdict here."""
    config = result.manifest["config"]
    return {
        "arm": str(result.arm["arm"]),
        "config_hash": str(result.manifest["config_hash"]),
        "generator.model": str(config["generator"]["model"]),
        "generator.revision": str(config["generator"]["revision"]),
        "questions": str(config["input"]["questions"]),
    }


def tags(result: Result) -> dict[str, str]:
    """Date, verdict, and where the night is."""
    return {
        "winnow.date": str(result.gate["date"]),
        "winnow.verdict": str(result.gate["verdict"]),
        "winnow.run": str(result.manifest["run"]["folder"]),
    }
