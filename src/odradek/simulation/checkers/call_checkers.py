"""Invariants about what callers are promised: ends in time, once, and limits on what is kept.

In: calls as a workload makes them, an engine to look at, the project's error log. Out: violations.
Must not: make calls itself.
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
"""R-RT-2: no call outlives its timeout by more."""
SPARE_TASKS = 32
"""Flows of a client beyond its callers' and its connections': resets, lookups, the updater."""


class CallsEnd:
    """R-RT-2: every call ends by its deadline, and every future is completed."""

    def __init__(self, time: VirtualTime) -> None:
        self.violations: list[Violation] = []
        self._time = time
        self._open: dict[Completion[Any], tuple[str, float]] = {}

    def __len__(self) -> int:
        """How many calls are open."""
        return len(self._open)

    def begin(self, completion: Completion[Any], what: str, deadline: float) -> None:
        """A call was made, or a batch was begun, that must end by its deadline."""
        if completion not in self._open and not completion.done:
            self._open[completion] = (what, deadline)
            completion.when_done(self._ended)

    def excuse(self, until: float) -> None:
        """The client's process is stopped until then: nobody can keep a deadline."""
        for completion, (what, deadline) in self._open.items():
            self._open[completion] = (what, max(deadline, until))

    def _ended(self, completion: Completion[Any]) -> None:
        what, deadline = self._open.pop(completion)
        if self._time.now > deadline + GRACE:
            self._late(what, deadline, "ended")

    def look(self, *, closed: bool = False) -> None:
        """Find calls that are overdue; after its client was closed, those that are open at all."""
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
    """Memory, queues and flows of one client stay within their limits; raises a `Violation`."""
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
        # A first batch is sent whole even where it is larger (KIP-74): one for each leader.
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
    """No bug of its own has ended the client: a future completed twice, a move not in a table."""
    ended = engine.ended
    if isinstance(ended, ClientBrokenError):
        raise Violation(f"{engine.now}: the client broke: {ended}") from ended.__cause__


class Complaints(logging.Handler):
    """Exceptions that a client survived but logged: each is a bug, also at its end."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.violations: list[Violation] = []
        self.repeats = 0
        """Warnings that records will be read again."""

    def emit(self, record: logging.LogRecord) -> None:
        """Keep what was logged with a traceback, and count some warnings."""
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
    """Hear what all clients log, for the length of a run."""
    logger = logging.getLogger("odradek")
    logger.addHandler(complaints)
    propagate, logger.propagate = logger.propagate, False
    try:
        yield complaints
    finally:
        logger.removeHandler(complaints)
        logger.propagate = propagate
