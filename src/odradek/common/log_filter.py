"""Keep control characters of peers out of logs (R-IN-3).

In: records of this package's loggers. Out: the same records; characters that could control a
terminal or begin a line of their own are escaped. Must not: change other loggers, or drop a record.
A logger's filter applies to records logged through this logger, not through its children: so each
logger of this package gets one, from `events`, which all clients import.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

from odradek.common.printable import printable

LOGGERS = (
    "odradek",
    *(f"odradek.{it}" for it in ("compat", "consumer", "metadata", "options")),
    *(f"odradek.{it}" for it in ("record", "spark", "workers")),
)
"""All loggers of the library."""


class PrintableFilter(logging.Filter):
    """Escapes control characters of records; lets every record through."""

    def filter(self, record: logging.LogRecord) -> bool:
        """Escape the whole text; this package's errors keep their lines."""
        given: Any = record.args
        with suppress(TypeError, ValueError, KeyError):  # logging itself reports a broken format
            if record.getMessage().isprintable():
                return True
            if isinstance(given, Mapping):
                given = {name: _argument(one) for name, one in given.items()}
            elif given:
                given = tuple(map(_argument, given))
            text = str(record.msg) % given if given else str(record.msg)
            record.msg, record.args = printable(text, limit=None, lines=True), ()
        return True


def _argument(value: Any) -> Any:
    if isinstance(value, BaseException):
        return printable(str(value), limit=None, lines=hasattr(value, "several_lines"))
    if value is None or isinstance(value, bool | int | float):
        return value
    return printable(str(value))


def guard_loggers() -> None:
    """Add the filter to each of this package's loggers, once."""
    for name in LOGGERS:
        logger = logging.getLogger(name)
        if not any(isinstance(one, PrintableFilter) for one in logger.filters):
            logger.addFilter(PrintableFilter())
