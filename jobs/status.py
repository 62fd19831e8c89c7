"""What a root directory holds: runs with their state, shards, dead letters and rate; directories.

python jobs/status.py ROOT [--run NAME] [--json]
"""

import argparse
import json
import sys

from rich.console import Console

from pipeline import driver
from pipeline.report import status as tables
from pipeline.runs import inventory
from pipeline.runs.status import status
from pipeline.runs.storage import Storage


def run(root: str, name: str | None, as_json: bool) -> int:
    """The job; its exit code. Reads only."""
    storage = Storage(root)
    found = inventory.runs(storage)
    chosen = [each for each in found if name is None or name in (each.name, each.title)]
    if not chosen:
        there = ", ".join(each.name for each in found) or "none"
        raise inventory.NoRuns(f"{storage.root}: no run {name or ''}; there are: {there}")
    states = [status(storage, each) for each in chosen]
    directories = inventory.stage_dirs(storage, found)
    if name is not None:
        directories = [d for d in directories if {each.name for each in chosen} & {*d.runs}]
    if as_json:
        listed = [each.plain() for each in directories]
        print(json.dumps({"runs": states, "directories": listed}, indent=2))
        return driver.DONE
    console = Console(width=None if sys.stdout.isatty() else 130)
    console.print(tables.runs(states))
    for state in states if name is not None else ():
        if state["manifest"]:
            console.print(tables.stages(state))
    console.print(tables.directories(directories))
    return driver.DONE


if __name__ == "__main__":
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("root", help="run.root of the runs' config, a folder or a URI")
    parser.add_argument("--run", help="one run in detail: its directory's name, or run.name")
    parser.add_argument("--json", action="store_true", help="as JSON instead of tables")
    args = parser.parse_args()
    sys.exit(driver.guarded(lambda: run(args.root, args.run, args.json)))
