"""The drift of a night's probes against its baseline's: reported, and part of the gate if asked."""

from collections.abc import Mapping
from typing import Any

from pipeline.calibration import drift_report
from pipeline.calibration.drift import Drift, exceeded
from pipeline.config import DriftCheckConfig
from pipeline.nightly.gate import Drifted
from pipeline.nightly.scores import Scores
from pipeline.readers import InputError
from pipeline.stages import arms

Report = dict[str, Any]


def check(
    baseline: Scores | None, night: Scores, cfg: DriftCheckConfig | None, *, threshold: float
) -> tuple[Report, Drifted]:
    """The report, and what of it fails the gate. Where nothing can be compared (no probes, other
    probes, rollouts that were ended early), `checked` is false and `reason` says why."""
    if cfg is None or baseline is None:
        return {"checked": False, "reason": "off" if cfg is None else "no baseline"}, Drifted()
    try:
        report, found = drift_report.compare(baseline, night, cfg, threshold=threshold)
    except InputError as error:
        unchecked = (f"drift: not checked: {error}",) if cfg.fails else ()
        return {"checked": False, "reason": str(error)}, Drifted(unchecked=unchecked)
    flagged = tuple(map(told, exceeded(found))) if cfg.fails else ()
    return {"checked": True, **report}, Drifted(flagged=flagged)


def told(entry: Drift) -> str:
    """A measure in a line."""
    return (
        f"drift of {entry.signal}: {entry.measure} {entry.value:.3f}, limit {entry.limit:g}, "
        f"mean {entry.reference:.3f} -> {entry.current:.3f}"
    )


def threshold_of(arm: Mapping[str, Any]) -> float:
    """Tp by which pass rates are compared: the arm's, 0 for one without a finite one."""
    tp = 0.0 if arm["policy"] is None else arms.threshold(arm["policy"])
    return tp if abs(tp) != float("inf") else 0.0
