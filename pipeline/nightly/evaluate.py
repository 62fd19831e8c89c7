"""What follows a night's run: scores, lineage, verdict, drift, trend, pages; its marker last."""

import time
from dataclasses import dataclass
from typing import Any, TypedDict

from pipeline.config import NightlyConfig
from pipeline.nightly import drift_check, gate, lineage, nights, pages, scores, trend
from pipeline.nightly.gate import Judged
from pipeline.nightly.nights import Night
from pipeline.nightly.scores import Scores
from pipeline.readers import InputError
from pipeline.report.finished import Finished, open_run
from pipeline.report.summary import policy_under_test
from pipeline.report.write import build, write_report
from pipeline.runs.fingerprint import digest
from pipeline.runs.storage import Storage


@dataclass(frozen=True)
class Result:
    """A night that has its numbers, and the contents of its files."""

    night: Night
    gate: dict[str, Any]
    metrics: dict[str, Any]
    manifest: dict[str, Any]

    @property
    def passed(self) -> bool:
        """Whether the gate was passed."""
        return bool(self.gate["passed"])

    @property
    def arm(self) -> dict[str, Any]:
        """The metrics of the arm that was judged."""
        arms: list[dict[str, Any]] = self.metrics["arms"]
        return next(arm for arm in arms if arm["arm"] == self.metrics["arm"])


def judging(cfg: NightlyConfig) -> str:
    """A fingerprint of what decides a verdict beside the numbers: with others it is made anew."""
    sections = cfg.plain()
    gate = {name: value for name, value in sections["gate"].items() if name != "fails_job"}
    return digest({"gate": gate, "drift": sections["drift"]})


def load(storage: Storage, night: Night) -> Result:
    """A night that is finished."""
    names = (nights.GATE, nights.METRICS, nights.MANIFEST)
    return Result(night, *(storage.read_json(night.at(name)) for name in names))


def is_done(storage: Storage, night: Night, cfg: NightlyConfig) -> bool:
    """Whether the night is finished, and was judged as the config says."""
    if not storage.exists(night.at(nights.SUCCESS)):
        return False
    return bool(storage.read_json(night.at(nights.GATE))["judging"] == judging(cfg))


def run_folder(storage: Storage, night: Night) -> str | None:
    """Where the run of a finished night is; None before, and where retention has removed it."""
    if not storage.exists(night.at(nights.SUCCESS)):
        return None
    folder = str(storage.read_json(night.at(nights.MANIFEST))["run"]["folder"])
    return folder if Storage(folder).exists(nights.SUCCESS) else None


def evaluate(
    cfg: NightlyConfig, storage: Storage, night: Night, *, folder: str, baseline: str | None
) -> None:
    """Judges the finished run in `folder` and writes all that a night consists of."""
    run = open_run(night.name, folder)
    made = lineage.lineage(cfg, night, run)
    own = scores.write(run, storage.uri(night.at(nights.SCORES)), made)
    other = None if baseline is None else scores.read(baseline)
    arm = _arm(cfg, run)
    judged, verdict = _judge(cfg, own, other, arm)
    metrics = {"id": night.id, "date": night.date.isoformat(), "arm": arm["arm"], **run.metrics}
    past = trend.frame(storage, night, (metrics, judged.verdict))
    page = build([run], **_draws(cfg), title=night.id)
    page = pages.report(page, judged, past, arm=str(arm["arm"]))
    write_report(page, storage.uri(night.at("report")))
    text = pages.summary(
        night,
        judged,
        metrics=metrics,
        baseline=None if other is None else f"{other.id} ({other.folder})",
        changed=verdict["changed"],
        drift=verdict["drift"],
        nights=past,
    )
    storage.write_bytes(night.at("summary.md"), text.encode())
    for file, value in ((nights.MANIFEST, made), (nights.METRICS, metrics), (nights.GATE, verdict)):
        storage.write_json(night.at(file), value)
    storage.write_bytes(night.at(nights.SUCCESS), b"")


def _judge(
    cfg: NightlyConfig, own: Scores, other: Scores | None, arm: dict[str, Any]
) -> tuple[Judged, dict[str, Any]]:
    """The verdict, and gate.json."""
    threshold = drift_check.threshold_of(arm)
    drift, drifted = drift_check.check(other, own, cfg.drift, threshold=threshold)
    name = str(arm["arm"])
    judged = gate.judged(other, own, arm=name, drift=drifted, gate=cfg.gate, **_draws(cfg))
    made = {
        **{"id": own.id, "date": own.manifest["date"], "arm": name},
        "baseline": None if other is None else {"id": other.id, "scores": other.folder},
        **judged.plain(),
        "changed": [] if other is None else lineage.changes(other.manifest, own.manifest),
        **{"drift": drift, "judging": judging(cfg), "written_at_seconds": round(time.time(), 3)},
    }
    return judged, made


class _Draws(TypedDict):
    seed: int
    samples: int


def _draws(cfg: NightlyConfig) -> _Draws:
    return {"seed": cfg.run.seed, "samples": cfg.evaluation.bootstrap_samples}


def _arm(cfg: NightlyConfig, run: Finished) -> dict[str, Any]:
    """The arm that is judged; InputError where the config names none of the run's."""
    known = {str(arm["arm"]): dict(arm) for arm in run.arms}
    if cfg.gate.arm is None:
        return dict(policy_under_test(run.arms) or run.arms[0])
    if cfg.gate.arm not in known:
        raise InputError(f"gate.arm {cfg.gate.arm!r}; allowed: {', '.join(known)}")
    return known[cfg.gate.arm]
