"""The keys of TLS connections in a file, for Wireshark: only where an option asks for it.

In: the value of `ssl.keylog.file`. Out: a context that writes the keys of its connections there.
Must not: look at `SSLKEYLOGFILE` without being asked, write to a file that others may read, or stay
silent: whoever has that file can read all that was said.
"""

from __future__ import annotations

import logging
import os
import ssl

from odradek.common.errors import ConfigurationError
from odradek.runtime.private_files import UnsafeFileError, append_privately

logger = logging.getLogger("odradek")

OPTION, VARIABLE = "ssl.keylog.file", "SSLKEYLOGFILE"


def key_log_path(value: str | None) -> str | None:
    """The file that is meant: the word SSLKEYLOGFILE asks for what that variable names, if any."""
    return (os.environ.get(VARIABLE) or None) if value == VARIABLE else value


def log_keys(context: ssl.SSLContext, path: str) -> None:
    """Have a context write its keys to a file that is made for this user only."""
    try:
        os.close(append_privately(path))
        context.keylog_filename = path
    except UnsafeFileError as error:
        raise ConfigurationError(f"{OPTION}: {error}") from None
    except (OSError, ValueError) as error:
        why = (error.strerror if isinstance(error, OSError) else None) or str(error)
        raise ConfigurationError(f"{OPTION}: {path} can't be written: {why}") from None


def warn_of_key_log(path: str) -> None:
    """Say what was asked for."""
    logger.warning(
        "%s: the keys of all TLS connections are written to %s. With this file, the traffic, "
        "including passwords, can be decrypted; don't use it in production",
        *(OPTION, path),
    )
