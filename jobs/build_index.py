"""Build a first-stage index over a corpus: BM25, or a bi-encoder's vectors in faiss.

python jobs/build_index.py conf/build_index/demo.yaml [key=value ...] [--dry-run]

A dense index that was stopped half-way goes on where it was: the same command encodes only the
shards that have no vectors yet.
"""

import sys
import time
from typing import Any

from pipeline import driver
from pipeline.config import BuildIndexConfig
from pipeline.engines import bm25, dense_index


def run(cfg: BuildIndexConfig, dry_run: bool) -> int:
    """The job; its exit code."""
    if dry_run:
        return _show(cfg)
    started = time.monotonic()
    manifest = _build(cfg)
    seconds = time.monotonic() - started
    print(f"index: {cfg.index}, {manifest['passages']} passages ({seconds:.1f} s)")
    return driver.DONE


def _build(cfg: BuildIndexConfig) -> dict[str, Any]:
    if cfg.engine == "bm25":
        return bm25.build_index(cfg, _read)
    from pipeline.cluster.encode import encoder  # Ray, for a dense index alone

    encode = encoder(cfg.pool, watchdog_seconds=cfg.watchdog_seconds)
    return dense_index.build_index(cfg, _read, encode)


def _read(count: int) -> None:
    print(f"{count} passages read", file=sys.stderr)


def _show(cfg: BuildIndexConfig) -> int:
    print(f"corpus  {cfg.corpus}\nindex   {cfg.index}\nengine  {cfg.engine}")
    if cfg.engine == "dense":
        build = dense_index.plan(cfg)
        print(f"model   {build.embedder.model}")
        print(f"faiss   {cfg.faiss.kind}, in {cfg.faiss.index_shards} files")
        there = dense_index.finished(build) is not None
        print(f"shards  {'all' if there else dense_index.count_done(build)} encoded before")
    return driver.DONE


if __name__ == "__main__":
    sys.exit(driver.main(__doc__, BuildIndexConfig, run, sys.argv[1:]))
