"""What every job does around its own part: arguments, errors as exit codes, manifest, results.

Exit codes: 0 done, 1 incomplete or infrastructure, 2 usage, config or input, 3 quality gate.
"""

import argparse
import logging
import sys
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from pydantic import ValidationError

from pipeline.cluster.errors import Infeasible, LeaseLost, NoProgress, Stopped, WorkerFailed
from pipeline.cluster.preflight import describe as describe_pool
from pipeline.cluster.signals import sigterm_raises
from pipeline.config import Frozen, OfflineIgpConfig, PolicyFile
from pipeline.engines.base import ModelNotFound
from pipeline.loading import ConfigError, help_text, load
from pipeline.progress import log, say
from pipeline.readers import InputError
from pipeline.report import contexts, costs, rankings, summary, task_scores
from pipeline.report.terminal import number, show
from pipeline.runs import inventory, layout, lease
from pipeline.runs.inventory import MANIFEST, NoRuns
from pipeline.runs.lease import LeaseHeld
from pipeline.runs.storage import Storage
from pipeline.stages import build, redrive
from pipeline.stages import plan as plans
from pipeline.stages import source as sources
from pipeline.stages.arms import ArmError
from pipeline.stages.forecast import forecast
from pipeline.stages.manifest import manifest, name_siblings
from pipeline.stages.plan import Ledger, Plan
from pipeline.stages.stage import PlanError, Stage

DONE, INCOMPLETE, USAGE, GATE = 0, 1, 2, 3
SUCCESS = inventory.SUCCESS

C = TypeVar("C", bound=Frozen)


class TooManyDead(RuntimeError):
    """More questions died than `run.max_error_rate` allows, or all; everything else was written."""

    def __init__(self, dead: int, rows: int, allowed: float, letters: str) -> None:
        share = f"{dead / rows:.1%}; run.max_error_rate allows {allowed:.1%}"
        left = ", which leaves none to report on" if dead == rows else ""
        super().__init__(
            f"{dead} of {rows} questions died ({share}){left}; the reasons are in {letters}"
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
    return guarded(lambda: job(load(kind, args.config, args.overrides), args.dry_run))


def guarded(job: Callable[[], int]) -> int:
    """The job's exit code; an error that a user can mend is told in one line."""
    logging.basicConfig(level=logging.WARNING)
    try:
        with sigterm_raises():
            return job()
    except (ArmError, ConfigError, InputError, ModelNotFound, NoRuns, PlanError) as error:
        return _fail(error, USAGE)
    except (LeaseHeld, LeaseLost, Infeasible, NoProgress, Stopped, WorkerFailed) as error:
        return _fail(error, INCOMPLETE)
    except OSError as error:  # the disk or the store
        return _fail(error, INCOMPLETE)
    except KeyboardInterrupt:
        return _fail(Stopped("interrupted; the same command goes on from here"), INCOMPLETE)


def _fail(error: BaseException, code: int) -> int:
    if sys.stderr.isatty():
        print(f"error: {error}", file=sys.stderr)
    else:
        log("error", kind=type(error).__name__, message=str(error))
    return code


def plan_of(cfg: OfflineIgpConfig, *, dry_run: bool) -> Plan:
    """The plan of a pinned config over its input, which is read, and kept unless `dry_run`."""
    if dry_run:
        found = sources.count(cfg.run, cfg.input)
    else:
        found = sources.prepare(cfg.run, cfg.input, Storage(cfg.run.root))
    steps = build.stages(cfg)
    return plans.make_plan(cfg.run.root, cfg.run.name, found, sources.columns(cfg.input), steps)


def read_origin(cfg: OfflineIgpConfig) -> dict[str, Any] | None:
    """Path and origin of the config's policy file, for the manifest; None where it names none.

    One line warns of a model or probe settings other than those that the policy was found with.
    """
    if cfg.policy is None:
        return None
    origin = load(PolicyFile, cfg.policy).plain()["origin"]
    probe = origin.get("probe") or {}
    there = {"model": origin.get("model"), **{f"probe.{key}": probe[key] for key in probe}}
    here = {"model": cfg.generator.model}
    here |= {f"probe.{key}": value for key, value in cfg.probe.plain().items()}
    differs = [
        f"{key} {there[key]!r} there, {value!r} here"
        for key, value in here.items()
        if there.get(key) is not None and there[key] != value
    ]
    if differs:
        say("policy found under other settings", policy=cfg.policy, differs=", ".join(differs))
    return {"path": cfg.policy, "origin": origin}


def resolve(cfg: OfflineIgpConfig) -> OfflineIgpConfig:
    """The config with its policy file read and its models pinned to what they are now."""
    if cfg.policy is not None:
        selection = load(PolicyFile, cfg.policy).selection
        sections = {name: getattr(cfg, name) for name in cfg.model_fields_set}
        try:
            cfg = type(cfg)(**{**sections, "policy": None, "selection": selection})
        except ValidationError as error:
            said = error.errors()[0]["msg"].removeprefix("Value error, ")
            raise ConfigError(f"{cfg.policy}: {said}") from None
    return build.pin(cfg)


def show_plan(plan: Plan, cfg: OfflineIgpConfig) -> None:
    """What a run would do: sizes as upper bounds, shards still missing, pools."""
    storage = Storage(plan.root)
    rows = forecast(plan, cfg)
    rows["pools"] = "; ".join(
        describe_pool(name, getattr(cfg.cluster, name))
        for name, _ in plans.groups(plan)
        if name is not None
    )
    for folder, shards in plan.missing(storage).items():
        rows[folder] = f"{len(shards)} of {plan.source.shards} shards to do"
    width = max(map(len, rows))
    for name, text in rows.items():
        print(f"{name:<{width}}  {text}")


def run(cfg: OfflineIgpConfig, dry_run: bool) -> int:
    """The main job; its exit code."""
    origin = read_origin(cfg)
    cfg = resolve(cfg)
    plan = plan_of(cfg, dry_run=dry_run)
    if dry_run:
        show_plan(plan, cfg)
        return DONE
    return run_plan(plan, cfg, origin)


def run_plan(plan: Plan, cfg: OfflineIgpConfig, origin: dict[str, Any] | None = None) -> int:
    """Runs what is missing, then writes metrics and `_SUCCESS`, and prints the table.

    At the end the stages are made anew and must be what they were, or a model, an index or a blend
    was replaced while the run was under way. The manifest keeps `origin` (see read_origin).
    """
    storage = Storage(plan.root)
    damaged = layout.damaged_parts(storage, plan.folders)
    success = f"{plan.run_folder}/{SUCCESS}"
    if storage.exists(success) and not damaged and not plan.missing(storage)[plan.rows_folder]:
        return _conclude(plan, cfg, _metrics(plan, cfg, storage, None), " (was complete)")
    with lease.hold(storage, _to_write(plan, storage, damaged)) as lost:
        _clean(plan, storage, damaged)
        storage.write_json(f"{plan.run_folder}/{MANIFEST}", manifest(plan, cfg, origin))
        before = {} if cfg.answered else plans.counted(plan, storage)
        from pipeline.cluster.execute import execute  # Ray, for jobs that run a plan alone

        execute(plan, cfg, lost)
        return _close(plan, cfg, storage, before)


def redrive_run(cfg: OfflineIgpConfig, dry_run: bool) -> int:
    """The run of a config, its dead letters alone once more (see stages.redrive); its exit code.

    While it is under way the run has no `_SUCCESS`: after a crash, the same command goes on.
    """
    cfg = resolve(cfg)
    storage = Storage(cfg.run.root)
    found = sources.find(cfg.run, cfg.input, storage)
    plan = plans.make_plan(
        cfg.run.root, cfg.run.name, found, sources.columns(cfg.input), build.stages(cfg)
    )
    again = redrive.find(plan, storage)
    print(f"{storage.uri(plan.run_folder)}: {redrive.describe(again)}")
    success = f"{plan.run_folder}/{SUCCESS}"
    if dry_run or (not again.shards and storage.exists(success)):
        return DONE
    stages = [folder for folder, shards in again.folders.items() if shards]
    with lease.hold(storage, [plan.run_folder, *set(stages) - {plan.rows_folder}]) as lost:
        for folder in (*stages, plan.run_folder, plan.rows_folder, plan.letters_folder):
            storage.sweep(folder)
        storage.delete(success)
        before = {} if cfg.answered else plans.counted(plan, storage)
        if again.shards:
            from pipeline.cluster.execute import execute

            execute(plan, cfg, lost, redrive.find(plan, storage))
        return _close(plan, cfg, storage, before)


def _close(plan: Plan, cfg: OfflineIgpConfig, storage: Storage, before: Ledger) -> int:
    """The end of a run whose shards are done: what it rests on is checked and named, then the
    metrics, the table and, where not too many died, `_SUCCESS`; the exit code."""
    sources.check_unchanged(plan.source)
    _check_same(plan, build.stages(cfg))
    if left := plan.missing(storage)[plan.rows_folder]:
        raise WorkerFailed(f"Ray finished, yet shards {sorted(left)} have no rows")
    name_siblings(plan, storage)
    code = _conclude(plan, cfg, _metrics(plan, cfg, storage, before), "")
    if code == DONE:
        storage.write_bytes(f"{plan.run_folder}/{SUCCESS}", b"")
    return code


def _to_write(plan: Plan, storage: Storage, damaged: Sequence[str]) -> list[str]:
    """The folders that a run will write: its own, and the stages' that miss a part."""
    broken = {path.rpartition("/")[0] for path in damaged}
    missing = redrive.unsettled(plan, storage, damaged)
    stages = [f for f in plan.folders if f != plan.rows_folder and (missing[f] or f in broken)]
    return [plan.run_folder, *stages]


def _clean(plan: Plan, storage: Storage, damaged: Sequence[str]) -> None:
    """Removes damaged parts, and what killed writers left, from the folders now held."""
    for path in damaged:
        log("damaged", part=storage.uri(path), note="deleted, to be made anew")
        storage.delete(path)
    for folder in (*_to_write(plan, storage, ()), plan.rows_folder, plan.letters_folder):
        storage.sweep(folder)


def _check_same(plan: Plan, stages: Sequence[Stage]) -> None:
    """InputError that names a stage which is not what it was, or is there no longer or anew."""
    before = {step.stage.name: dict(step.stage.depends_on) for step in plan.steps}
    now = {stage.name: dict(stage.depends_on) for stage in stages}
    for name in {**before, **now}:
        if before.get(name) != now.get(name):
            raise InputError(
                f"stage {name!r}: its model, index, prompt or blend changed while the run was "
                "under way; start the run again"
            )


def _metrics(
    plan: Plan, cfg: OfflineIgpConfig, storage: Storage, before: Ledger | None
) -> dict[str, Any]:
    """The run's metrics, written where they differ from what stands there; `before` is the ledger
    as it was found, None where it is so still."""
    ledger = plans.counted(plan, storage)
    arms = [arm.plain() for arm in build.arms_of(cfg)]
    columns = summary.columns(plan.columns) if cfg.answered else contexts.COLUMNS
    parts = plans.contexts(plan, storage, columns)
    if cfg.answered:
        draws = {"seed": cfg.run.seed, "samples": cfg.evaluation.bootstrap_samples}
        metrics = summary.summarise(parts, arms=arms, **draws)
        metrics |= task_scores.of_plan(plan, cfg, storage) if metrics["questions"] else {}
    else:
        metrics = contexts.summarise(parts, arms=arms)
        metrics["work"] = contexts.work(ledger if before is None else before, ledger)
    metrics["dead_letters"] = plan.source.rows - metrics["questions"]
    metrics["ledger"] = ledger
    path = f"{plan.run_folder}/metrics.json"
    if not storage.exists(path) or storage.read_json(path) != metrics:
        storage.write_json(path, metrics)
    return metrics


def _conclude(plan: Plan, cfg: OfflineIgpConfig, metrics: dict[str, Any], note: str) -> int:
    """Prints the table and where the run is; the exit code by its share of dead questions."""
    storage = Storage(plan.root)
    if cfg.answered:
        show(summary.table(metrics))
    else:
        print("\n".join(contexts.lines(metrics)))
    if probe := metrics["probe"] | costs.over_sentences(metrics):
        rates = ", ".join(f"{name} {number(value, '.3g')}" for name, value in probe.items())
        print(f"behind the table: {rates}")
    ranked = metrics.get("listwise", {}).items()
    for line in (*task_scores.lines(metrics), *(rankings.line(*rates) for rates in ranked)):
        print(line)
    print(f"run: {storage.uri(plan.run_folder)}{note}")
    dead, rows = metrics["dead_letters"], plan.source.rows
    if dead == rows or dead / rows > cfg.run.max_error_rate:
        letters = storage.uri(plan.letters_folder)
        return _fail(TooManyDead(dead, rows, cfg.run.max_error_rate, letters), INCOMPLETE)
    return DONE
