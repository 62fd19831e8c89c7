"""Has the data or the model drifted since the policy was calibrated? Two finished runs compared.

python jobs/drift.py conf/drift/example.yaml [key=value ...] [--dry-run]

Exit code 3 when a limit is exceeded, so that a scheduled run can stop what depends on it.
"""

import sys

from rich.console import Console

from pipeline import driver
from pipeline.calibration import drift_report
from pipeline.calibration.drift import Limits, drift, exceeded
from pipeline.calibration.finished import check_comparable, open_run, sample
from pipeline.config import DriftConfig
from pipeline.runs.storage import Storage


def run(cfg: DriftConfig, dry_run: bool) -> int:
    """The job; its exit code."""
    reference, current = open_run(cfg.reference), open_run(cfg.current)
    notes = check_comparable(reference, current)
    if dry_run:
        print(f"reference  {cfg.reference}\ncurrent    {cfg.current}\noutput     {cfg.output}")
        return driver.DONE
    before = sample(reference, threshold=cfg.threshold)
    now = sample(current, threshold=cfg.threshold)
    limits = Limits(cfg.psi_limit, cfg.ks_limit, cfg.pass_rate_limit, cfg.alpha)
    found = drift(before, now, limits)
    report = drift_report.as_json(
        found,
        reference=cfg.reference,
        current=cfg.current,
        questions=(before.questions, now.questions),
        threshold=cfg.threshold,
        alpha=cfg.alpha,
        notes=notes,
    )
    output = Storage(cfg.output)
    output.write_json("drift.json", report)
    output.write_bytes("drift.md", drift_report.markdown(report, found).encode())
    title = f"drift: {before.questions} questions before, {now.questions} now"
    Console(width=None if sys.stdout.isatty() else 110).print(
        drift_report.table(found, title=title)
    )
    for note in notes:
        print(f"differs: {note}")
    print(f"report: {output.uri('drift.md')}")
    return driver.GATE if exceeded(found) else driver.DONE


if __name__ == "__main__":
    sys.exit(driver.main(__doc__, DriftConfig, run, sys.argv[1:]))
