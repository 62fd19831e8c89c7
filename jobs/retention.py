"""Remove the bulk of old nights (rows, stage directories, report); their numbers stay.

python jobs/retention.py ROOT --keep-days N [--whole] [--dry-run]

With --whole the nights go altogether, but those that a younger night was compared with.
"""

import argparse
import datetime
import sys

from pipeline import driver
from pipeline.nightly import retention, schedule
from pipeline.report.status import size
from pipeline.runs.storage import Storage


def run(args: argparse.Namespace) -> int:
    """The job; its exit code."""
    storage, freed = Storage(args.root), 0
    today = schedule.parsed(args.today or datetime.datetime.now(datetime.UTC).date().isoformat())
    found = list(retention.find(storage, today=today, keep_days=args.keep_days, whole=args.whole))
    for each in found:
        kept = each.kept
        if kept is None and not args.dry_run and not retention.remove(storage, each):
            kept = "in use by now"
        if kept is not None:
            print(f"kept     {each.folder}: {kept}")
            continue
        freed += each.bytes
        print(f"{'would go' if args.dry_run else 'removed '} {each.folder}  {size(each.bytes)}")
    print(f"{'would free' if args.dry_run else 'freed'} {size(freed)}")
    return driver.DONE


def days(text: str) -> int:
    """A whole number of 0 or more; ArgumentTypeError for another."""
    if not text.isdecimal():
        raise argparse.ArgumentTypeError(f"{text!r}; allowed: 0 or more days")
    return int(text)


def parser() -> argparse.ArgumentParser:
    """The command line."""
    made = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    made.add_argument("root", help="run.root of the nights, a folder or a URI")
    made.add_argument(
        "--keep-days", type=days, required=True, help="nights up to so many days old stay whole"
    )
    made.add_argument("--today", help="YYYY-MM-DD; default: today's date in UTC")
    made.add_argument("--whole", action="store_true", help="remove the nights altogether")
    made.add_argument("--dry-run", action="store_true", help="tell what would go and stop")
    return made


if __name__ == "__main__":
    sys.exit(driver.guarded(lambda: run(parser().parse_args())))
