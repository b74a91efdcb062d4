"""The keys of TLS connections in a file, for Wireshark: only where an option asks for it.

In: the value of `ssl.keylog.file`. Out: a context that writes the keys of its connections there.
Must not: look at `SSLKEYLOGFILE` unasked, write to a file that others may read, or stay silent:
whoever has that file can read all that was said.
"""

from __future__ import annotations

import logging
import os
import ssl
import stat

from odradek.common.errors import ConfigurationError

logger = logging.getLogger("odradek")

OPTION, VARIABLE = "ssl.keylog.file", "SSLKEYLOGFILE"
FLAGS = os.O_WRONLY | os.O_APPEND | os.O_CREAT | getattr(os, "O_CLOEXEC", 0)
FLAGS |= getattr(os, "O_NONBLOCK", 0)  # a pipe without a reader would block for ever


def key_log_path(value: str | None) -> str | None:
    """The file that is meant: the word SSLKEYLOGFILE asks for what that variable names, if any."""
    return (os.environ.get(VARIABLE) or None) if value == VARIABLE else value


def log_keys(context: ssl.SSLContext, path: str) -> None:
    """Have a context write its keys to a file that is made for this user only."""
    try:
        number = os.open(path, FLAGS, 0o600)
        try:
            found = os.fstat(number)
        finally:
            os.close(number)
        mode = found.st_mode
        if not stat.S_ISREG(mode):
            raise ConfigurationError(f"{OPTION}: {path} isn't a file")
        if os.name == "posix" and found.st_uid != os.geteuid():
            raise ConfigurationError(f"{OPTION}: {path} is somebody else's file")
        if os.name == "posix" and mode & (stat.S_IRWXG | stat.S_IRWXO):
            raise ConfigurationError(
                f"{OPTION}: {path} is there already, and others than its owner may use it: "
                "chmod 600, or name a file that isn't there"
            )
        context.keylog_filename = path
    except ConfigurationError:
        raise
    except (OSError, ValueError) as error:
        why = (error.strerror if isinstance(error, OSError) else None) or str(error)
        raise ConfigurationError(f"{OPTION}: {path} can't be written: {why}") from None


def warn_of_key_log(path: str) -> None:
    """Say what was asked for."""
    logger.warning(
        "%s: the keys of all TLS connections go to %s: whoever reads that file can read what they "
        "carry, passwords too; not for production",
        *(OPTION, path),
    )
