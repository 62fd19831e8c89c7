"""The gate: is a night worse than its baseline, beyond a tolerance and beyond chance?

Both are needed: over many questions a fall too small to matter is significant, over few a large one
may be chance. Pairs are the questions that both have, so questions added since say nothing.

Shapes: Q common questions.
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Literal

import numpy as np

from pipeline.config import GateConfig
from pipeline.core.stats import Mean, paired_difference
from pipeline.nightly import scores
from pipeline.nightly.scores import Scores
from pipeline.readers import InputError
from pipeline.report.resampled import plain

Verdict = Literal["passed", "no_baseline", "worse", "drifted", "not_comparable"]
PASSED: tuple[Verdict, ...] = ("passed", "no_baseline")
LOWER_IS_BETTER = frozenset({"wrong", "prompt_tokens"})


@dataclass(frozen=True)
class Compared:
    """A metric of one arm, baseline against night, over n common questions where both define it.

    `difference` is night minus baseline, in [low, high]; None where undefined.
    """

    metric: str
    baseline: float | None
    night: float | None
    difference: float | None
    low: float | None
    high: float | None
    n: int
    undefined: int
    tolerance: float | None
    worse: bool


@dataclass(frozen=True)
class Drifted:
    """What of a drift check fails the gate, a line each: flagged drift, and what went unchecked."""

    flagged: tuple[str, ...] = ()
    unchecked: tuple[str, ...] = ()


@dataclass(frozen=True)
class Judged:
    """A verdict and its reasons, one line each."""

    verdict: Verdict
    reasons: tuple[str, ...]
    compared: tuple[Compared, ...]

    @property
    def passed(self) -> bool:
        """Whether what depends on the night may go on."""
        return self.verdict in PASSED

    def plain(self) -> dict[str, Any]:
        """JSON-able."""
        return {"passed": self.passed, **asdict(self)}


def compare(
    baseline: Scores, night: Scores, *, arm: str, gate: GateConfig, seed: int, samples: int
) -> list[Compared]:
    """Every metric of an arm; InputError where one side has no such arm."""
    before, now = baseline.of_arm(arm), night.of_arm(arm)
    made = []
    for metric in scores.METRICS:
        before_Q, now_Q = scores.paired(before, now, metric)
        mean = paired_difference(
            now_Q.tolist(), before_Q.tolist(), seed=seed, samples=samples, level=gate.level
        )
        both_Q = ~np.isnan(now_Q - before_Q)
        sides = [float(side[both_Q].mean()) if mean.n else math.nan for side in (before_Q, now_Q)]
        made.append(_compared(metric, mean, sides, getattr(gate.tolerances, metric)))
    return made


def _compared(metric: str, mean: Mean, sides: Sequence[float], tolerance: float | None) -> Compared:
    worse = tolerance is not None and is_worse(
        metric, mean.value, mean.low, mean.high, tolerance=tolerance
    )
    return Compared(
        metric=metric,
        baseline=plain(sides[0]),
        night=plain(sides[1]),
        difference=plain(mean.value),
        low=plain(mean.low),
        high=plain(mean.high),
        n=mean.n,
        undefined=mean.undefined,
        tolerance=tolerance,
        worse=worse,
    )


def is_worse(metric: str, difference: float, low: float, high: float, *, tolerance: float) -> bool:
    """Whether a paired difference, night minus baseline, is a fall: more than the tolerance, and
    its interval does not reach 0. NaN is never one; a tolerance of 0 leaves significance alone."""
    if metric in LOWER_IS_BETTER:
        difference, high = -difference, -low
    return difference < -tolerance and high < 0


def judge(compared: Sequence[Compared], drift: Drifted, gate: GateConfig) -> Judged:
    """The verdict over what was compared, of several the gravest; drift where it counts."""
    worse = tuple(_fall(one) for one in compared if one.worse)
    unknown = (*_unknown(compared, gate), *drift.unchecked)
    found: dict[Verdict, tuple[str, ...]]
    found = {"worse": worse, "not_comparable": unknown, "drifted": drift.flagged}
    failed: list[Verdict] = [name for name, some in found.items() if some]
    reasons = tuple(reason for some in found.values() for reason in some)
    return Judged(failed[0] if failed else "passed", reasons, tuple(compared))


def without_baseline() -> Judged:
    """Of a night that nothing came before: it passes, and says so."""
    return Judged("no_baseline", ("no baseline to compare with",), ())


def judged(
    baseline: Scores | None,
    night: Scores,
    *,
    arm: str,
    drift: Drifted,
    gate: GateConfig,
    seed: int,
    samples: int,
) -> Judged:
    """The verdict on a night; where the baseline has no such arm, it is not comparable."""
    if baseline is None:
        return without_baseline()
    try:
        found = compare(baseline, night, arm=arm, gate=gate, seed=seed, samples=samples)
    except InputError as error:
        return Judged("not_comparable", (str(error),), ())
    return judge(found, drift, gate)


def _unknown(compared: Sequence[Compared], gate: GateConfig) -> Iterator[str]:
    for one in compared:
        if one.tolerance is not None and one.n < gate.min_questions:
            yield (
                f"{one.metric}: defined for {one.n} questions of both nights, "
                f"gate.min_questions is {gate.min_questions}"
            )


def _fall(one: Compared) -> str:
    how = ".1f" if one.metric == "prompt_tokens" else ".4f"
    return (
        f"{one.metric}: {one.baseline:{how}} -> {one.night:{how}}, difference "
        f"{one.difference:+{how}} [{one.low:+{how}}, {one.high:+{how}}] over {one.n} questions, "
        f"tolerance {one.tolerance:g}"
    )
