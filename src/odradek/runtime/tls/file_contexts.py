"""Recreate a TLS context when one of its files changes.

In: files, a function that creates a context from them. Out: `FileContexts.context()`, called for
each connection, so that replaced files are used from the next connection on. Must not: let an
invalid new file break a working client: the old context is kept, and a warning is logged.
"""

from __future__ import annotations

import logging
import ssl
from collections.abc import Callable, Sequence
from pathlib import Path

from odradek.common.errors import ConfigurationError

logger = logging.getLogger("odradek")

TlsSource = Callable[[], ssl.SSLContext]
"""Type of a function that returns the TLS context of the next connection."""
Signature = tuple[tuple[int, ...] | None, ...]


class FileContexts:
    """The TLS context of one client, which any thread may request."""

    def __init__(
        self, files: Sequence[str], build: TlsSource, given: ssl.SSLContext | None = None
    ) -> None:
        """Set `given`, an optional context from the user, which is never replaced."""
        self._files = () if given is not None else tuple(files)
        self._build = build
        # One tuple, so that threads never see a context with the state of other files.
        self._now: tuple[ssl.SSLContext, Signature] | None = None
        if given is not None:
            self._now = given, ()
        self._told: Signature | None = None
        """State of the files for which a warning was logged; None if there was no warning."""

    def context(self) -> ssl.SSLContext:
        """Return the context for a connection; raise only if no valid context was ever created."""
        if self._now is None:
            signature = self._look()
            self._now = self._build(), signature
        elif self._files and (found := self._look()) != self._now[1]:
            self._renew(found)
        return self._now[0]

    def _renew(self, found: Signature) -> None:
        """Read changed files; after a failure, retry at each connection, but log it once.

        `found` is the state of the files before they are read, so that a later change is noticed at
        the next connection.
        """
        try:
            self._now = self._build(), found
        # The error may be temporary, such as a missing mount.
        except Exception as error:
            if found != self._told:
                self._told = found
                what = str(error) if isinstance(error, ConfigurationError) else type(error).__name__
                logger.warning(
                    "a changed key or certificate file can't be used, so the client "
                    "continues with its previous content: %s",
                    what,
                )
        else:
            self._told = None
            logger.info("keys and certificates were reloaded: %s", ", ".join(self._files))

    def _look(self) -> Signature:
        return tuple(_signature(path) for path in self._files)


def _signature(path: str) -> tuple[int, ...] | None:
    """Return numbers that change if a file, or any file of a folder, changes."""
    found = _of_file(Path(path))
    if found is None or not Path(path).is_dir():
        return found
    try:
        files = sorted(Path(path).iterdir())
    except OSError:
        return None
    return tuple(number for file in files for number in _of_file(file) or (0,))


def _of_file(path: Path) -> tuple[int, ...] | None:
    try:
        found = path.stat()
    except (OSError, ValueError):
        return None
    return (found.st_mtime_ns, found.st_ctime_ns, found.st_size, found.st_ino, found.st_dev)
