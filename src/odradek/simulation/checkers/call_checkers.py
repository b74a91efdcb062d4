"""Check that each call ends once and in time, and that memory stays within limits.

In: calls of a workload, an engine to look at, the project's error log. Out: violations. Must not
make calls itself.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import chain
from typing import Any

from odradek.clients.client_engine import ClientEngine
from odradek.clients.consumer.consumer_engine import ConsumerEngine
from odradek.clients.producer.producer_engine import ProducerEngine
from odradek.common.errors import ClientBrokenError
from odradek.network.flow import Completion
from odradek.simulation.checkers.invariants import Violation
from odradek.simulation.world.virtual_time import VirtualTime

GRACE = 0.1
"""R-RT-2: the longest time by which a call may exceed its timeout."""
SPARE_TASKS = 32
"""Maximum number of flows (generators that the engine runs) beyond one per caller and connection.

The additional ones are resets, lookups and the metadata updater."""


class CallsEnd:
    """Check R-RT-2: every call ends by its deadline, and every future is completed."""

    def __init__(self, time: VirtualTime) -> None:
        self.violations: list[Violation] = []
        self._time = time
        self._open: dict[Completion[Any], tuple[str, float]] = {}

    def __len__(self) -> int:
        """Return the number of open calls."""
        return len(self._open)

    def begin(self, completion: Completion[Any], what: str, deadline: float) -> None:
        """Track a call, or a batch, that must be completed by its deadline."""
        if completion not in self._open and not completion.done:
            self._open[completion] = (what, deadline)
            completion.when_done(self._ended)

    def excuse(self, until: float) -> None:
        """Extend all deadlines to this time, because the client's process is stopped until then."""
        for completion, (what, deadline) in self._open.items():
            self._open[completion] = (what, max(deadline, until))

    def _ended(self, completion: Completion[Any]) -> None:
        what, deadline = self._open.pop(completion)
        if self._time.now > deadline + GRACE:
            self._late(what, deadline, "ended")

    def look(self, *, closed: bool = False) -> None:
        """Note overdue calls as violations; if the client is closed, each open call is overdue."""
        for what, deadline in self._open.values():
            if closed:
                self.violations.append(Violation(f"{what} has no end, though its client has"))
            elif self._time.now > deadline + GRACE:
                self._late(what, deadline, "is still open")

    def _late(self, what: str, deadline: float, how: str) -> None:
        self.violations.append(
            Violation(f"{self._time.now}: {what} {how}; its deadline was {deadline}")
        )


def check_limits(engine: ClientEngine, calls: int) -> None:
    """Raise a `Violation` if memory, queues or flows of a client exceed their limits."""
    if isinstance(engine, ProducerEngine):
        accumulator = engine.accumulator
        if not 0 <= accumulator.used <= accumulator.limit:
            raise Violation(
                f"{engine.now}: {accumulator.used} bytes in buffer.memory of {accumulator.limit}"
            )
    if isinstance(engine, ConsumerEngine):
        waiting = engine.fetcher.waiting
        entries = [*waiting.fetched, *chain.from_iterable(waiting.paused.values())]
        buffered = sum(entry.size for entry in entries)
        config = engine.config
        # Each leader sends its first batch whole, even if that exceeds the limit (KIP-74).
        spare = max((e.size for e in entries), default=0) * len({e.address for e in entries})
        if buffered > config["fetch.max.bytes"] + spare:
            raise Violation(f"{engine.now}: {buffered} bytes wait for the consumer's caller")
    connections = len(engine.network.connections)
    snapshot = engine.metadata.snapshot
    known = len(snapshot.brokers) if snapshot is not None else 0
    if connections > 2 * known + len(engine.config["bootstrap.servers"]) + SPARE_TASKS:
        raise Violation(f"{engine.now}: {connections} connections, {known} brokers are known")
    tasks = engine.flows
    if tasks > calls + connections + SPARE_TASKS:
        raise Violation(f"{engine.now}: {tasks} flows for {calls} calls, {connections} connections")


def check_sound(engine: ClientEngine) -> None:
    """Raise a `Violation` if the client ended because of a bug, such as an unknown transition."""
    ended = engine.ended
    if isinstance(ended, ClientBrokenError):
        raise Violation(f"{engine.now}: the client broke: {ended}") from ended.__cause__


class Complaints(logging.Handler):
    """Collects exceptions that a client logged and survived; each of them is a bug."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.violations: list[Violation] = []
        self.repeats = 0
        """Number of logged warnings that records will be read again."""

    def emit(self, record: logging.LogRecord) -> None:
        """Keep a log record with a traceback, and count warnings of repeated records."""
        self.repeats += "will be read again" in record.msg
        if record.levelno < logging.ERROR:
            return
        if record.exc_info and record.exc_info[1] is not None:
            error = record.exc_info[1]
            text = f"logged: {record.getMessage()}: {type(error).__name__}: {error}"
            violation = Violation(text)
            violation.__cause__ = error
            self.violations.append(violation)


@contextmanager
def listening(complaints: Complaints) -> Iterator[Complaints]:
    """Collect the log records of all clients while the context is open."""
    logger = logging.getLogger("odradek")
    logger.addHandler(complaints)
    propagate, logger.propagate = logger.propagate, False
    try:
        yield complaints
    finally:
        logger.removeHandler(complaints)
        logger.propagate = propagate
