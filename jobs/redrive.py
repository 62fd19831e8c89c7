"""The dead letters of a finished run once more, after their cause outside of the config is gone.

python jobs/redrive.py conf/offline_igp/demo.yaml [key=value ...] [--dry-run]
python jobs/redrive.py --contexts conf/precompute_contexts/demo.yaml [key=value ...] [--dry-run]

The config and overrides are those of the run, which is found by its fingerprint; --contexts says
that it is one of jobs/precompute_contexts.py, which then publishes what the redrive has made.
"""

import sys

from pipeline import driver
from pipeline.config import OfflineIgpConfig, PrecomputeConfig

CONTEXTS = "--contexts"

if __name__ == "__main__":
    kind = PrecomputeConfig if CONTEXTS in sys.argv else OfflineIgpConfig
    arguments = [argument for argument in sys.argv[1:] if argument != CONTEXTS]
    sys.exit(driver.main(__doc__, kind, driver.redrive_run, arguments))
