"""The pruned context of every question of a log, kept by date: retrieve, probe, select, no answers.

python jobs/precompute_contexts.py conf/precompute_contexts/corpus.yaml [key=value ...] [--dry-run]

Run again after the log or the corpus changed, it probes what is new or changed, and nothing else.
"""

import datetime
import sys

from pipeline import driver
from pipeline.config import PrecomputeConfig
from pipeline.contexts import partitions, publish
from pipeline.runs.storage import Storage
from pipeline.stages.plan import Plan


def run(cfg: PrecomputeConfig, dry_run: bool) -> int:
    """The job; its exit code."""
    date = cfg.date or datetime.datetime.now(tz=datetime.UTC).date()
    out = Storage(partitions.folder(cfg.run.root, cfg.run.name))
    origin, resolved = driver.read_origin(cfg), driver.resolve(cfg)
    plan = driver.plan_of(resolved, dry_run=dry_run)
    if dry_run:
        driver.show_plan(plan, resolved)
        print(f"contexts: {out.uri(partitions.partition(date))}")
        return driver.DONE
    return driver.run_plan(plan, resolved, origin) or _publish(plan, out, date)


def _publish(plan: Plan, out: Storage, date: datetime.date) -> int:
    """The date's partition, written unless it holds this run's rows already; the exit code."""
    run, place = Storage(f"{plan.root}/{plan.run_folder}"), out.uri(partitions.partition(date))
    metrics = run.read_json("metrics.json")
    same = {"fingerprint": plan.fingerprint, "dead_letters": metrics["dead_letters"]}
    if publish.is_published(out, date, run, same=same):
        print(f"contexts: {place} (was complete)")
        return driver.DONE
    about = {
        **same,
        "run": plan.run_folder,
        "policy": plan.steps[-1].stage.depends_on["policy"],
        "contexts": metrics["contexts"],
        "work": metrics["work"],
    }
    made = publish.publish(out, date, run, about=about)
    print("\n".join([*publish.describe(made), f"contexts: {place}"]))
    return driver.DONE


if __name__ == "__main__":
    sys.exit(driver.main(__doc__, PrecomputeConfig, run, sys.argv[1:]))
