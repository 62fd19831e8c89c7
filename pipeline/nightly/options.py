"""The options of jobs/submit_rayjob.py."""

import argparse

from pipeline.nightly.rayjobs import ACCOUNT


def add(parser: argparse.ArgumentParser) -> None:
    """Adds all of them."""
    add = parser.add_argument
    add("--manifest", required=True, help="YAML file with the RayJob of any night")
    when = parser.add_mutually_exclusive_group(required=True)
    when.add_argument("--date", help="the night's date, YYYY-MM-DD")
    when.add_argument("--scheduled", help="name of the scheduled Job, which ends in its minute")
    add("--time-zone", default="Etc/UTC", help="of the schedule")
    add("--wait", action="store_true", help="until the RayJob has come to its end")
    add("--gate", help="run.root of the nights: wait, and read the verdict there")
    add("--server", help="API server; default: that of the pod's cluster")
    add("--account", default=ACCOUNT, help="folder with token and ca.crt")
    add("--poll-seconds", type=float, default=15.0, help="between two looks at the RayJob")
    add("--dry-run", action="store_true", help="print the manifest and stop")
