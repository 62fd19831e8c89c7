"""How far can a finished run's probes be repeated? A sample of them, made again in other batches.

python jobs/audit.py conf/audit/demo.yaml run=RUN [key=value ...] [--dry-run]

It needs no cluster: one engine at a time, in this process. Exit code 3 when a limit is exceeded.
"""

import sys
from collections import Counter

from rich.console import Console

from pipeline import driver
from pipeline.calibration import audit_report, audit_sample, reprobe
from pipeline.calibration.finished import open_run
from pipeline.cluster.errors import WorkerFailed
from pipeline.config import AuditConfig
from pipeline.engines.base import EngineDead
from pipeline.progress import display
from pipeline.runs.storage import Storage


def run(cfg: AuditConfig, dry_run: bool) -> int:
    """The job; its exit code."""
    finished = open_run(cfg.run)
    subject = audit_sample.subject(finished)
    sample = audit_sample.draw(finished, subject, questions=cfg.questions, seed=cfg.seed)
    output = Storage(cfg.output or f"{cfg.run}/audit")
    totals = dict.fromkeys(reprobe.labels(cfg, subject), sample.rollouts)
    title = f"{len(sample.questions)} questions, {sample.rollouts} rollouts a pass"
    if dry_run:
        print(f"run     {cfg.run}\nsample  {title}\npasses  {', '.join(totals)}")
        print(f"output  {output.uri('')}")
        return driver.DONE
    done = Counter(dict.fromkeys(totals, 0))
    with display(totals, unit="rollouts") as shown:

        def tick(label: str) -> None:
            done[label] += 1
            shown.update(done)

        try:
            made = list(reprobe.passes(cfg, subject, sample, tick))
        except EngineDead as error:
            raise WorkerFailed(str(error)) from error
    found = reprobe.comparisons(made, subject, sample)
    report = audit_report.as_json(found, cfg, subject, sample)
    output.write_json("audit.json", report)
    output.write_bytes("audit.md", audit_report.markdown(found, report).encode())
    shown_at = Console(width=None if sys.stdout.isatty() else 150)
    shown_at.print(audit_report.table(found, title=f"determinism: {title}"))
    for line in (*report["differences"], *report["exceeded"]):
        print(line)
    print(f"report: {output.uri('audit.md')}")
    return driver.GATE if report["exceeded"] else driver.DONE


if __name__ == "__main__":
    sys.exit(driver.main(__doc__, AuditConfig, run, sys.argv[1:]))
