"""Whether a run still looks like the one its threshold was calibrated on.

Drift is flagged when it is both large and beyond chance: a PSI of 0.25 between two samples of 50
is what luck alone gives. Candidates of one question are not independent, so chance is judged by
the number of questions on each side, which is cautious.

Shapes: R reference values, C current values, B bins.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import stats

BINS = 10
_SMOOTHING = 0.5  # added to every bin's count on both sides


@dataclass(frozen=True)
class Sample:
    """What a run measured. nu, ig and steps are flat over its questions, without what was not
    measured; pass_rates is the share of each question's candidates whose IG reaches Tp.

    steps: T, the tokens of every rollout, those without evidence included.
    """

    nu0: NDArray[np.float64]
    nu: NDArray[np.float64]
    ig: NDArray[np.float64]
    steps: NDArray[np.float64]
    pass_rates: NDArray[np.float64]
    questions: int


@dataclass(frozen=True)
class Limits:
    """Drift above these is flagged when it is beyond chance at level alpha."""

    psi: float = 0.25
    ks: float = 0.15
    pass_rate: float = 0.1
    alpha: float = 0.01


@dataclass(frozen=True)
class Drift:
    """One measure of one signal: `value` against `limit`; chance is the p-value of no drift."""

    signal: str
    measure: str
    reference: float
    current: float
    value: float
    limit: float
    chance: float
    exceeded: bool


def drift(reference: Sample, current: Sample, limits: Limits) -> list[Drift]:
    """PSI and KS of NU0, NU, IG and T, and the change of the pass rate.

    `reference` and `current` of an entry are the means of the two sides. ValueError on a signal
    that one side did not measure.
    """
    units = (reference.questions, current.questions)
    found = []
    for name in ("nu0", "nu", "ig", "steps"):
        before, now = getattr(reference, name), getattr(current, name)
        for side, values in (("reference", before), ("current", now)):
            if values.size == 0:
                raise ValueError(f"{name} was measured nowhere in the {side} run")
        means = (float(before.mean()), float(now.mean()))
        value, bins = psi(before, now), psi_bins(before)
        chance = psi_chance(value, bins=bins, questions=units)
        found.append(_judged(name, "psi", means, value, limits.psi, chance, limits.alpha))
        value = ks(before, now)
        chance = ks_chance(value, questions=units)
        found.append(_judged(name, "ks", means, value, limits.ks, chance, limits.alpha))
    rates = (reference.pass_rates, current.pass_rates)
    means = (float(rates[0].mean()), float(rates[1].mean()))
    chance = _mean_chance(*rates)
    value = abs(means[1] - means[0])
    found.append(
        _judged("pass_rate", "change", means, value, limits.pass_rate, chance, limits.alpha)
    )
    return found


def psi(reference_R: ArrayLike, current_C: ArrayLike, *, bins: int = BINS) -> float:
    """Population stability index: sum of (p - q) * ln(p / q) over the bins, 0 or more.

    Bins are cut at the reference's quantiles (values of the reference itself). A value that fills
    more than one bin, such as T at its limit, gets a bin of its own, so a discrete signal may
    have more bins or fewer. Shares are (count + 0.5) / (n + 0.5 * B), which keeps empty bins
    finite. ValueError on NaN, an empty side, or fewer than 2 bins.
    """
    reference, current = _values(reference_R), _values(current_C)
    edges = _edges(reference, bins)
    p_B, q_B = _shares(reference, edges), _shares(current, edges)
    return float(((p_B - q_B) * np.log(p_B / q_B)).sum())


def psi_bins(reference_R: ArrayLike, *, bins: int = BINS) -> int:
    """How many bins psi() makes of this reference."""
    return int(_edges(_values(reference_R), bins).size) + 1


def psi_chance(value: float, *, bins: int, questions: tuple[int, int]) -> float:
    """Chance of a PSI as large without drift: PSI / (1/n + 1/m) is chi-squared with B - 1."""
    spread = sum(1 / n for n in questions)
    return float(stats.chi2.sf(value / spread, bins - 1))


def ks(reference_R: ArrayLike, current_C: ArrayLike) -> float:
    """Kolmogorov-Smirnov statistic in [0, 1]: the largest gap of the two distributions."""
    reference, current = _values(reference_R), _values(current_C)
    return float(stats.ks_2samp(reference, current, method="asymp").statistic)


def ks_chance(value: float, *, questions: tuple[int, int]) -> float:
    """Chance of a KS statistic as large without drift, by its limiting distribution."""
    n, m = questions
    return float(stats.kstwobign.sf(value * math.sqrt(n * m / (n + m))))


def exceeded(found: Sequence[Drift]) -> list[Drift]:
    """The entries that were flagged."""
    return [entry for entry in found if entry.exceeded]


def _judged(
    signal: str,
    measure: str,
    means: tuple[float, float],
    value: float,
    limit: float,
    chance: float,
    alpha: float,
) -> Drift:
    over = value > limit and chance < alpha
    return Drift(signal, measure, means[0], means[1], value, limit, chance, over)


def _edges(reference: NDArray[np.float64], bins: int) -> NDArray[np.float64]:
    """Rising upper ends of all bins but the last; a bin holds (its lower end, its upper end]."""
    if bins < 2:
        raise ValueError(f"bins = {bins}; allowed: 2 or more")
    cuts = np.quantile(reference, np.arange(1, bins) / bins, method="inverted_cdf")
    values, counts = np.unique(cuts, return_counts=True)
    return np.unique(np.concatenate([values, np.nextafter(values[counts > 1], -np.inf)]))


def _shares(values: NDArray[np.float64], edges: NDArray[np.float64]) -> NDArray[np.float64]:
    counts_B = np.bincount(np.searchsorted(edges, values), minlength=edges.size + 1)
    smoothed_B = counts_B.astype(np.float64) + _SMOOTHING
    shares_B: NDArray[np.float64] = smoothed_B / smoothed_B.sum()
    return shares_B


def _mean_chance(before: NDArray[np.float64], now: NDArray[np.float64]) -> float:
    """Chance of a difference of means as large without drift (Welch, normal limit)."""
    if before.size < 2 or now.size < 2:
        return 1.0
    error = math.sqrt(before.var(ddof=1) / before.size + now.var(ddof=1) / now.size)
    difference = abs(float(now.mean() - before.mean()))
    if error == 0:
        return float(difference == 0)
    return float(2 * stats.norm.sf(difference / error))


def _values(values: ArrayLike) -> NDArray[np.float64]:
    array = np.asarray(values, dtype=np.float64)
    if array.size == 0 or np.isnan(array).any():
        raise ValueError(f"{array.size} values, NaN among them or none; allowed: 1 or more numbers")
    return array
