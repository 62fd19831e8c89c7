"""The probe benchmark's two variants that run in Ray: `python -m benchmarks.probe_ray SPEC`.

pipeline         ours: the probe stage as the jobs run it, shards through a Ray Data plan
ray_data_llm     a script of a user of ray.data.llm: one row a rollout, logprobs=K, entropies in a
                 Python postprocess, group-by on the question, Parquet

The pass begins when the engine is warm and ends when the last Parquet file is written; Ray's own
processes count as outside the engine.
"""

import json
import pickle
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from benchmarks.probe_rollouts import Spec, given, prompts, read
from benchmarks.probe_variants import columns_bytes, engine_arguments
from benchmarks.processes import say
from pipeline.config import ClusterConfig, OfflineIgpConfig, RunConfig, SelectionConfig
from pipeline.core.uncertainty import normalised_uncertainty, step_uncertainty

BATCH = 16
"""Rows of a batch of ray.data.llm, small as its authors advise; eight run at once."""
LOGICAL_CPUS = 8
"""What Ray is told: on two, the pools of ray.data.llm leave none for reading, and it waits."""


def begin_at(path: Path) -> threading.Event:
    """Says `begin` once the file is there; the event ends the wait."""
    ended = threading.Event()

    def wait() -> None:
        while not ended.wait(0.02):
            if path.exists():
                say("begin")
                return

    threading.Thread(target=wait, daemon=True).start()
    return ended


def pipeline(spec: Spec, folder: Path) -> None:
    """The plan of one stage, by the same `execute` as every job's."""
    from pipeline.cluster.execute import execute
    from pipeline.engines import models
    from pipeline.runs.storage import Storage
    from pipeline.stages import plan as plans
    from pipeline.stages import probe, source

    cfg = OfflineIgpConfig(
        run=RunConfig(root=str(folder / "root"), rows_per_shard=spec.rows_per_shard),
        input=given(spec.folder, spec.questions),
        generator=spec.generator(mode="in_engine"),
        probe=spec.probe(),
        selection=SelectionConfig(threshold=spec.threshold, top_m=5, empty_context="top1"),
        cluster=ClusterConfig(),
    )
    storage, ready = Storage(cfg.run.root), folder / "ready"
    found = source.prepare(cfg.run, cfg.input, storage)
    stage = probe.stage(cfg.probe, models.describe(cfg.generator, needs_chat=True))
    warm = replace(stage, build=_warmed(stage.build, spec, ready))
    columns = source.columns(cfg.input)
    plan = plans.make_plan(cfg.run.root, cfg.run.name, found, columns, [warm])
    ended = begin_at(ready)
    execute(plan, cfg, threading.Event())
    ended.set()
    parts = plans.contexts(plan, storage, ["probes"])
    rows = [row["probes"] for part in parts for row in part.to_pylist()]
    nu = [x for row in rows for x in (row["nu0"], *row["nu"])]
    steps = [t for row in rows for t in row["steps"]]
    say("end", nu=nu, steps=steps, bytes=columns_bytes(steps, 3))


def _warmed(build: Callable[..., Any], spec: Spec, ready: Path) -> Callable[..., Any]:
    """The stage's transform behind a warm-up, after which the file `ready` is there."""

    def build_warm(engines: Any) -> Any:
        transform, prompt = build(engines), prompts(read(spec.folder, 1)[0], spec.template)[0]
        ids = engines.generator.tokenizer.encode(prompt)

        async def first_warm(*tables: Any) -> Any:
            if not ready.exists():
                await engines.generator.rollout(ids)
                ready.touch()
            return await transform(*tables)

        return first_warm

    return build_warm


def ray_data_llm(spec: Spec, folder: Path) -> None:
    """One batch warms up; the other rows wait for it before they are tokenised."""
    import ray
    from ray.data import DataContext

    environment = {
        "OMP_NUM_THREADS": str(spec.threads),
        "VLLM_CPU_OMP_THREADS_BIND": "nobind",
        "VLLM_LOGGING_LEVEL": "WARNING",
        "VLLM_NO_USAGE_STATS": "1",
        "HF_HUB_OFFLINE": "1",
    }
    ray.init(
        address="local",
        num_cpus=LOGICAL_CPUS,
        include_dashboard=False,
        log_to_driver=False,
        runtime_env={"env_vars": environment},
    )
    context = DataContext.get_current()
    context.issue_detectors_config.detectors = []
    context.default_hash_shuffle_parallelism = 2
    ready, out = folder / "ready", folder / "out"
    rows = _rows(spec)
    blocks = -(-len(rows) // BATCH)
    data = ray.data.from_items(rows, override_num_blocks=blocks)
    data = _processor(spec, ready)(data)
    data = data.filter(lambda row: row["question"] >= 0)
    ended = begin_at(ready)
    data.groupby("question").map_groups(_gains, batch_format="pyarrow").write_parquet(str(out))
    ended.set()
    made = sorted(pq.read_table(out).to_pylist(), key=lambda row: row["question"])
    nu = [x for row in made for x in row["nu"]]
    steps = [t for row in made for t in row["steps"]]
    between = float(np.mean([size for row in made for size in row["pickled"]]))
    say("end", nu=nu, steps=steps, bytes=columns_bytes(steps, spec.top_k + 1), between=between)
    ray.shutdown()


def _rows(spec: Spec) -> list[dict[str, Any]]:
    """One row a rollout, behind warm-up rows of question -1: a batch, and what fills the last."""
    from pipeline.engines.tokenizer import HfTokenizer

    tokenizer = HfTokenizer(spec.generator(mode="flat_logprobs"))
    settings = {
        "temperature": 0.0,
        "max_tokens": spec.max_tokens,
        "logprobs": spec.top_k,
        "stop_token_ids": list(tokenizer.stop_ids),
    }
    made = []
    for question, item in enumerate(read(spec.folder, spec.questions)):
        for position, prompt in enumerate(prompts(item, spec.template)):
            made.append({"question": question, "position": position, "prompt": prompt})
    fill = BATCH + -len(made) % BATCH
    warm_up = [{**row, "question": -1} for row in (made * fill)[:fill]]
    return [{**row, "sampling_params": settings} for row in (*warm_up, *made)]


def _processor(spec: Spec, ready: Path) -> Callable[[Any], Any]:
    """The processor with as few and as light pools as it allows."""
    from ray.data.llm import build_processor, vLLMEngineProcessorConfig

    engine = engine_arguments(spec)
    model = engine.pop("model")
    light = {"num_cpus": 0.25}
    config = vLLMEngineProcessorConfig(
        model_source=model,
        engine_kwargs=engine,
        batch_size=BATCH,
        accelerator_type=None,
        placement_group_config={"bundles": [{"CPU": 1}]},
        chat_template_stage=light if spec.template == "chat" else False,
        tokenize_stage=light,
        detokenize_stage=False,
        log_engine_metrics=False,  # these want all of Ray Serve installed
    )
    chat, k = spec.template == "chat", spec.top_k

    def before(row: dict[str, Any]) -> dict[str, Any]:
        while row["question"] >= 0 and not ready.exists():
            time.sleep(0.02)
        key = "messages" if chat else "prompt"
        return {**row, key: row["prompt"]}

    def after(row: dict[str, Any]) -> dict[str, Any]:
        if row["question"] < 0:
            ready.touch()
        return {
            "question": row["question"],
            "position": row["position"],
            "nu": _nu(row["logprobs"], k),
            "steps": len(row["generated_tokens"]),
            "pickled": len(pickle.dumps(row["logprobs"])),
        }

    processor: Callable[[Any], Any] = build_processor(config, preprocess=before, postprocess=after)
    return processor


def _nu(steps: Any, k: int) -> float:
    top_TK = [sorted((e["logprob"] for e in step.values()), reverse=True)[:k] for step in steps]
    return normalised_uncertainty(step_uncertainty(np.array(top_TK), k=k))


def _gains(group: pa.Table) -> pa.Table:
    """One question's rows in order, as lists."""
    rows = group.sort_by("position")
    lists = {name: [rows[name].to_pylist()] for name in ("nu", "steps", "pickled")}
    gains = [[lists["nu"][0][0] - nu for nu in lists["nu"][0][1:]]]
    return pa.table({"question": [rows["question"][0].as_py()], "gains": gains, **lists})


VARIANTS: dict[str, Callable[[Spec, Path], None]] = {
    "pipeline": pipeline,
    "ray_data_llm": ray_data_llm,
}

if __name__ == "__main__":
    task = Spec(**json.loads(sys.argv[1]))
    with tempfile.TemporaryDirectory() as scratch:
        VARIANTS[task.variant](task, Path(scratch))
