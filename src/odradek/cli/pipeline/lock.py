"""Lock the checkpoints of a running pipeline, so that a second process doesn't write to them.

In: paths or URLs of checkpoints. Out: locks, which end with the process, even if it is killed.
Checkpoints on other machines (`s3a:`, `hdfs:`) can't be locked from here, and systems without
`flock` (Windows) have no locks. Must not: stop a pipeline for any other reason than a held lock.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from odradek.cli.pipeline.checkpoint import local_path
from odradek.common.errors import IllegalStateError

logger = logging.getLogger("odradek.spark")


def resolved(place: str) -> str:
    """Return a checkpoint's location in a canonical form."""
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
    """Hold the lock of a folder; the lock also covers other paths to the same folder."""
    try:
        import fcntl
    except ImportError:
        yield
        return
    with ExitStack() as closing:
        try:
            checkpoint.mkdir(parents=True, exist_ok=True)
            folder = os.open(checkpoint, os.O_RDONLY | os.O_DIRECTORY)
            closing.callback(os.close, folder)
            fcntl.flock(folder, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise IllegalStateError(
                f"another process is running a query with the checkpoint {checkpoint}. Stop it "
                "first, or use another checkpoint"
            ) from None
        except OSError as error:  # some network file systems have no locks
            logger.warning(
                "the checkpoint %s can't be locked (%s): make sure that no other process runs a "
                "query with it",
                *(checkpoint, error),
            )
        yield
