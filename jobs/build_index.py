"""Build a BM25 index over a FlashRAG corpus.

python jobs/build_index.py conf/build_index/demo.yaml [key=value ...] [--dry-run]
"""

import sys
import time

from pipeline import driver
from pipeline.config import BuildIndexConfig
from pipeline.engines import bm25


def run(cfg: BuildIndexConfig, dry_run: bool) -> int:
    """The job; its exit code."""
    if dry_run:
        print(f"corpus  {cfg.corpus}\nindex   {cfg.index}")
        return driver.DONE
    started = time.monotonic()
    manifest = bm25.build_index(cfg, lambda n: print(f"{n} passages read", file=sys.stderr))
    seconds = time.monotonic() - started
    print(f"index: {cfg.index}, {manifest['passages']} passages ({seconds:.1f} s)")
    return driver.DONE


if __name__ == "__main__":
    sys.exit(driver.main(__doc__, BuildIndexConfig, run, sys.argv[1:]))
