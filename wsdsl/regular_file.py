"""Files that others may have put there."""

import stat
from pathlib import Path


def read_regular(path: Path) -> bytes:
    """Read a file. OSError unless it is regular: opening a FIFO would wait for its writer."""
    if not stat.S_ISREG(path.stat().st_mode):
        raise OSError(f"{path} is not a regular file")
    return path.read_bytes()
