"""Information gain pruning over a file of questions: retrieve, probe, select, answer, evaluate.

python jobs/offline_igp.py conf/offline_igp/demo.yaml [key=value ...] [--dry-run]
"""

import sys

from pipeline import driver
from pipeline.config import OfflineIgpConfig
from pipeline.engines import bm25, models
from pipeline.runs.storage import Storage
from pipeline.stages import answer, evaluate, probe, retrieve, select, source
from pipeline.stages.plan import make_plan
from pipeline.stages.stage import Stage


def stages(cfg: OfflineIgpConfig) -> list[Stage]:
    """The plan, in the order of the paper's figure 2."""
    chat = "chat" in (cfg.probe.template, cfg.answer.template)
    generator = models.describe(cfg.generator, needs_chat=chat)
    passage_format = cfg.probe.passage_format
    first = []
    if cfg.retriever is not None and cfg.retriever.index and cfg.input.candidates is None:
        first = [retrieve.stage(cfg.retriever, bm25.read_manifest(cfg.retriever.index))]
    return [
        *first,
        probe.stage(cfg.probe, generator),
        select.stage(
            cfg.selection,
            cfg.answer,
            passage_format=passage_format,
            seed=cfg.run.seed,
            generator=generator,
        ),
        answer.stage(cfg.answer, passage_format=passage_format, generator=generator),
        evaluate.stage(cfg.evaluation.refusal_patterns),
    ]


def run(cfg: OfflineIgpConfig, dry_run: bool) -> int:
    """The job; its exit code."""
    cfg = cfg.model_copy(update={"generator": models.pin(cfg.generator)})
    steps = stages(cfg)
    if dry_run:
        found = source.count(cfg.run, cfg.input)
    else:
        found = source.prepare(cfg.run, cfg.input, Storage(cfg.run.root))
    plan = make_plan(cfg.run.root, cfg.run.name, found, source.columns(cfg.input), steps)
    if dry_run:
        driver.show_plan(plan, cfg)
        return driver.DONE
    return driver.run_plan(plan, cfg, lambda: stages(cfg))


if __name__ == "__main__":
    sys.exit(driver.main(__doc__, OfflineIgpConfig, run, sys.argv[1:]))
