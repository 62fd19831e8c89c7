"""Every way of choosing evidence over several data sets: one pass of the models, one report.

python jobs/evaluate.py conf/evaluate/small.yaml data=/path/of/the/sets [key=value ...] [--dry-run]
"""

import sys

from pipeline import driver
from pipeline.config import DatasetConfig, EvaluateConfig
from pipeline.engines import indexes
from pipeline.report.write import write_report
from pipeline.runs.storage import Storage


def run(cfg: EvaluateConfig, dry_run: bool) -> int:
    """The job; its exit code."""
    runs, code = {}, driver.DONE
    for dataset in cfg.datasets:
        print(f"== {dataset.name}", flush=True)
        one = driver.resolve(cfg.run_of(dataset, _index(cfg, dataset)))
        plan = driver.plan_of(one, dry_run=dry_run)
        if dry_run:
            driver.show_plan(plan, one)
            continue
        ended = driver.run_plan(plan, one)
        if ended == driver.DONE:
            runs[dataset.name] = Storage(plan.root).uri(plan.run_folder)
        code = max(code, ended)
    if runs:
        out = f"{cfg.run.root}/reports/{cfg.run.name}"
        samples = cfg.evaluation.bootstrap_samples
        written = write_report(runs, out, seed=cfg.run.seed, samples=samples, title=cfg.run.name)
        print(f"report: {written}")
    return code


def _index(cfg: EvaluateConfig, dataset: DatasetConfig) -> str | None:
    """The data set's index, built over its corpus where the config names none."""
    retriever, corpus = dataset.retriever, dataset.input.corpus
    if retriever is None or retriever.indexes or corpus is None:
        return None
    folder = f"{cfg.run.root}/indexes/{dataset.name}"
    return indexes.ensure(retriever, corpus, folder)


if __name__ == "__main__":
    sys.exit(driver.main(__doc__, EvaluateConfig, run, sys.argv[1:]))
