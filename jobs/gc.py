"""Remove the directories of stages that no run refers to, and unfinished writes.

python jobs/gc.py ROOT [--dry-run]
"""

import argparse
import sys

from pipeline import driver
from pipeline.report.status import size
from pipeline.runs import garbage
from pipeline.runs.storage import Storage


def run(root: str, dry_run: bool) -> int:
    """The job; its exit code."""
    storage, removed = Storage(root), 0
    for each in garbage.find(storage):
        if not dry_run and not garbage.remove(storage, each):
            print(f"kept     {each.path}: in use by now")
            continue
        removed += each.bytes
        print(f"{'would go' if dry_run else 'removed '} {each.path}  {size(each.bytes)}")
    print(f"{'would free' if dry_run else 'freed'} {size(removed)}")
    return driver.DONE


if __name__ == "__main__":
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("root", help="run.root of the runs' config, a folder or a URI")
    parser.add_argument("--dry-run", action="store_true", help="tell what would go and stop")
    args = parser.parse_args()
    sys.exit(driver.guarded(lambda: run(args.root, args.dry_run)))
