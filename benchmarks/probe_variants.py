"""One variant of the probe benchmark in this process: `python -m benchmarks.probe_variants SPEC`.

plain            the limit: greedy generation, no probe
in_engine        ours: u_t computed inside the engine
early_stop       the same, and conditional rollouts end where their gain cannot reach the threshold
flat_logprobs    ours, the reference: K flat log-probabilities, reduced here
dict_logprobs    a script of a user of vLLM: LLM.generate with logprobs=K, entropies in numpy
transformers     a script of a user of transformers: generate with output_scores, in batches

Each runs the same 1 + N rollouts a question, warmed up first, and gives back NU and the steps of
every rollout. T steps, K top entries, B rows of a batch, V vocabulary.
"""

import asyncio
import json
import sys
import time
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

import numpy as np

from benchmarks.probe_rollouts import WINDOW, Spec, encoded
from benchmarks.processes import say
from pipeline.core.uncertainty import (
    first_step_over,
    normalised_uncertainty,
    nothing_can_be_admitted,
    pruning_limit,
    step_uncertainty,
)

Found = dict[str, Any]
Ids = list[int]


def measure(
    rollouts: Callable[[Sequence[Ids]], Found], prompt_ids: Sequence[Sequence[Ids]]
) -> None:
    """A warm-up over one question and one pass over the rollouts of all."""
    ids = [ids for question in prompt_ids for ids in question]
    rollouts(ids[: len(prompt_ids[0])])
    say("begin")
    say("end", **rollouts(ids))


def columns_bytes(steps: Sequence[int], columns: int) -> float:
    """Bytes per rollout that leave the engine: a token id a step, and of each column an id and a
    value, with the sampled token's rank; 4 bytes each."""
    each = 4 if columns == 0 else 8 + 8 * columns
    return each * sum(steps) / len(steps)


def plain(spec: Spec) -> None:
    """Generation alone."""
    from pipeline.engines.tokenizer import HfTokenizer
    from pipeline.engines.vllm_engine import VllmEngine

    cfg = spec.generator(mode="flat_logprobs")
    tokenizer = HfTokenizer(cfg)
    engine = VllmEngine(cfg, logprobs_mode="raw_logprobs", max_logprobs=spec.top_k)
    stop, runner = list(tokenizer.stop_ids), asyncio.Runner()

    async def one(ids: Ids) -> int:
        output = await engine.run(ids, max_tokens=spec.max_tokens, stop_token_ids=stop)
        return len(output.outputs[0].token_ids)

    def rollouts(ids: Sequence[Ids]) -> Found:
        steps = runner.run(_all(one, ids))
        return {"nu": None, "steps": steps, "bytes": columns_bytes(steps, 0)}

    measure(rollouts, encoded(spec, tokenizer))
    engine.close()


def ours(spec: Spec) -> None:
    """The pipeline's own engine, in the mode that the variant names."""
    from pipeline.engines.vllm import VllmGenerator

    generator = VllmGenerator(spec.generator(mode=spec.variant), spec.probe())
    columns = 3 if spec.variant == "in_engine" else spec.top_k + 1
    runner = asyncio.Runner()

    async def one(ids: Ids) -> tuple[float, int]:
        rollout = await generator.rollout(ids)
        return normalised_uncertainty(rollout.u_T), len(rollout.token_ids)

    def rollouts(ids: Sequence[Ids]) -> Found:
        nu, steps = zip(*runner.run(_all(one, ids)), strict=True)
        return {"nu": nu, "steps": steps, "bytes": columns_bytes(steps, columns)}

    measure(rollouts, encoded(spec, generator.tokenizer))
    generator.close()


def early_stop(spec: Spec) -> None:
    """As the probe stage asks for them: that without evidence first, the others up to its limit,
    and none of them where the free rule spares them. NU is null where no gain is measured."""
    from pipeline.engines.vllm import VllmGenerator
    from pipeline.stages.probe import stored_nu

    generator = VllmGenerator(spec.generator(mode="in_engine"), spec.probe())
    prompt_ids = encoded(spec, generator.tokenizer)
    size, runner = len(prompt_ids[0]), asyncio.Runner()

    async def conditional(ids: Ids, limit: float) -> tuple[float | None, int]:
        rollout = await generator.rollout(ids, u_limit=limit)
        stopped = first_step_over(rollout.u_T, limit=limit) is not None
        return None if stopped else stored_nu(rollout), len(rollout.token_ids)

    async def question(ids: Sequence[Ids]) -> list[tuple[float | None, int]]:
        first = await generator.rollout(ids[0])
        nu0 = stored_nu(first)
        limit = pruning_limit(nu0, max_tokens=spec.max_tokens, threshold=spec.threshold)
        if nothing_can_be_admitted(nu0, threshold=spec.threshold):
            others: list[tuple[float | None, int]] = [(None, 0)] * (len(ids) - 1)
        else:
            others = list(await asyncio.gather(*(conditional(i, limit) for i in ids[1:])))
        return [(nu0, len(first.token_ids)), *others]

    def rollouts(ids: Sequence[Ids]) -> Found:
        questions = [ids[i : i + size] for i in range(0, len(ids), size)]
        made = runner.run(_all(question, questions))
        nu, steps = zip(*(pair for pairs in made for pair in pairs), strict=True)
        return {"nu": nu, "steps": steps, "bytes": columns_bytes(steps, 3)}

    measure(rollouts, prompt_ids)
    generator.close()


async def _all(one: Callable[[Any], Awaitable[Any]], items: Sequence[Any]) -> list[Any]:
    return list(await asyncio.gather(*(one(item) for item in items)))


def dict_logprobs(spec: Spec) -> None:
    """vLLM as its own documentation shows it, on the same engine settings."""
    from pipeline.engines import vllm_engine
    from pipeline.engines.tokenizer import HfTokenizer

    cfg = spec.generator(mode="flat_logprobs")
    vllm_engine._set_environment(cfg.runtime)  # threads: read before vLLM is imported
    from vllm import LLM, SamplingParams

    tokenizer = HfTokenizer(cfg)
    llm = LLM(**engine_arguments(spec))
    params = SamplingParams(
        temperature=0,
        max_tokens=spec.max_tokens,
        logprobs=spec.top_k,
        stop_token_ids=list(tokenizer.stop_ids),
    )

    def rollouts(ids: Sequence[Ids]) -> Found:
        made = llm.generate([{"prompt_token_ids": i} for i in ids], params, use_tqdm=False)
        nu = [nu_of_dicts(output.outputs[0].logprobs, spec.top_k) for output in made]
        steps = [len(output.outputs[0].token_ids) for output in made]
        return {"nu": nu, "steps": steps, "bytes": columns_bytes(steps, spec.top_k + 1)}

    measure(rollouts, encoded(spec, tokenizer))
    llm.llm_engine.engine_core.shutdown()


def engine_arguments(spec: Spec) -> dict[str, Any]:
    """vLLM's arguments for the settings that the pipeline uses."""
    return {
        "model": spec.model,
        "dtype": spec.dtype,
        "max_model_len": WINDOW,
        "max_num_seqs": spec.max_num_seqs,
        "max_logprobs": spec.top_k,
        "enforce_eager": True,
        "generation_config": "vllm",
        "kv_cache_memory_bytes": int(spec.kv_cache_gib * 2**30),
        "disable_log_stats": True,
    }


def nu_of_dicts(steps: Any, k: int) -> float:
    """NU from the dictionaries of one rollout, {token id: Logprob} a step."""
    top_TK = [sorted((e.logprob for e in step.values()), reverse=True)[:k] for step in steps]
    return normalised_uncertainty(step_uncertainty(np.array(top_TK), k=k))


def transformers(spec: Spec) -> None:
    """Batches by length with left padding; scores kept by `generate`, entropies afterwards."""
    import torch

    from pipeline.engines.tokenizer import HfTokenizer
    from pipeline.engines.transformers import load_causal

    cfg = spec.generator(mode="flat_logprobs")
    tokenizer, model = HfTokenizer(cfg), load_causal(cfg)
    stop = list(tokenizer.stop_ids)

    @torch.inference_mode()
    def batch(ids: Sequence[Ids]) -> tuple[Any, list[Any]]:
        width = max(map(len, ids))
        padded = [[stop[0]] * (width - len(row)) + row for row in ids]
        mask = [[0] * (width - len(row)) + [1] * len(row) for row in ids]
        made = model.generate(
            input_ids=torch.tensor(padded),
            attention_mask=torch.tensor(mask),
            do_sample=False,
            repetition_penalty=1.0,
            max_new_tokens=spec.max_tokens,
            eos_token_id=stop,
            pad_token_id=stop[0],
            return_dict_in_generate=True,
            output_scores=True,
        )
        top_TBK = torch.stack(made.scores).topk(spec.top_k, dim=-1).values
        new_ids = made.sequences[:, width:].tolist()
        return top_TBK.transpose(0, 1).numpy(), [_until(row, stop) for row in new_ids]

    def rollouts(ids: Sequence[Ids]) -> Found:
        order = sorted(range(len(ids)), key=lambda i: len(ids[i]))
        nu, steps, inside, kept = [0.0] * len(ids), [0] * len(ids), 0.0, 0
        for start in range(0, len(ids), 32):
            rows, began = order[start : start + 32], time.process_time()
            top_BTK, lengths = batch([ids[i] for i in rows])
            inside += time.process_time() - began
            kept += top_BTK.shape[0] * top_BTK.shape[1] * model.config.vocab_size * 4
            for i, top_TK, t in zip(rows, top_BTK, lengths, strict=True):
                u_T = step_uncertainty(top_TK[:t], k=spec.top_k)
                nu[i], steps[i] = normalised_uncertainty(u_T), t
        return {"nu": nu, "steps": steps, "bytes": kept / len(ids), "engine_cpu": inside}

    measure(rollouts, encoded(spec, tokenizer))


def _until(row: Sequence[int], stop: Sequence[int]) -> int:
    """Steps up to and with the first end token."""
    return next((t for t, token in enumerate(row, start=1) if token in stop), len(row))


VARIANTS: dict[str, Callable[[Spec], None]] = {
    "plain": plain,
    "in_engine": ours,
    "early_stop": early_stop,
    "flat_logprobs": ours,
    "dict_logprobs": dict_logprobs,
    "transformers": transformers,
}

if __name__ == "__main__":
    task = Spec(**json.loads(sys.argv[1]))
    VARIANTS[task.variant](task)
