"""Write the keys of TLS connections to a file, for Wireshark, if an option is set.

In: the value of `ssl.keylog.file`. Out: a context that writes the keys of its connections there.
Must not: use `SSLKEYLOGFILE` unless the option names it, write to a file that other users may read,
or remain silent: with that file the traffic can be decrypted.
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
    """Return the file; for the word SSLKEYLOGFILE, that variable's value, if it is set."""
    return (os.environ.get(VARIABLE) or None) if value == VARIABLE else value


def log_keys(context: ssl.SSLContext, path: str) -> None:
    """Let a context write its keys to a file that is created for this user only."""
    try:
        os.close(append_privately(path))
        context.keylog_filename = path
    except UnsafeFileError as error:
        raise ConfigurationError(f"{OPTION}: {error}") from None
    except (OSError, ValueError) as error:
        why = (error.strerror if isinstance(error, OSError) else None) or str(error)
        raise ConfigurationError(f"{OPTION}: {path} can't be written: {why}") from None


def warn_of_key_log(path: str) -> None:
    """Warn that key logging was requested."""
    logger.warning(
        "%s: the keys of all TLS connections are written to %s. With this file, the traffic, "
        "including passwords, can be decrypted; don't use it in production",
        *(OPTION, path),
    )
