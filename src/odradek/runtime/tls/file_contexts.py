"""Create a TLS context again when one of its files changes.

In: files, a function that reads them. Out: `FileContexts.context()`, called for each connection, so
that files that are replaced on disk are used from the next connection on. Must not: let an invalid
new file break a working client: the old context is kept, with a warning.
"""

from __future__ import annotations

import logging
import ssl
from collections.abc import Callable, Sequence
from pathlib import Path

from odradek.common.errors import ConfigurationError

logger = logging.getLogger("odradek")

TlsSource = Callable[[], ssl.SSLContext]
"""Returns the context of the next connection."""
Signature = tuple[tuple[int, ...] | None, ...]


class FileContexts:
    """The context of one client; callable in any thread."""

    def __init__(
        self, files: Sequence[str], build: TlsSource, given: ssl.SSLContext | None = None
    ) -> None:
        """Set `given`, a context from the user, which is never replaced."""
        self._files = () if given is not None else tuple(files)
        self._build = build
        # One tuple, so that all threads see a context together with the state of its files.
        self._now: tuple[ssl.SSLContext, Signature] | None = None
        if given is not None:
            self._now = given, ()
        self._told: Signature | None = None
        """State of the files for which a warning was logged."""

    def context(self) -> ssl.SSLContext:
        """Return the context for a connection; raise only if there was no valid one yet."""
        if self._now is None:
            signature = self._look()
            self._now = self._build(), signature
        elif self._files and (found := self._look()) != self._now[1]:
            self._renew(found)
        return self._now[0]

    def _renew(self, found: Signature) -> None:
        """Read changed files; retry a failure at each connection, and report it once.

        `found` is the state before the files are read, so that a change in between is noticed at
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
