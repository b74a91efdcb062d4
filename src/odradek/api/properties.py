"""Reads a settings file of a Java client or of librdkafka's, to be used as it is.

In: a path. Out: a dict for `Producer`, `Consumer` or `Admin`. Must not: show a value, or drop a
setting without a word: what means nothing here is warned of by name.
"""

from __future__ import annotations

import logging
import os
from pathlib import Path
from typing import Any

from odradek.common.config import ADMIN, CONSUMER, PRODUCER
from odradek.common.errors import ConfigurationError
from odradek.common.properties import idle_names, parse_properties
from odradek.common.spellings import sealed

logger = logging.getLogger("odradek")


def read_properties(path: str | os.PathLike[str], client: str | None = None) -> dict[str, Any]:
    """Read a file in Java's properties format (librdkafka's `name=value` files are such, too).

    `client` is "producer", "consumer" or "admin" where a file serves several kinds of clients:
    options of the others are left out then. Settings that mean nothing to Odradek (serializers,
    metrics, librdkafka's queues …) are left out with a warning that names them; names that nobody
    knows stay in, and are errors of the client. Passwords and keys come as `Secret`, which doesn't
    print. Raises `ConfigurationError` where the file can't be read.
    """
    if client not in (None, PRODUCER, CONSUMER, ADMIN):
        raise ConfigurationError(f"client must be producer, consumer or admin, not {client!r}")
    found = sealed(parse_properties(_text(path)))
    idle = idle_names(found, client)
    if idle:
        logger.warning("%s: these mean nothing here: %s", os.fspath(path), ", ".join(sorted(idle)))
    return {name: value for name, value in found.items() if name not in idle}


def _text(path: str | os.PathLike[str]) -> str:
    try:
        return Path(path).read_text(encoding="utf-8-sig")
    except OSError as error:
        problem = f"can't be read: {error.strerror or error}"
    except UnicodeDecodeError as error:
        problem = f"isn't UTF-8 text: {error.reason} at byte {error.start}"
    raise ConfigurationError(f"{os.fspath(path)} {problem}")
