"""A local folder that appears whole or not at all: written beside its place, then renamed."""

import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


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
