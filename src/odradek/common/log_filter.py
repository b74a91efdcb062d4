"""R-IN-3: what peers said reaches no log with control characters in it.

In: records of our own loggers. Out: the same; where the text has characters that could steer a
terminal or begin a line of their own, they are escaped. Must not: touch other loggers, or drop
anything. Filters count for what is logged through a logger itself, and not for its children: so
each of ours gets one, by `events`, which all clients import.
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
    """Lets every record through; one with control characters has them escaped."""

    def filter(self, record: logging.LogRecord) -> bool:
        """Look at the whole text. Errors of ours keep their lines: their parts are clean."""
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
    """Give each of our loggers the filter, once."""
    for name in LOGGERS:
        logger = logging.getLogger(name)
        if not any(isinstance(one, PrintableFilter) for one in logger.filters):
            logger.addFilter(PrintableFilter())
