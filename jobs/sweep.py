"""Tp x M and K x MT from one probe pass: only prompts that no earlier run answered are generated.

python jobs/sweep.py conf/sweep/demo.yaml [key=value ...] [--dry-run]
"""

import sys

from pipeline import driver
from pipeline.config import OfflineIgpConfig, SweepConfig
from pipeline.report import terminal
from pipeline.report.calls import spared
from pipeline.report.finished import open_run
from pipeline.report.write import build, write_report
from pipeline.runs.storage import Storage


def run(cfg: SweepConfig, dry_run: bool) -> int:
    """The job; its exit code."""
    sections = {name: getattr(cfg, name) for name in type(cfg).model_fields if name != "sweep"}
    one = driver.resolve(OfflineIgpConfig(**sections, arms=cfg.sweep.arms()))
    plan = driver.plan_of(one, dry_run=dry_run)
    if dry_run:
        driver.show_plan(plan, one)
        return driver.DONE
    code = driver.run_plan(plan, one)
    if code == driver.DONE:
        folder = Storage(plan.root).uri(plan.run_folder)
        finished = open_run(cfg.run.name, folder)
        print(spared(finished), flush=True)
        samples = cfg.evaluation.bootstrap_samples
        report = build([finished], seed=cfg.run.seed, samples=samples, title=cfg.run.name)
        terminal.show(terminal.ranking(report.lead))
        print(f"report: {write_report(report, folder)}")
    return code


if __name__ == "__main__":
    sys.exit(driver.main(__doc__, SweepConfig, run, sys.argv[1:]))
