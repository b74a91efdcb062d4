"""Escape control characters in log messages, whose texts may come from brokers (R-IN-3).

In: log records of this package's loggers. Out: the log records, in which characters that could
control a terminal or begin a forged line are escaped. Must not: change other loggers, or drop a log
record. A logger's filter doesn't apply to its child loggers, so each logger of this package gets a
filter when `events` is imported, which all clients do.
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
"""Names of all loggers of the library."""


class PrintableFilter(logging.Filter):
    """Logging filter that escapes control characters, and drops no log record."""

    def filter(self, record: logging.LogRecord) -> bool:
        """Escape the whole message; line breaks in errors of this package are kept."""
        given: Any = record.args
        with suppress(TypeError, ValueError, KeyError):  # `logging` reports a wrong format
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
