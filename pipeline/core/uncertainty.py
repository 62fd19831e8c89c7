"""Top-K uncertainty of greedy rollouts and the information gain of passages.

Shapes: T steps of one rollout, K entries of one step, J values of K', N candidates.
K' <= K and MT' <= MT are the smaller settings that one probe at (K, MT) also answers.
Source: "Less is More for RAG", eq. 2-7; the bounds use only u >= 0 and T <= MT.
"""

import math
from collections.abc import Sequence
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

Floats: TypeAlias = NDArray[np.floating]

TRACE_KS: tuple[int, ...] = (2, 4, 8, 16, 32, 64, 128)

# Above what float32 storage of NU and IG and another order of summation can move a gain.
_ROUNDING = 1e-6


def step_uncertainty(logits_TK: Floats, *, k: int) -> NDArray[np.float64]:
    """u_t in [0, 1] of every step (eq. 2-4), shape (T,): entropy of the k largest over log k.

    A row holds at least k raw logits or log-probabilities, in any order; what is beyond
    the k largest is cut. An entry of -inf has probability 0. ValueError on fewer than k
    columns, k < 2, NaN, +inf, or a row without a finite entry.
    """
    rows_TK = _checked_rows(logits_TK)
    columns = rows_TK.shape[1]
    if k > columns:
        raise ValueError(f"k = {k} needs {k} entries per step, got {columns}")
    u_T: NDArray[np.float64] = _uncertainty(rows_TK, (k,))[0]
    return u_T


def trace(logits_TK: Floats, *, ks: Sequence[int] = TRACE_KS) -> NDArray[np.float32]:
    """u_t for every K' of ks, shape (J, T), aligned with ks; NaN where K' exceeds the columns.

    A top-K' set is a prefix of the sorted top K, so one sorted list serves every K'.
    Errors as in step_uncertainty, except that too few columns make a row of NaN.
    """
    rows_TK = _checked_rows(logits_TK)
    steps, columns = rows_TK.shape
    available = [j for j, k in enumerate(ks) if k <= columns]
    trace_JT = np.full((len(ks), steps), np.nan, dtype=np.float32)
    if available:
        trace_JT[available] = _uncertainty(rows_TK, [ks[j] for j in available])
    return trace_JT


def normalised_uncertainty(u_T: Floats) -> float:
    """NU in [0, 1] of one rollout (eq. 5-6): the mean of u over its steps, EOS step included.

    ValueError without steps (a failed probe is null, never 0) and on u outside [0, 1], which
    is how an engine that returned log-probabilities in place of u shows itself.
    """
    steps_T = np.asarray(u_T, dtype=np.float64)
    if steps_T.ndim != 1 or steps_T.size == 0:
        raise ValueError(f"u has shape {steps_T.shape}; allowed: (T,) with T >= 1")
    if not 0 <= steps_T.min() <= steps_T.max() <= 1:  # a NaN fails, too
        outside = ~((steps_T >= 0) & (steps_T <= 1))
        raise ValueError(f"u = {steps_T[outside][0]}; allowed: 0 to 1")
    return float(steps_T.sum()) / steps_T.size


def nu_grid(trace_JT: Floats) -> NDArray[np.float64]:
    """NU for every (K', MT'), shape (J, T): entry [j, m - 1] is NU under K'_j and MT' = m.

    Greedy rollouts are prefix-closed, so no second probe is needed; a rollout that ended at
    T keeps its last column for every MT' > T. NaN rows stay NaN. ValueError when T = 0.
    """
    if trace_JT.ndim != 2 or trace_JT.shape[1] == 0:
        raise ValueError(f"trace has shape {trace_JT.shape}; allowed: (J, T) with T >= 1")
    steps = trace_JT.shape[1]
    sums_JT: NDArray[np.float64] = np.cumsum(trace_JT, axis=1, dtype=np.float64)
    return sums_JT / np.arange(1, steps + 1)


def information_gain(nu0: float, nu_N: Sequence[float | None]) -> list[float | None]:
    """IG = NU(q) - NU(q|d) in [-1, 1] of every candidate (eq. 7); None (not measured) stays None.

    ValueError on NaN: an unmeasured NU is None, with its reason kept elsewhere.
    """
    for nu in (nu0, *nu_N):
        if nu is not None:
            _refuse_nan("NU", nu)
    return [None if nu is None else nu0 - nu for nu in nu_N]


def lower_bound(u_sum: float, *, max_tokens: int) -> float:
    """S_t / MT <= NU(q|d), whatever follows step t: later u are >= 0 and T is at most MT.

    u_sum is S_t, the sum of u over the steps taken so far, in [0, max_tokens].
    """
    if max_tokens < 1:
        raise ValueError(f"max_tokens = {max_tokens}; allowed: 1 or more")
    if not 0 <= u_sum <= max_tokens:
        raise ValueError(f"u_sum = {u_sum}; allowed: 0 to max_tokens = {max_tokens}")
    return u_sum / max_tokens


def certainly_pruned(nu0: float, u_sum: float, *, max_tokens: int, threshold: float) -> bool:
    """Whether nu0 - S_t / MT < Tp: no continuation can lift the passage's gain to Tp.

    The rollout may end here with no change in any admission under this threshold or a higher
    one. A margin of 1e-6 keeps that true when NU and IG pass through float32; it can only cost
    extra steps.
    """
    lower_bound(u_sum, max_tokens=max_tokens)
    return u_sum > pruning_limit(nu0, max_tokens=max_tokens, threshold=threshold)


def pruning_limit(nu0: float, *, max_tokens: int, threshold: float) -> float:
    """The largest S_t at which the passage is not yet certainly_pruned(): MT (nu0 - Tp), and the
    margin. Below 0 where NU(q) itself cannot reach Tp; inf without a threshold."""
    _refuse_nan("nu0", nu0)
    _refuse_nan("threshold", threshold)
    return max_tokens * (nu0 - threshold + _ROUNDING)


def first_step_over(u_T: Floats, *, limit: float) -> int | None:
    """The number of steps, from 1, after which S_t first exceeds the limit; None where none does.

    Summed in float64 in the order of the steps, as the engines do that end a rollout there.
    """
    if limit == math.inf:
        return None
    over_T = np.flatnonzero(np.cumsum(u_T, dtype=np.float64) > limit)
    return int(over_T[0]) + 1 if over_T.size else None


def nothing_can_be_admitted(nu0: float, *, threshold: float) -> bool:
    """Whether NU(q) < Tp: NU(q|d) >= 0, so IG <= NU(q) and the N conditional probes are free.

    Exact in floating point, because a subtraction rounds monotonically.
    """
    _refuse_nan("nu0", nu0)
    _refuse_nan("threshold", threshold)
    return nu0 < threshold


def _checked_rows(logits_TK: Floats) -> NDArray[np.float64]:
    rows_TK = np.asarray(logits_TK, dtype=np.float64)
    if rows_TK.ndim != 2:
        raise ValueError(f"logits have shape {rows_TK.shape}; allowed: (T, K)")
    largest_T = rows_TK.max(axis=1, initial=-np.inf)  # NaN in a row makes its maximum NaN
    refused_T = np.flatnonzero(~np.isfinite(largest_T))
    if refused_T.size:
        t = int(refused_T[0])
        raise ValueError(
            f"largest logit of step position {t} is {largest_T[t]}; "
            "allowed: a finite one, with -inf as the only other non-finite entry"
        )
    return rows_TK


def _uncertainty(rows_TK: NDArray[np.float64], ks: Sequence[int]) -> NDArray[np.float64]:
    """u for every K' of ks, shape (J, T), by cumulative sums along the sorted entries.

    With the largest entry shifted to 0, H = log(sum e^z) - (sum z e^z) / (sum e^z): z <= 0 and
    sum e^z >= 1 make both terms non-negative, so nothing cancels.
    """
    if min(ks) < 2:
        raise ValueError(f"k = {min(ks)}; allowed: 2 or more")
    widest = max(ks)
    top_TK = np.sort(np.partition(rows_TK, -widest, axis=1)[:, -widest:], axis=1)[:, ::-1]
    z_TK = top_TK - top_TK[:, :1]
    weight_TK = np.exp(z_TK)
    moment_TK = np.multiply(weight_TK, z_TK, out=np.zeros_like(z_TK), where=weight_TK > 0)
    mass_TK = np.cumsum(weight_TK, axis=1)
    entropy_TK = np.log(mass_TK) - np.cumsum(moment_TK, axis=1) / mass_TK
    k_J = np.asarray(ks)
    u_JT: NDArray[np.float64] = (entropy_TK[:, k_J - 1] / np.log(k_J)).T
    return u_JT.clip(0.0, 1.0)


def _refuse_nan(name: str, value: float) -> None:
    if math.isnan(value):
        raise ValueError(f"{name} = {value}; allowed: a number")
