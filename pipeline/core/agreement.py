"""How far two passes of the same rollouts agree: uncertainties, texts, ranks and admissions.

A greedy rollout is a function of its prompt in exact arithmetic alone. In floating point the
kernels that serve one batch sum in another order than those of the next; near a tie that turns
one token, and then the rest of the rollout.

Lists of (N+1): entry 0 is the rollout without evidence, entry 1 + i that with candidate i.
None is what was not measured, or is a bound and no value: it is left out and counted.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from pipeline.core.admission import admit, order


@dataclass(frozen=True)
class Said:
    """What one rollout generated. token_ids: None where only the text was kept."""

    steps: int
    text: str
    token_ids: tuple[int, ...] | None = None

    def differs(self, other: "Said") -> bool:
        """By token ids where both are known, by the text and T elsewhere."""
        if self.token_ids is not None and other.token_ids is not None:
            return self.token_ids != other.token_ids
        return (self.steps, self.text) != (other.steps, other.text)


@dataclass(frozen=True)
class Probed:
    """One question as one pass measured it; lists of (N+1), None in both where in either."""

    nu: tuple[float | None, ...]
    said: tuple[Said | None, ...]

    @property
    def gains(self) -> list[float | None]:
        """IG by position in float32, as runs store it; None without one of its two NU."""
        nu0 = self.nu[0]
        return [
            None if nu0 is None or nu is None else float(np.float32(nu0 - nu)) for nu in self.nu[1:]
        ]


@dataclass(frozen=True)
class Cut:
    """One way to admit: IG >= threshold, then the first top_m passages."""

    threshold: float
    top_m: int


@dataclass(frozen=True)
class Changed:
    """What a cut decides otherwise. candidates: admitted by one pass and not by the other, before
    top_m; questions: whose first top_m passages are others, or in another order."""

    cut: Cut
    candidates: int
    questions: int


@dataclass(frozen=True)
class Spread:
    """Absolute differences: their mean, quantiles and maximum; NaN where there are none."""

    count: int
    mean: float
    median: float
    p90: float
    p99: float
    max: float


@dataclass(frozen=True)
class Agreement:
    """Two passes over the same questions, compared.

    rollouts: measured by both; incomparable: by one or none. texts, steps: rollouts that say
    something else, and that take another number of steps. nu_alike: largest |dNU| of the rollouts
    that say the same. pairs: candidates of one question, both with an IG in both passes;
    flips: pairs whose order by IG turned round, ties by position; flipped: questions with a flip.
    """

    questions: int
    rollouts: int
    incomparable: int
    texts: int
    steps: int
    nu: Spread
    nu_alike: float
    ig: Spread
    pairs: int
    flips: int
    flipped: int
    cuts: tuple[Changed, ...]

    @property
    def admissions(self) -> int:
        """The most candidates whose admission changed at any threshold; 0 without cuts."""
        return max((changed.candidates for changed in self.cuts), default=0)


def compare(before: Sequence[Probed], after: Sequence[Probed], cuts: Sequence[Cut]) -> Agreement:
    """Two passes over the same questions in the same order.

    ValueError where they hold other numbers of questions or of rollouts.
    """
    if len(before) != len(after):
        raise ValueError(f"passes over {len(before)} and {len(after)} questions")
    for i, (one, other) in enumerate(zip(before, after, strict=True)):
        sizes = {len(one.nu), len(other.nu), len(one.said), len(other.said)}
        if len(sizes) != 1:
            raise ValueError(f"question {i}: lists of {sorted(sizes)} rollouts; allowed: one size")
    pairs = list(zip(before, after, strict=True))
    both = [entry for one, other in pairs for entry in _rollouts(one, other)]
    gains = [_common(one.gains, other.gains) for one, other in pairs]
    flips = [_flips(one, other) for one, other in gains]
    compared = [sum(gain is not None for gain in one) for one, _ in gains]
    return Agreement(
        questions=len(pairs),
        rollouts=len(both),
        incomparable=sum(len(one.nu) for one in before) - len(both),
        texts=sum(differs for _, differs, _ in both),
        steps=sum(longer for _, _, longer in both),
        nu=spread([change for change, _, _ in both]),
        nu_alike=spread([change for change, differs, _ in both if not differs]).max,
        ig=spread(
            [
                abs(a - b)
                for one, other in gains
                for a, b in zip(one, other, strict=True)
                if a is not None and b is not None
            ]
        ),
        pairs=sum(n * (n - 1) // 2 for n in compared),
        flips=sum(flips),
        flipped=sum(flip > 0 for flip in flips),
        cuts=tuple(_changed(gains, cut) for cut in cuts),
    )


def spread(differences: Sequence[float]) -> Spread:
    """The differences' mean, median, 90% and 99% quantiles (linear between values), maximum."""
    if not differences:
        return Spread(0, *[math.nan] * 5)
    values = np.asarray(differences, dtype=np.float64)
    median, p90, p99 = (float(x) for x in np.quantile(values, (0.5, 0.9, 0.99)))
    return Spread(values.size, float(values.mean()), median, p90, p99, float(values.max()))


Gains = list[float | None]


def _rollouts(one: Probed, other: Probed) -> list[tuple[float, bool, bool]]:
    """(|dNU|, whether the text differs, whether T does) of the rollouts measured in both."""
    return [
        (abs(a - b), said.differs(then), said.steps != then.steps)
        for a, b, said, then in zip(one.nu, other.nu, one.said, other.said, strict=True)
        if a is not None and b is not None and said is not None and then is not None
    ]


def _common(one: Gains, other: Gains) -> tuple[Gains, Gains]:
    """Both with None wherever either has it."""
    missing = [a is None or b is None for a, b in zip(one, other, strict=True)]
    return (
        [None if absent else gain for gain, absent in zip(one, missing, strict=True)],
        [None if absent else gain for gain, absent in zip(other, missing, strict=True)],
    )


def _flips(one: Gains, other: Gains) -> int:
    """Pairs that stand in another order by `other`: the inversions between the two orders."""
    rank = {position: rank for rank, position in enumerate(order(other))}
    ranks = [rank[position] for position in order(one) if one[position] is not None]
    return sum(later < earlier for i, earlier in enumerate(ranks) for later in ranks[i + 1 :])


def _changed(gains: Sequence[tuple[Gains, Gains]], cut: Cut) -> Changed:
    candidates = questions = 0
    for one, other in gains:
        before, now = (admit(side, threshold=cut.threshold) for side in (one, other))
        candidates += len(set(before) ^ set(now))
        questions += before[: cut.top_m] != now[: cut.top_m]
    return Changed(cut, candidates, questions)
