"""A blend: a logistic model over cheap signals of a candidate, and the file that stores it.

Shapes: F features, N candidates of one question. A feature is a signal as it is ("qlm"), its
z-score within the question ("qlm_z") or its distance from the question's best ("qlm_gap", 0 or
less): the pool's own scale is what makes signals of different questions comparable. Weights are
fitted for one corpus and do not transfer to another, so none are shipped.
"""

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from typing import Any, TypeAlias

from pipeline.core.discrimination import within_question_z

SIGNALS: tuple[str, ...] = (
    "retriever",
    "bi_encoder",
    "cross_encoder",
    "qlm",
    "qlm_gain",
    "yes_no",
    "answer_pmi",
    "answer_prior",
    "coverage",
    "ig",
    "neg_nu",
)
"""What a feature may start from; higher is better, as in the columns `score_<name>`."""

FEATURES: tuple[str, ...] = tuple(
    f"{signal}{suffix}" for signal in SIGNALS for suffix in ("", "_z", "_gap")
)
VERSION = 1

Scores: TypeAlias = Sequence[float | None]


@dataclass(frozen=True)
class Blend:
    """Log-odds = intercept + sum of weight * (feature - mean) / scale, one entry per feature.

    ValueError on an unknown or repeated feature, other lengths, a number that is not finite, or
    a scale that is not above 0.
    """

    features: tuple[str, ...]
    weights: tuple[float, ...]
    intercept: float
    means: tuple[float, ...]
    scales: tuple[float, ...]

    def __post_init__(self) -> None:
        check_features(self.features)
        for name in ("weights", "means", "scales"):
            values = getattr(self, name)
            if len(values) != len(self.features):
                raise ValueError(
                    f"blend: {len(values)} {name} for {len(self.features)} features; "
                    "allowed: one each"
                )
            _check_finite(name, values)
        _check_finite("intercept", (self.intercept,))
        if any(scale <= 0 for scale in self.scales):
            raise ValueError(f"blend: scale {min(self.scales)}; allowed: above 0")


def signals_of(names: Sequence[str]) -> tuple[str, ...]:
    """The signals that features are made of; ValueError as in check_features."""
    check_features(names)
    return tuple(dict.fromkeys(_parts(name)[0] for name in names))


def check_features(features: Sequence[str]) -> None:
    """ValueError on no feature, an unknown one or one that stands twice."""
    unknown = [name for name in features if name not in FEATURES]
    if unknown:
        raise ValueError(
            f"blend: unknown feature {unknown[0]!r}; allowed: {', '.join(SIGNALS)}, "
            "each as it is or with _z or _gap"
        )
    if not features or len(set(features)) < len(features):
        raise ValueError(f"blend: features {list(features)}; allowed: one or more, each once")


def features(signals: Mapping[str, Scores], names: Sequence[str]) -> list[tuple[float | None, ...]]:
    """Each candidate's F features, in the order of `names`; None where its signal was not measured.

    signals: one list per signal, aligned with the question's N candidates.

    z and gap take the measured candidates of the question alone. ValueError on a signal that is
    absent, lists of different lengths, or a number that is not finite.
    """
    absent = [signal for signal in signals_of(names) if signal not in signals]
    if absent:
        raise ValueError(
            f"blend: signal {absent[0]!r} is absent; present: {', '.join(signals) or 'none'}"
        )
    columns = [_feature(signals, name) for name in names]
    if len({len(column) for column in columns}) > 1:
        lengths = {name: len(column) for name, column in zip(names, columns, strict=True)}
        raise ValueError(f"blend: features of different lengths {lengths}; allowed: one length")
    return list(zip(*columns, strict=True))


def score(blend: Blend, signals: Mapping[str, Scores]) -> list[float | None]:
    """Log-odds of every candidate, higher is better; None where a feature is missing.

    0 is the model's even chance, so a threshold of 0 admits what is more likely good than not.
    The signals are as features() takes them, and so are the errors.
    """
    return [_log_odds(blend, values) for values in features(signals, blend.features)]


def to_json(blend: Blend) -> str:
    """The blend as indented JSON; from_json gives the very same blend back."""
    return json.dumps({"version": VERSION, **asdict(blend)}, indent=2, allow_nan=False) + "\n"


def from_json(text: str) -> Blend:
    """The blend in a JSON text; ValueError naming what is wrong and what is allowed."""
    try:
        value = json.loads(text)
    except json.JSONDecodeError as error:
        raise ValueError(f"blend: not JSON: {error.msg} at line {error.lineno}") from None
    known = ("version", *(field.name for field in fields(Blend)))
    if not isinstance(value, dict) or set(value) != set(known):
        found = ", ".join(sorted(value)) if isinstance(value, dict) else type(value).__name__
        raise ValueError(f"blend: found {found}; allowed: exactly {', '.join(known)}")
    if value["version"] != VERSION:
        raise ValueError(f"blend: version {value['version']!r}; allowed: {VERSION}")
    names = value["features"]
    if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
        raise ValueError(f"blend: features {names!r}; allowed: a list of names")
    return Blend(
        features=tuple(names),
        weights=_numbers("weights", value["weights"]),
        intercept=_numbers("intercept", [value["intercept"]])[0],
        means=_numbers("means", value["means"]),
        scales=_numbers("scales", value["scales"]),
    )


def _parts(name: str) -> tuple[str, str]:
    """A feature's signal and how it is taken: "", "z" or "gap"."""
    signal, _, how = name.rpartition("_")
    return (signal, how) if how in ("z", "gap") else (name, "")


def _feature(signals: Mapping[str, Scores], name: str) -> list[float | None]:
    signal, how = _parts(name)
    values = list(signals[signal])
    measured = [value for value in values if value is not None]
    _check_finite(f"signal {signal!r}", measured)
    if how == "z":
        return within_question_z(values)
    best = max(measured, default=0.0) if how == "gap" else 0.0
    return [None if value is None else value - best for value in values]


def _log_odds(blend: Blend, values: Sequence[float | None]) -> float | None:
    total = blend.intercept
    parts = zip(values, blend.weights, blend.means, blend.scales, strict=True)
    for value, weight, mean, scale in parts:
        if value is None:
            return None
        total += weight * (value - mean) / scale
    return total


def _numbers(name: str, values: Any) -> tuple[float, ...]:
    if not isinstance(values, list):
        raise ValueError(f"blend: {name} {values!r}; allowed: a list of numbers")
    for value in values:
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise ValueError(f"blend: {name} holds {value!r}; allowed: numbers")
    return tuple(float(value) for value in values)


def _check_finite(name: str, values: Sequence[float]) -> None:
    for value in values:
        if not math.isfinite(value):
            raise ValueError(f"blend: {name} holds {value}; allowed: finite numbers")
