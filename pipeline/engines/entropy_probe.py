"""The per-step uncertainty u_t, computed inside vLLM and returned in place of the token's logit.

The processor rewrites the row of a probe request so that its argmax stays where it was and the
value there is u_t >= 0, while every other entry is z - max(z) < 0. Greedy decoding takes the same
token; with `logprobs_mode="processed_logits"` the engine returns u_t as the "logprob" of the
sampled token, and the runner-up entry is minus the top-1/top-2 margin. Rows of requests without
`extra_args["igp"]` are not touched. No state outlives a step, so preemption, over-run steps of
asynchronous scheduling, and partial prefills need no care here: a u_t reaches the caller exactly
when the engine emits its token. Trade, measured on a CPU: about 9% over plain decoding on a 135M
model; a fifth of the CPU that 128 returned log-probabilities cost where the engine is fast.

B rows of a batch, V vocabulary. vLLM has two model runners with two processor interfaces;
`EntropyProbe` serves V1, `EntropyProbeV2` serves V2 (the default on a GPU with Triton).
"""

import math
from typing import TYPE_CHECKING, Any

import torch
from vllm import SamplingParams
from vllm.v1.sample.logits_processor import BatchUpdate, MoveDirectionality
from vllm.v1.sample.logits_processor import LogitsProcessor as V1LogitsProcessor
from vllm.v1.worker.gpu.sample.logits_processor import LogitsProcessor as V2LogitsProcessor

if TYPE_CHECKING:
    from vllm.config import VllmConfig
    from vllm.v1.worker.gpu.sample.logits_processor import LogitsContext, LogitsProcRequestState

Tensor = torch.Tensor
KEY = "igp"
"""`SamplingParams.extra_args` key of a probe request; its value is {"k": K}."""
RUNNER_UP = 2
"""`SamplingParams.logprobs` of a probe request: the two largest entries give u_t and the margin."""


def topk_entropy(logits_BV: Tensor, k: int) -> Tensor:
    """Entropy of the softmax over the k largest logits of each row, divided by log k: (B,)."""
    logp_BK = logits_BV.topk(k, dim=-1).values.float().log_softmax(-1)
    return (-(logp_BK.exp() * logp_BK).sum(-1) / math.log(k)).clamp_(0.0, 1.0)


def write_at_argmax(logits_BV: Tensor, u_B: Tensor) -> Tensor:
    """The same argmax, ties included, but its value is u and every other entry is below 0."""
    shifted_BV = logits_BV - logits_BV.amax(-1, keepdim=True)
    return torch.where(shifted_BV == 0, u_B.unsqueeze(-1), shifted_BV)


def requested_k(params: SamplingParams) -> int | None:
    """K of a probe request, None for any other request."""
    probe = (params.extra_args or {}).get(KEY)
    return None if probe is None else int(probe["k"])


def check_request(params: SamplingParams) -> None:
    """ValueError for a probe request whose other settings would spoil u_t."""
    k = requested_k(params)
    if k is None:
        return
    if k < 2:
        raise ValueError(f"a probe needs K >= 2, got {k}")
    if params.temperature > 0 or params.logprobs != RUNNER_UP:
        raise ValueError(
            f"a probe needs temperature=0 and logprobs={RUNNER_UP}, "
            f"got {params.temperature} and {params.logprobs}"
        )


def _one_k(ks: set[int]) -> int:
    if len(ks) != 1:
        raise ValueError(f"one K per engine, got {sorted(ks)}")
    return next(iter(ks))


class EntropyProbe(V1LogitsProcessor):  # type: ignore[misc]
    """Model runner V1: the CPU build, and GPUs with VLLM_USE_V2_MODEL_RUNNER=0."""

    validate_params = staticmethod(check_request)

    def __init__(
        self, vllm_config: "VllmConfig", device: torch.device, is_pin_memory: bool
    ) -> None:
        self._device = device
        self._k_by_row: dict[int, int] = {}
        self._rows: Tensor | None = None  # device copy of the keys, rebuilt after a batch change

    def is_argmax_invariant(self) -> bool:
        """False, although the argmax does not change: greedy decoding skips invariant ones."""
        return False

    def update_state(self, batch_update: BatchUpdate | None) -> None:
        """Follows rows as the engine removes, adds and moves them, in that order."""
        if batch_update is None:
            return
        for row in batch_update.removed:
            self._k_by_row.pop(row, None)
        for row, params, _, _ in batch_update.added:
            self._k_by_row.pop(row, None)
            if (k := requested_k(params)) is not None:
                self._k_by_row[row] = k
        for a, b, way in batch_update.moved:
            k_a, k_b = self._k_by_row.pop(a, None), self._k_by_row.pop(b, None)
            if k_a is not None:
                self._k_by_row[b] = k_a
            if k_b is not None and way == MoveDirectionality.SWAP:
                self._k_by_row[a] = k_b
        self._rows = None

    def apply(self, logits: Tensor) -> Tensor:
        """(B, V) raw logits in, the same with the probe rows rewritten out."""
        if not self._k_by_row:
            return logits
        k = _one_k(set(self._k_by_row.values()))
        if len(self._k_by_row) == len(logits):
            return write_at_argmax(logits, topk_entropy(logits, k))
        if self._rows is None:
            self._rows = torch.tensor(list(self._k_by_row), device=self._device)
        probed = logits[self._rows]
        logits[self._rows] = write_at_argmax(probed, topk_entropy(probed, k))
        return logits


class EntropyProbeV2(V2LogitsProcessor):  # type: ignore[misc]
    """Model runner V2; state is kept by request slot."""

    validate_params = staticmethod(check_request)

    def __init__(self, vllm_config: "VllmConfig", req_states: "LogitsProcRequestState") -> None:
        self._k_by_slot = [0] * req_states.max_num_reqs
        self._on = torch.zeros(req_states.max_num_reqs, dtype=torch.bool, device=req_states.device)

    def add_request(self, req_idx: int, sampling_params: Any) -> bool:
        """Whether this request is a probe; slots are re-used, so both arrays are always set."""
        k = requested_k(sampling_params)
        self._k_by_slot[req_idx] = k or 0
        self._on[req_idx] = k is not None
        return k is not None

    def apply(self, logits: Tensor, ctx: "LogitsContext") -> Tensor:
        """(B, V) raw logits in, a tensor with the probe rows rewritten out."""
        ks = {self._k_by_slot[slot] for slot in ctx.idx_mapping_np.tolist()} - {0}
        if not ks:
            return logits
        on_B = self._on[ctx.expanded_idx_mapping.long()]
        rewritten = write_at_argmax(logits, topk_entropy(logits, _one_k(ks)))
        return torch.where(on_B.unsqueeze(-1), rewritten, logits)
