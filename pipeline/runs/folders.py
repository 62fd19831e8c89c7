"""A local folder that appears whole or not at all: written beside its place, then renamed."""

import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from pipeline.runs import lease
from pipeline.runs.storage import Storage


@contextmanager
def whole_folder(target: Path) -> Iterator[Path]:
    """An empty folder to fill, which becomes `target` when the block ends, in place of an older
    one; after an error it is gone and `target` is as it was."""
    target.parent.mkdir(parents=True, exist_ok=True)
    scratch = Path(tempfile.mkdtemp(prefix=f".{target.name}-", dir=target.parent))
    try:
        yield scratch
        os.chmod(scratch, 0o755)
        if target.exists():
            shutil.rmtree(target)
        os.rename(scratch, target)
    except BaseException:
        shutil.rmtree(scratch, ignore_errors=True)
        raise


@contextmanager
def sole_writer(target: Path) -> Iterator[None]:
    """Holds a lease on a folder that is yet to appear; LeaseHeld while another process has it.

    The lease lies beside the folder, which `whole_folder` replaces, and nothing is left of it.
    """
    place = f".{target.name}.lease"
    try:
        with lease.hold(Storage(str(target.parent)), [place]):
            yield
    finally:
        with suppress(OSError):  # not empty, or gone: another writer holds it or has held it
            os.rmdir(target.parent / place)
