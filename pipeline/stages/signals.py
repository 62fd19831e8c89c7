"""Signals: for every selector, one number per candidate of a row; higher is better.

N candidates, T steps of a rollout. None is a signal that was not measured: such a candidate
goes last and is never admitted.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from pipeline.config import PolicyOptions
from pipeline.core import blend as blends
from pipeline.core.blend import Blend
from pipeline.core.uncertainty import TRACE_KS, information_gain, normalised_uncertainty

Signal = list[float | None]


def columns(selector: str) -> tuple[str, ...]:
    """The row's columns that a selector reads beside the candidates; a blend names its own."""
    special: dict[str, tuple[str, ...]] = {
        "retriever": (),
        "blend": (),
        "ig": ("probes", "gains"),
        "set_aware": ("probes", "sets"),
    }
    return special.get(selector, (f"score_{selector}",))


def of_row(row: Mapping[str, Any], policy: PolicyOptions, blend: Blend | None) -> Signal:
    """The signal of the policy's selector, before duplicates are penalised."""
    if policy.selector == "ig" and (policy.ig_top_k or policy.ig_max_tokens):
        gains = _replayed(row["probes"], policy.ig_top_k, policy.ig_max_tokens)
    elif policy.selector == "blend":
        if blend is None:
            raise ValueError(f"blend {policy.blend!r} was not read")
        return blended(row, blend)
    else:
        gains = plain(row, policy.selector)
    if policy.selector == "ig" and policy.refusal_nu0 is not None and row["refused"]:
        lift = policy.refusal_nu0 - row["probes"]["nu0"]
        return [None if gain is None else gain + lift for gain in gains]
    return gains


def plain(row: Mapping[str, Any], selector: str) -> Signal:
    """The signal of a selector that has a column of its own, or of retrieval order.

    set_aware: a passage's gain over those of the rounds before its own, None where it had none.
    """
    if selector == "retriever":
        return [-float(position) for position in range(len(row["candidates"]))]
    if selector == "ig":
        return list(row["gains"])
    if selector == "set_aware":
        gains = dict(zip(row["sets"]["positions"], row["sets"]["gains"], strict=True))
        return [gains.get(position) for position in range(len(row["candidates"]))]
    return list(row[f"score_{selector}"])


def blended(row: Mapping[str, Any], blend: Blend) -> Signal:
    """A blend's log-odds of every candidate."""
    signals: dict[str, Sequence[float | None]] = {}
    for name in blends.signals_of(blend.features):
        if name == "retriever":  # the score, not the rank: a blend weighs how far apart they are
            signals[name] = [candidate["score"] for candidate in row["candidates"]]
        elif name == "neg_nu":
            signals[name] = [None if nu is None else -nu for nu in row["probes"]["nu"]]
        else:
            signals[name] = plain(row, name)
    return blends.score(blend, signals)


def _replayed(probes: Mapping[str, Any], top_k: int | None, max_tokens: int | None) -> Signal:
    """IG under a smaller K or MT, from the probes' traces or, for K as probed, from u.

    The probe's own arithmetic, rounded to float32 where it is stored, so (K, MT) as probed gives
    `gains`.
    """
    if top_k is None:
        rollouts = probes["u"]
    else:
        rollouts = [trace[TRACE_KS.index(top_k)] for trace in probes["trace"]]
    nus = [_float32(normalised_uncertainty(np.asarray(u_T[:max_tokens]))) for u_T in rollouts]
    gains = information_gain(nus[0], nus[1:] or [None] * len(probes["nu"]))
    return [None if gain is None else _float32(gain) for gain in gains]


def _float32(value: float) -> float:
    return float(np.float32(value))
