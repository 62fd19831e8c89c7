"""What a probe asks of the entropy processor, and how its numbers travel through vLLM's own output.

A vLLM engine returns the sampled token's value and the largest values of a row. The processor
empties a probe's row but for C entries: the token's own holds u for K as it is, the others hold x,
the u of each smaller K and at last the top-1/top-2 margin, as -(1 + x) 4^c, c = 0, 1, ... A u lies
in [0, 1], so -(1 + x) 4^c lies in [-2 4^c, -4^c]: each is below the one before, whatever their
values, and the order of the returned list says which is which. The scale is a power of two and
costs nothing; 1 + x in float32 costs 6e-8 of u. The margin, which has no bound, is last; where the
runner-up has probability 0 it is infinite.

T steps, C entries, J values of K, the probe's own first.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from pipeline.core.uncertainty import TRACE_KS
from pipeline.engines.base import Floats, Refusal

KEY = "igp"
"""`SamplingParams.extra_args` key of a probe request."""
SCALE = 4.0

# Added to a limit, so that another order of summation never stops earlier than the pipeline's.
_SLACK = 1e-9


@dataclass(frozen=True)
class ProbeRequest:
    """A probe's settings: K with the smaller ones of its trace, and where it may end early.

    After a step at which its u sum to more than `limit`, `stop_id` is the token of that step.
    """

    ks: tuple[int, ...]
    limit: float = math.inf
    stop_id: int = 0

    @property
    def entries(self) -> int:
        """C, and the `logprobs` of the request."""
        return len(self.ks) + 1

    def extra_args(self) -> dict[str, Any]:
        """As `SamplingParams.extra_args`; `of` reads it back."""
        stop = {} if math.isinf(self.limit) else {"limit": self.limit, "stop_id": self.stop_id}
        return {KEY: {"ks": list(self.ks), **stop}}

    @classmethod
    def of(cls, extra_args: Mapping[str, Any] | None) -> "ProbeRequest | None":
        """The probe that a request's extra_args ask for; None for any other request."""
        asked = (extra_args or {}).get(KEY)
        return None if asked is None else cls(**{**asked, "ks": tuple(asked["ks"])})


def request(k: int, *, trace: bool, u_limit: float, stop_id: int) -> ProbeRequest:
    """A probe at K, with every smaller K of the trace where there is one."""
    smaller = tuple(other for other in TRACE_KS if other < k) if trace else ()
    return ProbeRequest((k, *smaller), u_limit + _SLACK, stop_id)


def read(values: Floats, ks: Sequence[int]) -> tuple[dict[int, Floats], Floats]:
    """(u_T by K, margin_T) from a probe's (T, 1 + C) table: the sampled value, the C largest.

    Refusal where the model's logits were not finite; ValueError where no processor wrote.
    """
    carried_TC = values[:, 1:]
    if np.isnan(values).any():
        raise Refusal("the model's logits are not finite")
    u_T = values[:, 0]
    if (u_T < 0).any() or (u_T > 1).any():
        raise ValueError(f"u outside [0, 1]: {u_T.tolist()}: is the entropy processor installed?")
    scale_C = np.array([SCALE**c for c in range(len(ks))], np.float32)
    others_TC = -carried_TC[:, 1:] / scale_C - 1
    by_k = dict(zip(ks, (u_T, *others_TC[:, :-1].T), strict=True))
    return by_k, others_TC[:, -1]


def trace_of(by_k: Mapping[int, Floats]) -> Floats:
    """u_t for every K of TRACE_KS, (J, T); NaN where K is above the probe's."""
    unmeasured_T = np.full_like(next(iter(by_k.values())), np.nan)
    return np.stack([by_k.get(k, unmeasured_T) for k in TRACE_KS])
