"""A nightly evaluation: the main job at a scheduled date, its gate, its drift check, its sinks."""

import datetime
from typing import Annotated, Any, Literal, Self
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from pydantic import AfterValidator, Field, model_validator

from pipeline.config.base import Frozen, Path
from pipeline.config.jobs import OfflineIgpConfig
from pipeline.config.monitoring import DriftLimits


def _zone(name: str) -> str:
    try:
        ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError):
        raise ValueError("no time zone; allowed: a name such as Etc/UTC or Europe/Berlin") from None
    return name


Tolerance = Annotated[float | None, Field(ge=0)]


class TolerancesConfig(Frozen):
    """How much worse than the baseline a metric's mean may be; null: reported only."""

    f1: Tolerance = Field(0.01, description="largest fall of F1")
    em: Tolerance = Field(None, description="largest fall of exact match")
    sub_em: Tolerance = Field(0.01, description="largest fall of SubEM")
    wrong: Tolerance = Field(None, description="largest rise of the share of wrong answers")
    ndcg: Tolerance = Field(None, description="largest fall of NDCG@5 of the evidence")
    prompt_tokens: Tolerance = Field(None, description="largest rise of TK, in tokens")


class GateConfig(Frozen):
    """What a night is compared with, and what fails it.

    A metric is worse where its mean fell by more than the tolerance and the interval of the paired
    difference excludes 0.
    """

    night: str | None = Field(
        "last_passed",
        pattern=r"^[A-Za-z0-9._-]+$",
        description="baseline: the id of an earlier night, last_passed (of the same run.name), or "
        "null",
    )
    scores: Path | None = Field(
        None, description="a frozen baseline in place of night: scores.parquet of a night, kept"
    )
    arm: str | None = Field(None, description="arm that is compared; null: the policy under test")
    tolerances: TolerancesConfig = Field(
        default_factory=TolerancesConfig, description="how much worse is too much"
    )
    level: float = Field(
        0.95, gt=0, lt=1, description="of the paired bootstrap interval over common questions"
    )
    min_questions: int = Field(
        20, ge=2, description="common questions with a defined metric, or it cannot be compared"
    )
    fails_job: bool = Field(
        True,
        description="exit code 3 where the gate is not passed; false: gate.json alone says it, "
        "which jobs/submit_rayjob.py reads, and the job succeeds once the numbers exist",
    )

    @model_validator(mode="after")
    def _one_baseline(self) -> Self:
        if self.scores is not None and self.night not in (None, "last_passed"):
            raise ValueError("gate.scores: give it or gate.night, not both")
        return self


class DriftCheckConfig(DriftLimits):
    """Limits of NU, IG, T and pass rate against the baseline's, as in jobs/drift.py."""

    fails: bool = Field(False, description="whether drift fails the gate, or is told alone")


class SinkConfig(Frozen):
    """Where a night is told to. Its address is given, or stands in an environment variable."""

    url: str | None = Field(None, description="address")
    url_env: str | None = Field(
        None, description="environment variable that holds the address, where it is a secret"
    )
    token_env: str | None = Field(
        None, description="environment variable whose value is sent as a bearer token"
    )
    timeout_seconds: float = Field(10.0, gt=0, description="of one try")
    retries: int = Field(4, ge=0, description="after a lost connection, 429 or 5xx")
    backoff_seconds: float = Field(1.0, ge=0, description="before the second retry, then doubled")
    required: bool = Field(False, description="exit code 1 where it fails; false: told alone")

    @model_validator(mode="after")
    def _one_address(self) -> Self:
        if (self.url is None) == (self.url_env is None):
            raise ValueError("give one of url and url_env")
        return self


class PushgatewayConfig(SinkConfig):
    """A Prometheus Pushgateway; the grouping key is the job and the config's name."""

    job: str = Field("igp_nightly", min_length=1, description="value of the label job")


class WebhookConfig(SinkConfig):
    """A JSON POST: a `text` that chat tools show, and the night's figures beside it."""

    when: Literal["always", "not_passed"] = Field("always", description="which nights are told")


class MlflowConfig(SinkConfig):
    """An MLflow tracking server: one run a night."""

    experiment: str = Field("winnow-nightly", min_length=1, description="experiment's name")


class SinksConfig(Frozen):
    """Where a finished night is told to; none unless given."""

    pushgateway: PushgatewayConfig | None = Field(None, description="Prometheus Pushgateway")
    webhook: WebhookConfig | None = Field(None, description="JSON POST")
    mlflow: MlflowConfig | None = Field(None, description="MLflow tracking server")


class NightlyConfig(OfflineIgpConfig):
    """Everything jobs/nightly_eval.py needs: the main job's config, and what surrounds a night."""

    date: datetime.date | None = Field(
        None,
        description="scheduled date, YYYY-MM-DD; null: from RAY_CLUSTER_NAME, under a RayCronJob",
    )
    time_zone: Annotated[str, AfterValidator(_zone)] = Field(
        "Etc/UTC", description="of the date of a RayCronJob's schedule"
    )
    gate: GateConfig = Field(default_factory=GateConfig)
    drift: DriftCheckConfig | None = Field(
        default_factory=DriftCheckConfig, description="null: not checked"
    )
    sinks: SinksConfig = Field(default_factory=SinksConfig)

    def main_job(self, root: str) -> OfflineIgpConfig:
        """The main job's config, with everything that it makes below `root`."""
        sections: dict[str, Any] = {n: getattr(self, n) for n in OfflineIgpConfig.model_fields}
        run = self.run.model_copy(update={"root": root})
        return OfflineIgpConfig(**{**sections, "run": run})
