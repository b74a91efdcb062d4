"""Write the keys of TLS connections to a file if an option is set, to use them in Wireshark.

In: the value of `ssl.keylog.file`. Out: a TLS context that writes its connections' keys to the
file. Must not: use `SSLKEYLOGFILE` unless the option names it, write to a file that other users can
read, or omit a warning: with the file, the traffic can be decrypted.
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
    """Return the file's path; for the word SSLKEYLOGFILE, the value of this variable, if set."""
    return (os.environ.get(VARIABLE) or None) if value == VARIABLE else value


def log_keys(context: ssl.SSLContext, path: str) -> None:
    """Let a TLS context write keys to a file that only this user can read."""
    try:
        os.close(append_privately(path))
        context.keylog_filename = path
    except UnsafeFileError as error:
        raise ConfigurationError(f"{OPTION}: {error}") from None
    except (OSError, ValueError) as error:
        why = (error.strerror if isinstance(error, OSError) else None) or str(error)
        raise ConfigurationError(f"{OPTION}: {path} can't be written: {why}") from None


def warn_of_key_log(path: str) -> None:
    """Log a warning that TLS keys are written to a file."""
    logger.warning(
        "%s: the keys of all TLS connections are written to %s. With this file, the traffic, "
        "including passwords, can be decrypted; don't use it in production",
        *(OPTION, path),
    )
