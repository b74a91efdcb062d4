"""Report what a client does without being called, as typed events (R-EV-1).

In: state changes that the packages report (connecting, ready, failed, backoff, refresh,
rebootstrap, retry). Out: events for the log (at DEBUG; `outage_log` turns events into readable
lines), counters, the user's listener, `ODRADEK_EVENTS_DIR` and the trace of a simulation; the texts
of brokers in them are printable (R-IN-3). Must not: contain a secret or a record's bytes, or read a
clock (`at` is an argument).
"""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any, NamedTuple

from odradek.common.log_filter import guard_loggers
from odradek.common.printable import LONGEST, cleaned, printable

logger = logging.getLogger("odradek")
guard_loggers()

# The kinds of events, each described with its fields; users filter events by kind.
KINDS: dict[str, str] = {
    "dial": "a connection attempt begins: address, purpose, ip, connection",
    "connected": "the TCP (and TLS) connection is established: address",
    "ready": "the broker answered ApiVersions: address, purpose, seconds",
    "dial_failed": "a connection attempt failed: address, error, failures, backoff",
    "disconnected": "an established connection was lost or closed: address, error, in_flight, "
    "failure",
    "reauthenticated": "a connection in use was authenticated again (KIP-368): address, held, "
    "seconds",
    "proved": "a connection answered its first request, so the address's backoff is reset: address",
    "dns_failed": "a host name couldn't be resolved: address, error",
    "metadata_request": "the client sent a metadata request: address, why, topics, round",
    "metadata": "a broker answered a metadata request: address, brokers, cluster_id, leaders, "
    "leaderless",
    "silent": "an address sent no data for the suspicion time: address, seconds, ready, held",
    "heard": "an address that had sent no data sent data again: address, ready",
    "metadata_failed": "a metadata refresh failed with one address: address, what, error, round, "
    "failure",
    "round_failed": "a metadata refresh failed with all addresses and is retried after a "
    "backoff: round, backoff",
    "rebootstrap": "the client starts again from bootstrap.servers: why, known",
    "rebootstrapped": "the client found its cluster through bootstrap.servers: address, seconds, "
    "cluster_id",
    "foreign_cluster": "the client rejected an answer from a different cluster: address, "
    "expected, found",
    "retry": "a request is retried: what, error, attempt, backoff",
    "coordinator": "the coordinator of a group or transaction was found or lost: what, broker, why",
    "group": "a group member changed its state; fields: what, state, event, why",
    "split": "a batch is sent again in smaller parts, or without rejected records: what, parts",
    "transaction": "a transactional producer changed its state; fields: what, state, event, why",
    "skipped": "the consumer skipped unreadable records: topic, partition, offset, next_offset, "
    "error",
    "first_ack": "the first batch was acknowledged after a failure: topic, partition",
    "first_record": "the first records arrived after a failure: topic, partition",
    "without": "the client works without a feature that the brokers lack: what, error",
    "expired": "a batch or call timed out: what",
    "broken": "the client failed and can't continue: error",
    "closed": "the client was closed: no fields",
}


class Event(NamedTuple):
    """One event of a client; `at` is its time in seconds on the client's monotonic clock."""

    at: float
    kind: str
    fields: Mapping[str, Any] = MappingProxyType({})

    def __str__(self) -> str:
        details = " ".join(f"{k}={v}" for k, v in self.fields.items() if v is not None)
        return f"{self.kind} {details}".rstrip()


Listener = Callable[[Event], None]


class EventLog:
    """The events of one client: counts by kind, and listeners that are called."""

    __slots__ = ("_client", "_listeners", "counts", "surface")

    def __init__(self, client: str) -> None:
        self._client = client
        self._listeners: list[Listener] = []
        self.counts: dict[str, int] = {}
        self.surface: Callable[[BaseException], None] | None = None
        """Function that receives a listener's exception if that ends the program (`SystemExit`)."""

    def surfaces_by(self, surface: Callable[[BaseException], None]) -> None:
        """Set `surface`, the function that receives exceptions that end the program."""
        self.surface = surface

    def listen(self, listener: Listener) -> None:
        """Add a listener; it must be quick, because the client calls it within its own work."""
        self._listeners.append(listener)

    def emit(self, at: float, kind: str, **fields: Any) -> None:
        """Report one event; `kind` is a key of `KINDS`."""
        if kind not in KINDS:
            raise ValueError(f"unknown kind of event: {kind}")
        event = Event(at, kind, {name: _shown(value) for name, value in fields.items()})
        self.counts[kind] = self.counts.get(kind, 0) + 1
        if logger.isEnabledFor(logging.DEBUG):
            logger.debug("[%s] %s", self._client, event)
        for listener in self._listeners:
            try:
                listener(event)
            except Exception:  # an error in user code mustn't stop the client
                logger.exception(
                    "[%s] an event listener raised an error for the event: %s", self._client, event
                )
            except BaseException as error:
                if self.surface is None:
                    raise
                self.surface(error)


def _shown(value: Any) -> Any:
    """Return a field's value with all its texts printable (R-IN-3); usually only a quick check."""
    if type(value) is str:
        return value if value.isprintable() and len(value) <= LONGEST else printable(value)
    return value if value is None or isinstance(value, bool | int | float) else cleaned(value)


def event_line(event: Event, time: float, host: str, pid: int, client: str) -> bytes:
    """Return an event as a line of JSON, with seconds since 1970, host, process id and client."""
    from json import dumps  # imported late: most clients don't need it

    fields = {str(name): _plain(value) for name, value in event.fields.items()}
    where = {"time": time, "host": host, "pid": pid, "client": client}
    whole = {**fields, **where, "kind": event.kind}
    return dumps(whole, default=str).encode() + b"\n"


def _plain(value: Any) -> Any:
    """Return a value for JSON, with a replacement for infinity and NaN."""
    return str(value) if isinstance(value, float) and not math.isfinite(value) else value
