"""Write one arm of a finished run as other tools read it: TREC, FlashRAG, CSV.

python jobs/export.py conf/export/trec.yaml run=RUN output=FOLDER [key=value ...] [--dry-run]
"""

import sys

from pipeline import driver, writers
from pipeline.config import ExportConfig
from pipeline.config.export import FILES, ExportFile
from pipeline.readers import InputError
from pipeline.report import export, legend
from pipeline.report.finished import Finished, open_run


def run(cfg: ExportConfig, dry_run: bool) -> int:
    """The job; its exit code."""
    finished = open_run("run", cfg.run)
    if not finished.storage.exists(driver.SUCCESS):
        raise InputError(f"{cfg.run}: no finished run here: {driver.SUCCESS} is absent")
    export.check_arm(finished, cfg.arm)
    for name in cfg.files:
        path = f"{cfg.output}/{FILES[name]}"
        if not dry_run:
            _write(name, path, finished, cfg)
        print(f"{name}: {path}")
    return driver.DONE


def _write(name: ExportFile, path: str, finished: Finished, cfg: ExportConfig) -> None:
    """One file; InputError where its format cannot hold what the run holds."""
    try:
        if name == "run":
            writers.write_run(path, export.rankings(finished, cfg.arm), tag=cfg.tag)
        elif name == "qrels":
            writers.write_qrels(path, export.judgements(finished))
        elif name == "questions":
            writers.write_questions(path, export.questions(finished))
        elif name == "cache":
            made = export.contexts(finished, cfg.arm)
            writers.write_cache(path, ((question, pieces) for _, question, pieces in made))
        elif name == "contexts":
            writers.write_lines(path, export.rendered(finished, cfg.arm))
        else:
            writers.write_text(path, writers.as_csv(export.evidence(finished, cfg.arm)))
            writers.write_text(f"{cfg.output}/columns.md", legend.of_evidence())
    except InputError:
        raise
    except ValueError as error:
        raise InputError(f"{path}: {error}") from None


if __name__ == "__main__":
    sys.exit(driver.main(__doc__, ExportConfig, run, sys.argv[1:]))
