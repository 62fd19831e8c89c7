"""Information gain pruning over a file of questions: retrieve, probe, select, answer, evaluate.

python jobs/offline_igp.py conf/offline_igp/demo.yaml [key=value ...] [--dry-run]
"""

import sys

from pipeline import driver
from pipeline.config import OfflineIgpConfig

if __name__ == "__main__":
    sys.exit(driver.main(__doc__, OfflineIgpConfig, driver.run, sys.argv[1:]))
