"""Submit a night's RayJob from inside a cluster, once a date: one that is there is waited for.

python jobs/submit_rayjob.py --manifest=rayjob.yaml --scheduled=JOB-MINUTES --gate=ROOT --wait

Exit codes: 0 done, 1 the RayJob or the API server failed, 2 usage or config, 3 the night did not
pass its gate.
"""

import argparse
import os
import sys
from pathlib import Path

import yaml

from pipeline import driver
from pipeline.nightly import options, schedule, submit
from pipeline.nightly.evaluate import is_done
from pipeline.nightly.rayjobs import RayJobs, server_of
from pipeline.runs.storage import Storage


def run(args: argparse.Namespace) -> int:
    """The job; its exit code."""
    manifest = submit.read_manifest(args.manifest)
    if args.date is not None:
        date = schedule.parsed(args.date)
    else:
        date = schedule.scheduled_date(args.scheduled, args.time_zone)
    cfg = submit.config_of(manifest, date)
    night = submit.night_of(cfg, date)
    made = submit.prepared(manifest, night)
    if args.dry_run:
        print(yaml.safe_dump(made, sort_keys=False), end="")
        return driver.DONE
    storage = Storage(args.gate) if args.gate else None
    if storage is None or not is_done(storage, night, cfg):
        server = args.server or server_of(os.environ)
        jobs = RayJobs(server, Path(args.account), submit.namespace_of(manifest))
        done = "created" if jobs.create(made) else "is there already"
        print(f"RayJob {night.id} {done}", flush=True)
        if args.wait or args.gate:
            submit.wait(jobs, night.id, poll_seconds=args.poll_seconds)
    if storage is None:
        return driver.DONE
    gate = submit.read_gate(storage, night, cfg, poll_seconds=args.poll_seconds)
    print("\n".join([*gate["reasons"], f"gate: {gate['verdict']}"]))
    return driver.DONE if gate["passed"] else driver.GATE


if __name__ == "__main__":
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    options.add(parser)
    args = parser.parse_args()
    sys.exit(driver.guarded(lambda: run(args)))
