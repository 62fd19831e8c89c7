"""Every way of choosing evidence over several data sets: one pass of the models, one report.

python jobs/evaluate.py conf/evaluate/small.yaml data=/path/of/the/sets [key=value ...] [--dry-run]
"""

import sys

from pipeline import driver
from pipeline.config import EvaluateConfig
from pipeline.engines import indexes
from pipeline.report import generators, terminal
from pipeline.report.calls import spared
from pipeline.report.finished import Finished, open_run
from pipeline.report.write import build, write_report
from pipeline.runs.storage import Storage
from pipeline.stages import source as sources


def run(cfg: EvaluateConfig, dry_run: bool) -> int:
    """The job; its exit code."""
    # What no data set can run with, a bad line of its input too, is said before any of them runs.
    asked = [cfg.run_of(one, "to be built" if one.builds_index else None) for one in cfg.datasets]
    runs: list[Finished] = []
    model = cfg.generator.model
    beside = [run for one in cfg.datasets for run in generators.beside(one, model)]
    for one in () if dry_run else asked:
        sources.prepare(one.run, one.input, Storage(one.run.root))
    code = driver.DONE
    for dataset in cfg.datasets:
        print(f"== {dataset.name}", flush=True)
        index = indexes.of_dataset(dataset, cfg.run.root, dry_run=dry_run)
        if index is not None and not indexes.is_there(index):
            print(f"index: to be built over {dataset.input.corpus}")
            continue
        one = driver.resolve(cfg.run_of(dataset, index))
        plan = driver.plan_of(one, dry_run=dry_run)
        if dry_run:
            driver.show_plan(plan, one)
            continue
        ended = driver.run_plan(plan, one)
        if ended == driver.DONE:
            runs.append(open_run(dataset.name, Storage(plan.root).uri(plan.run_folder)))
            print(spared(runs[-1]), flush=True)
        code = max(code, ended)
    if runs:
        out = f"{cfg.run.root}/reports/{cfg.run.name}"
        how = {"seed": cfg.run.seed, "samples": cfg.evaluation.bootstrap_samples}
        report = build(runs, **how, title=cfg.run.name, beside=beside)
        terminal.show(terminal.ranking(report.lead))
        print(f"report: {write_report(report, out)}")
    return code


if __name__ == "__main__":
    sys.exit(driver.main(__doc__, EvaluateConfig, run, sys.argv[1:]))
