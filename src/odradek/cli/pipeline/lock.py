"""Lock the checkpoints of a running pipeline, so that a second process doesn't write to them.

In: the places of checkpoints. Out: locks, which end with the process, also if it is killed. Places
on other machines (`s3a:`, `hdfs:`) can't be locked from here, and systems without `flock` (Windows)
have no locks.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from odradek.cli.pipeline.checkpoint import local_path
from odradek.common.errors import IllegalStateError


def resolved(place: str) -> str:
    """Return the same text for each way to write the place of a checkpoint."""
    path = local_path(place)
    return place.rstrip("/") if path is None else str(path.resolve())


@contextmanager
def locked(checkpoints: Iterable[str]) -> Iterator[None]:
    """Hold the locks of these checkpoints; raise if another process holds one of them."""
    with ExitStack() as held:
        for place in checkpoints:
            path = local_path(place)
            if path is not None:
                held.enter_context(_locked(path.resolve()))
        yield


@contextmanager
def _locked(checkpoint: Path) -> Iterator[None]:
    try:
        import fcntl
    except ImportError:
        yield
        return
    checkpoint.parent.mkdir(parents=True, exist_ok=True)
    # Beside the folder, which belongs to Spark, and never deleted: a deleted file locks nothing.
    with (checkpoint.parent / f".{checkpoint.name}.lock").open("a+") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            file.seek(0)
            holder = file.read().strip() or "unknown"
            raise IllegalStateError(
                f"another process (pid {holder}) is running a query with the checkpoint "
                f"{checkpoint}. Stop it first, or use another checkpoint"
            ) from None
        file.truncate(0)
        file.write(str(os.getpid()))
        file.flush()
        yield
