"""One process at a time owns the directory of an embedded index."""

from __future__ import annotations

import fcntl
import os
from pathlib import Path
from typing import IO

from shared.errors import Misconfigured


def own(path: Path) -> IO[str]:
    """Take the directory for this process; the kernel lets go of it however the process ends."""
    try:
        path.mkdir(parents=True, exist_ok=True)
        lock = (path / "owner.lock").open("a+")
    except OSError as error:
        raise Misconfigured(f"CAIRN_QDRANT_PATH: can't write in {path}: {error}") from error
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        lock.seek(0)
        owner = lock.read().strip() or "unknown"
        lock.close()
        raise Misconfigured(
            f"the embedded index in {path} is in use by process {owner}; it has one owner: stop the other retriever, "
            "choose another CAIRN_QDRANT_PATH, or run several retrievers on a server (CAIRN_QDRANT_URL)"
        ) from error
    lock.truncate(0)
    print(os.getpid(), file=lock, flush=True)
    return lock
