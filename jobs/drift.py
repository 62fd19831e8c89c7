"""Has the data or the model drifted since the policy was calibrated? Two finished runs compared.

python jobs/drift.py conf/drift/example.yaml [key=value ...] [--dry-run]

Exit code 3 when a limit is exceeded, so that a scheduled run can stop what depends on it.
"""

import sys

from rich.console import Console

from pipeline import driver
from pipeline.calibration import drift_report
from pipeline.calibration.finished import check_comparable, open_run
from pipeline.config import DriftConfig
from pipeline.runs.storage import Storage


def run(cfg: DriftConfig, dry_run: bool) -> int:
    """The job; its exit code."""
    reference, current = open_run(cfg.reference), open_run(cfg.current)
    if dry_run:
        check_comparable(reference, current)
        print(f"reference  {cfg.reference}\ncurrent    {cfg.current}\noutput     {cfg.output}")
        return driver.DONE
    report, found = drift_report.compare(reference, current, cfg, threshold=cfg.threshold)
    output = Storage(cfg.output)
    output.write_json("drift.json", report)
    output.write_bytes("drift.md", drift_report.markdown(report, found).encode())
    shown = drift_report.table(report, found)
    Console(width=None if sys.stdout.isatty() else 110).print(shown)
    for note in report["differences"]:
        print(f"differs: {note}")
    print(f"report: {output.uri('drift.md')}")
    return driver.GATE if report["drifted"] else driver.DONE


if __name__ == "__main__":
    sys.exit(driver.main(__doc__, DriftConfig, run, sys.argv[1:]))
