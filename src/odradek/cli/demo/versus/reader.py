"""The process of one reader: runs its plain code and says on standard output what came when.

In: its module, the bootstrap address, topic and number of partitions as arguments. Out: one JSON
line for each row and for what it complains of (its warnings too, one a second at most). It ends
when its standard input does, so it never outlives the demo. Must not: help the reader.
"""

from __future__ import annotations

import importlib
import json
import logging
import os
import sys
import threading
import time

COMPLAINTS_S = 1.0
"""Seconds between two complaints that are passed on."""


class Reporter(logging.Handler):
    """Where a reader's rows and complaints go."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self._complained = 0.0

    def got(self, value: bytes) -> None:
        """A record was handed to the reader's caller."""
        self._say({"at": time.time(), "row": json.loads(value)["row"]})

    def failed(self, error: str) -> None:
        """The client says that something is wrong."""
        now = time.time()
        if now - self._complained >= COMPLAINTS_S:
            self._complained = now
            self._say({"at": now, "error": error[:500]})

    def emit(self, record: logging.LogRecord) -> None:
        """Pass on what the client logs as a warning or worse."""
        self.failed(record.getMessage())

    def _say(self, item: dict[str, object]) -> None:
        os.write(1, json.dumps(item).encode() + b"\n")  # whole: it is less than a pipe takes


def _end_with_parent() -> None:
    while os.read(0, 1024):  # not sys.stdin: its lock would disturb the end of the interpreter
        pass
    os._exit(0)


def main() -> None:
    """Run one reader until the demo ends it."""
    module, bootstrap, topic, partitions = sys.argv[1:]
    reporter = Reporter()
    logging.basicConfig(level=logging.WARNING, handlers=[reporter])
    threading.Thread(target=_end_with_parent, daemon=True).start()
    read = importlib.import_module(module).read
    read(bootstrap, topic, list(range(int(partitions))), reporter)


if __name__ == "__main__":
    main()
