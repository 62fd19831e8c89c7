"""The per-step uncertainty u_t, computed inside vLLM and returned in place of the token's logit.

The processor rewrites the row of a probe request so that its argmax stays where it was and the
value there is u_t >= 0; on a few other ids it leaves what else is asked for, in the code of
engines/probe_channel.py, and nothing anywhere else. Greedy decoding takes the same token; with
`logprobs_mode="processed_logits"` the engine returns these values as "logprobs". Rows of requests
without `extra_args["igp"]` are not touched. A value reaches the caller exactly when the engine
emits its token, so preemption, over-run steps of asynchronous scheduling, and partial prefills
need no care; only a rollout that may end early keeps numbers from step to step (EarlyStop).

Measured on a CPU with float32 logits of a random model over 49152 tokens, V1: u differs from that
of 128 returned log-probabilities by at most 2.2e-7 at every K of a trace, and rollouts end at the
step that the bound predicts, prefills in parts included. Trade, of one thread: 0.11 ms a row and
step, of which 0.06 find the top K (torch.topk over the whole row: 0.10) and 0.02 the token (argmax:
0.06); a trace and a limit come to less. In return the CPU outside the engine is a fraction of what
128 returned log-probabilities cost.

R probe rows of a batch of B, V vocabulary, N blocks of L ids, P ids left, K top entries, C entries
of the channel, J values of K, the probe's own first. vLLM has two model runners with two processor
interfaces; `EntropyProbe` serves V1, `EntropyProbeV2` serves V2 (the default on a GPU with Triton).
"""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from vllm import SamplingParams
from vllm.v1.sample.logits_processor import BatchUpdate, MoveDirectionality
from vllm.v1.sample.logits_processor import LogitsProcessor as V1LogitsProcessor
from vllm.v1.worker.gpu.sample.logits_processor import LogitsProcessor as V2LogitsProcessor

from pipeline.engines.probe_channel import SCALE, ProbeRequest

if TYPE_CHECKING:
    from vllm.config import VllmConfig
    from vllm.v1.worker.gpu.sample.logits_processor import LogitsContext, LogitsProcRequestState

Tensor = torch.Tensor
_BLOCK = 32  # of 16, 32, 64 and 128 the fastest for 128 of 49152


def largest(logits_RV: Tensor, k: int) -> Tensor:
    """The k largest values of each row, descending: (R, k); a NaN is above all, as in topk.

    They lie in the k blocks with the largest maxima, which a CPU finds sooner than it orders a row.
    """
    whole = logits_RV.shape[-1] // _BLOCK * _BLOCK
    if logits_RV.device.type != "cpu" or whole <= _BLOCK * k:
        return logits_RV.topk(k, dim=-1).values
    blocks_RNL = logits_RV[:, :whole].reshape(len(logits_RV), -1, _BLOCK)
    best_RK1 = blocks_RNL.amax(-1).topk(k, dim=-1, sorted=False).indices.unsqueeze(-1)
    kept_RKL = blocks_RNL.gather(1, best_RK1.expand(-1, -1, _BLOCK))
    left_RP = torch.cat([kept_RKL.flatten(1), logits_RV[:, whole:]], dim=-1)
    return left_RP.topk(k, dim=-1).values


def first(logits_RV: Tensor) -> Tensor:
    """The ids of the largest values, of equal ones the lowest: (R,). As argmax, which on a CPU
    takes several times as long."""
    return logits_RV.max(-1).indices


def measure(logits_RV: Tensor, ks: Sequence[int]) -> Tensor:
    """u for each K of ks, and the top-1/top-2 margin: (R, C), C = J + 1, in float32.

    As core.uncertainty: H = log(sum e^z) - (sum z e^z) / (sum e^z) with the largest z at 0. NaN
    in a row without a finite maximum, or with a NaN.
    """
    top_RK = largest(logits_RV, ks[0]).float()
    z_RK = top_RK - top_RK[:, :1]
    weight_RK = z_RK.exp()
    moment_RK = torch.where(weight_RK == 0, 0.0, weight_RK * z_RK)  # -inf has probability 0
    mass_RK = weight_RK.cumsum(-1)
    entropy_RK = mass_RK.log() - moment_RK.cumsum(-1) / mass_RK
    u_JR = [(entropy_RK[:, k - 1] / math.log(k)).clamp(0.0, 1.0) for k in ks]
    return torch.stack([*u_JR, -z_RK[:, 1]], dim=-1)


def encode(measured_RC: Tensor) -> Tensor:
    """The entries' values: the first as it is, the others below it (engines/probe_channel.py)."""
    first_R, *others_CR = measured_RC.unbind(-1)
    below_CR = [-(1 + x_R) * SCALE**c for c, x_R in enumerate(others_CR)]
    return torch.stack([first_R, *below_CR], dim=-1)


def places(token_R: Tensor, entries: int) -> Tensor:
    """The entries' ids, (R, C): the token's own, then the lowest ids that are not it."""
    ids_C = torch.arange(entries - 1, device=token_R.device)
    others_RC = ids_C + (ids_C >= token_R[:, None])
    return torch.cat([token_R[:, None], others_RC], dim=-1)


def check_request(params: SamplingParams) -> None:
    """ValueError for a probe request whose other settings would spoil u_t."""
    probe = ProbeRequest.of(params.extra_args)
    if probe is None:
        return
    if min(probe.ks) < 2 or max(probe.ks) != probe.ks[0]:
        raise ValueError(f"a probe needs its largest K first and K >= 2, got {list(probe.ks)}")
    if params.temperature > 0 or params.logprobs != probe.entries:
        raise ValueError(
            f"a probe needs temperature=0 and logprobs={probe.entries}, "
            f"got {params.temperature} and {params.logprobs}"
        )
    if probe.limit < math.inf and probe.stop_id not in (params.stop_token_ids or ()):
        raise ValueError(
            f"a probe that may end early needs token {probe.stop_id} in stop_token_ids, "
            f"got {params.stop_token_ids}"
        )


def _ks(probes: Iterable[ProbeRequest]) -> tuple[int, ...]:
    found = {probe.ks for probe in probes}
    if len(found) != 1:
        raise ValueError(f"one K per engine, got {sorted(map(list, found))}")
    return next(iter(found))


class EarlyStop:
    """The u of running rollouts by slot and step, in float64, and the limits of their sums.

    A step is known by its number, so one that the engine makes again or throws away is
    overwritten and never counted twice, and one that is missing (a rollout that goes on after
    preemption starts again at 0) makes the sum smaller: either way it can only stop later.
    """

    def __init__(self, slots: int, device: torch.device) -> None:
        self._u = torch.zeros(slots, 1, dtype=torch.float64, device=device)
        self._limit = torch.full((slots,), torch.inf, dtype=torch.float64, device=device)
        self._stop = torch.zeros(slots, dtype=torch.long, device=device)

    def start(self, slot: int, probe: ProbeRequest, max_tokens: int | None) -> None:
        """A request takes the slot; whatever was there is gone."""
        if (more := (max_tokens or 1) - self._u.shape[1]) > 0:
            self._u = torch.nn.functional.pad(self._u, (0, more))
        self._u[slot], self._limit[slot], self._stop[slot] = 0, probe.limit, probe.stop_id

    def tokens(self, slot_R: Tensor, step_R: Tensor, u_R: Tensor, token_R: Tensor) -> Tensor:
        """The tokens of a step that counts from 0, end tokens where the sum exceeds its limit."""
        self._u[slot_R, step_R.clamp(0, self._u.shape[1] - 1)] = u_R.double()
        over_R = self._u[slot_R].sum(-1) > self._limit[slot_R]
        return torch.where(over_R, self._stop[slot_R], token_R)


@dataclass
class _Row:
    """A probe in V1's batch; `emitted` is the engine's own list of its tokens."""

    probe: ProbeRequest
    slot: int
    emitted: Sequence[int]


class EntropyProbe(V1LogitsProcessor):  # type: ignore[misc]
    """Model runner V1: the CPU build, and GPUs with VLLM_USE_V2_MODEL_RUNNER=0."""

    validate_params = staticmethod(check_request)

    def __init__(
        self, vllm_config: "VllmConfig", device: torch.device, is_pin_memory: bool
    ) -> None:
        slots = vllm_config.scheduler_config.max_num_seqs
        self._device, self._pin = device, is_pin_memory
        self._rows: dict[int, _Row] = {}
        self._free = list(range(slots))
        self._stops = EarlyStop(slots, device)
        self._index: tuple[Tensor, Tensor] | None = None  # rows and slots, after a batch change

    def is_argmax_invariant(self) -> bool:
        """False, although the argmax may not change: greedy decoding skips invariant ones."""
        return False

    def update_state(self, batch_update: BatchUpdate | None) -> None:
        """Follows rows as the engine removes, adds and moves them, in that order."""
        if batch_update is None:
            return
        for row in batch_update.removed:
            self._drop(row)
        for row, params, _, emitted in batch_update.added:
            self._drop(row)
            if (probe := ProbeRequest.of(params.extra_args)) is not None:
                self._rows[row] = _Row(probe, self._free.pop(), emitted)
                self._stops.start(self._rows[row].slot, probe, params.max_tokens)
        for a, b, way in batch_update.moved:
            row_a, row_b = self._rows.pop(a, None), self._rows.pop(b, None)
            if row_a is not None:
                self._rows[b] = row_a
            if row_b is not None and way == MoveDirectionality.SWAP:
                self._rows[a] = row_b
            elif row_b is not None:
                self._free.append(row_b.slot)
        self._index = None

    def apply(self, logits: Tensor) -> Tensor:
        """(B, V) float32 logits in, the same with the probe rows rewritten out."""
        if not self._rows:
            return logits
        ordered = [self._rows[row] for row in sorted(self._rows)]
        ks = _ks(row.probe for row in ordered)
        if self._index is None:
            self._index = self._tensor(sorted(self._rows)), self._tensor([r.slot for r in ordered])
        rows_R, slot_R = self._index
        probed_RV = logits if len(ordered) == len(logits) else logits[rows_R]
        measured_RC, token_R = measure(probed_RV, ks), first(probed_RV)
        if any(row.probe.limit < math.inf for row in ordered):
            step_R = self._tensor([len(row.emitted) for row in ordered])
            token_R = self._stops.tokens(slot_R, step_R, measured_RC[:, 0], token_R)
        logits.index_fill_(0, rows_R, -torch.inf)
        logits[rows_R[:, None], places(token_R, len(ks) + 1)] = encode(measured_RC)
        return logits

    def _drop(self, row: int) -> None:
        if (held := self._rows.pop(row, None)) is not None:
            self._free.append(held.slot)

    def _tensor(self, values: Sequence[int]) -> Tensor:
        held = torch.tensor(values, dtype=torch.long, pin_memory=self._pin)
        return held.to(self._device, non_blocking=True)


class EntropyProbeV2(V2LogitsProcessor):  # type: ignore[misc]
    """Model runner V2; state is kept by request slot."""

    validate_params = staticmethod(check_request)

    def __init__(self, vllm_config: "VllmConfig", req_states: "LogitsProcRequestState") -> None:
        self._states = req_states
        self._probes: list[ProbeRequest | None] = [None] * req_states.max_num_reqs
        self._on = torch.zeros(req_states.max_num_reqs, dtype=torch.bool, device=req_states.device)
        self._stops = EarlyStop(req_states.max_num_reqs, req_states.device)

    def add_request(self, req_idx: int, sampling_params: Any) -> bool:
        """Whether this request is a probe; slots are re-used, so all their state is always set."""
        probe = ProbeRequest.of(sampling_params.extra_args)
        self._probes[req_idx], self._on[req_idx] = probe, probe is not None
        if probe is not None:
            self._stops.start(req_idx, probe, sampling_params.max_tokens)
        return probe is not None

    def apply(self, logits: Tensor, ctx: "LogitsContext") -> Tensor:
        """(B, V) float32 logits in, the same with the probe rows rewritten out."""
        held = [self._probes[slot] for slot in ctx.idx_mapping_np.tolist()]
        probes = [probe for probe in held if probe is not None]
        if not probes:
            return logits
        ks = _ks(probes)
        slot_B = ctx.expanded_idx_mapping.long()
        on_B1 = self._on[slot_B].unsqueeze(-1)
        measured_BC, token_B = measure(logits, ks), first(logits)
        if any(probe.limit < math.inf for probe in probes):
            # A partial prefill has a negative step; its token is thrown away.
            step_B = ctx.pos + 1 - self._states.prefill_len.gpu[slot_B]
            token_B = self._stops.tokens(slot_B, step_B, measured_BC[:, 0], token_B)
        places_BC = places(token_B, len(ks) + 1)
        values_BC = torch.where(on_B1, encode(measured_BC), logits.gather(-1, places_BC))
        return logits.masked_fill_(on_B1, -torch.inf).scatter_(-1, places_BC, values_BC)
