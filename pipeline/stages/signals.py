"""Signals: for every selector, one number per candidate of a row; higher is better. And the gates
that decide from them, or from NU(q), whether another selector orders the row.

N candidates, T steps of a rollout. None is a signal that was not measured: such a candidate
goes last and is never admitted.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from pipeline.config import PolicyOptions, SelectionConfig
from pipeline.config.listwise import LISTWISE
from pipeline.core import blend as blends
from pipeline.core import gates
from pipeline.core.blend import Blend
from pipeline.core.uncertainty import TRACE_KS, information_gain, normalised_uncertainty

Signal = list[float | None]


def columns(selector: str) -> tuple[str, ...]:
    """The row's columns that a selector reads beside the candidates; a blend names its own."""
    special: dict[str, tuple[str, ...]] = {
        "retriever": (),
        "blend": (),
        "clues": (),
        "ig": ("probes", "gains"),
        "set_aware": ("probes", "sets"),
    }
    special |= {selector: (f"ranking_{selector}",) for selector in LISTWISE}
    return special.get(selector, (f"score_{selector}",))


def of_row(row: Mapping[str, Any], policy: PolicyOptions, blend: Blend | None) -> Signal:
    """The signal of the policy's selector, before duplicates are penalised."""
    if policy.selector == "blend":
        if blend is None:
            raise ValueError(f"blend {policy.blend!r} was not read")
        return blended(row, blend)
    if policy.selector != "ig" or not policy.other_nu0:
        return plain(row, policy.selector)
    gains = _replayed_gains(row["probes"], policy) if _replays(policy) else list(row["gains"])
    lift = nu0(row, policy) - _measured_nu0(row["probes"], policy)
    return [None if gain is None else gain + lift for gain in gains] if lift else gains


def nu0(row: Mapping[str, Any], policy: PolicyOptions) -> float:
    """NU(q) as the policy takes it, in gains and gates alike.

    Under its own K and MT, and refusal_nu0 where the rollout without evidence is a refusal.
    """
    if policy.refusal_nu0 is not None and row["refused"]:
        return policy.refusal_nu0
    return _measured_nu0(row["probes"], policy)


def is_certain(row: Mapping[str, Any], policy: SelectionConfig) -> bool:
    """Whether NU(q) is below the policy's limit, so that the fallback orders."""
    limit = policy.nu0_limit
    return limit is not None and gates.certainty_hands_over(nu0(row, policy), limit=limit)


def hands_over(row: Mapping[str, Any], policy: SelectionConfig, signal: Signal) -> bool:
    """Whether another gate of the policy hands over to the fallback."""
    if policy.on_refusal == "fallback" and row["refused"]:
        return True
    if policy.pass_rate is None:
        return False
    low, high = policy.pass_rate
    return gates.pass_rate_hands_over(signal, threshold=policy.threshold, low=low, high=high)


def plain(row: Mapping[str, Any], selector: str) -> Signal:
    """The signal of a selector that has a column of its own, or of retrieval order.

    set_aware: a passage's gain over those of the rounds before its own, None where it had none.
    adarank, listwise: minus the place in the model's list, None where the model left it out.
    """
    if selector == "retriever":
        return _by_rank(row["candidates"])
    if selector == "ig":
        return list(row["gains"])
    if selector == "set_aware":
        gains = dict(zip(row["sets"]["positions"], row["sets"]["gains"], strict=True))
        return [gains.get(position) for position in range(len(row["candidates"]))]
    if selector in LISTWISE:
        places = {p: place for place, p in enumerate(row[f"ranking_{selector}"]["positions"])}
        named = [places.get(position) for position in range(len(row["candidates"]))]
        return [None if place is None else -float(place) for place in named]
    return list(row[f"score_{selector}"])


def retriever_scores(candidates: Sequence[Mapping[str, Any]]) -> Signal:
    """The retriever as a feature: the score and not the rank, for a blend weighs how far apart
    passages are. Minus the position where no candidate of the question has a score."""
    scores = [candidate["score"] for candidate in candidates]
    return _by_rank(candidates) if all(score is None for score in scores) else scores


def blended(row: Mapping[str, Any], blend: Blend) -> Signal:
    """A blend's log-odds of every candidate."""
    signals: dict[str, Sequence[float | None]] = {}
    for name in blends.signals_of(blend.features):
        if name == "retriever":
            signals[name] = retriever_scores(row["candidates"])
        elif name == "neg_nu":
            signals[name] = [None if nu is None else -nu for nu in row["probes"]["nu"]]
        else:
            signals[name] = plain(row, name)
    return blends.score(blend, signals)


def _by_rank(candidates: Sequence[Mapping[str, Any]]) -> Signal:
    return [-float(position) for position in range(len(candidates))]


def _replays(policy: PolicyOptions) -> bool:
    return bool(policy.ig_top_k or policy.ig_max_tokens)


def _measured_nu0(probes: Mapping[str, Any], policy: PolicyOptions) -> float:
    return _replayed(probes, policy, 0) if _replays(policy) else float(probes["nu0"])


def _replayed_gains(probes: Mapping[str, Any], policy: PolicyOptions) -> Signal:
    """IG under a smaller K or MT; (K, MT) as probed gives `gains`."""
    nus = [
        None if nu is None else _replayed(probes, policy, 1 + position)
        for position, nu in enumerate(probes["nu"])
    ]
    gains = information_gain(_measured_nu0(probes, policy), nus)
    return [None if gain is None else _float32(gain) for gain in gains]


def _replayed(probes: Mapping[str, Any], policy: PolicyOptions, rollout: int) -> float:
    """NU of a rollout under the policy's K and MT, from its trace or, for K as probed, from its u.

    The probe's own arithmetic, rounded to float32 where it is stored.
    """
    if policy.ig_top_k is None:
        u_T = probes["u"][rollout]
    else:
        u_T = probes["trace"][rollout][TRACE_KS.index(policy.ig_top_k)]
    return _float32(normalised_uncertainty(np.asarray(u_T[: policy.ig_max_tokens])))


def _float32(value: float) -> float:
    return float(np.float32(value))
