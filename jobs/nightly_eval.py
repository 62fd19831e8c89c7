"""The evaluation of one scheduled date, compared with a baseline: once a date and config.

python jobs/nightly_eval.py conf/nightly_eval/demo.yaml date=YYYY-MM-DD [key=value ...] [--dry-run]

The same command goes on after a crash, and does nothing where the night is finished. Exit code 3
where the night does not pass its gate, unless gate.fails_job is false.
"""

import os
import sys

from pipeline import driver
from pipeline.config import NightlyConfig, OfflineIgpConfig
from pipeline.nightly import evaluate, nights, schedule
from pipeline.nightly.pages import SAID
from pipeline.nightly.sinks import deliver
from pipeline.runs import lease
from pipeline.runs.storage import Storage


def run(cfg: NightlyConfig, dry_run: bool) -> int:
    """The job; its exit code."""
    night = nights.night_of(cfg, schedule.date_of(cfg, os.environ))
    storage = Storage(cfg.run.root)
    sinks = deliver.resolve(cfg.sinks, os.environ)
    print(f"night: {night.id}", flush=True)
    if dry_run:
        print(f"baseline: {nights.baseline(storage, cfg, night) or 'none'}")
        return driver.run(cfg.main_job(storage.uri(night.folder)), True)
    with lease.hold(storage, [night.folder]):
        if not evaluate.is_done(storage, night, cfg):
            baseline = nights.baseline(storage, cfg, night)
            folder = evaluate.run_folder(storage, night)
            if folder is None:
                code, folder = _measure(cfg.main_job(storage.uri(night.folder)))
                if code:
                    return code
            evaluate.evaluate(cfg, storage, night, folder=folder, baseline=baseline)
        result = evaluate.load(storage, night)
        failed = deliver.deliver(sinks, storage, result)
    print("\n".join([*result.gate["reasons"], f"gate: {SAID[result.gate['verdict']]}"]))
    print(f"summary: {storage.uri(night.at('summary.md'))}")
    if failed:
        return driver.INCOMPLETE
    return driver.DONE if result.passed or not cfg.gate.fails_job else driver.GATE


def _measure(cfg: OfflineIgpConfig) -> tuple[int, str]:
    """Runs the main job; its exit code and its run's folder."""
    origin, cfg = driver.read_origin(cfg), driver.resolve(cfg)
    plan = driver.plan_of(cfg, dry_run=False)
    return driver.run_plan(plan, cfg, origin), Storage(plan.root).uri(plan.run_folder)


if __name__ == "__main__":
    sys.exit(driver.main(__doc__, NightlyConfig, run, sys.argv[1:]))
