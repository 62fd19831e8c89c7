"""The dead letters of a finished run once more, after their cause outside of the config is gone.

python jobs/redrive.py conf/offline_igp/demo.yaml [key=value ...] [--dry-run]

The config and overrides are those of the run, which is found by its fingerprint.
"""

import sys

from pipeline import driver
from pipeline.config import OfflineIgpConfig

if __name__ == "__main__":
    sys.exit(driver.main(__doc__, OfflineIgpConfig, driver.redrive_run, sys.argv[1:]))
