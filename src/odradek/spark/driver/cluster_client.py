"""Hold the driver's client, and retry its requests through outages (`ClusterClient`).

In: a function of the client, and the caller's time limit. Out: its result. In an outage it retries
for as long as the query tolerates, logs a warning every 30 s, and creates a new client after a
fatal error. Must not: know offsets or topics.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from odradek.common.errors import KafkaError
from odradek.spark.checkpoint_errors import OutageError
from odradek.spark.options.source_options import SourceOptions
from odradek.spark.tasks.worker_clients import Clock

if TYPE_CHECKING:
    from odradek.api.consumer import Consumer

logger = logging.getLogger("odradek.spark")

T = TypeVar("T")

ATTEMPT_S = 10.0
"""Seconds for one call of the client; an outage is a series of such calls."""
FIRST_CONTACT_S = 20.0
"""Seconds for which an outage is tolerated before the first contact.

At that time a wrong address is more likely than an outage, and must fail soon: the query fails
within 30 s, including the start of Spark's processes."""
SHORT_WAIT_S = 10.0
"""Seconds for which `latest` waits in an outage before it returns "nothing new".

Spark can stop a query only between its calls.
"""
LEAST_S = 0.5
"""Minimum timeout in seconds of each call, even at the end of the tolerated time."""
LOG_EVERY_S = 30.0


class Clients(Protocol):
    """Source of the driver's clients; `drop` closes one that has failed."""

    def connect(self, config: Mapping[str, Any]) -> Consumer: ...
    def drop(self, client: Consumer) -> None: ...


class OutageContinuesError(Exception):
    """The outage lasts beyond the caller's deadline, but the query still tolerates it."""


class ClusterClient:
    """One client, used by one thread."""

    def __init__(
        self, options: SourceOptions, clients: Clients, clock: Clock, *, forget: Callable[[], None]
    ) -> None:
        """Take `forget`, called after each retriable error because cached results may be wrong."""
        self._options, self._clients, self._clock = options, clients, clock
        self._forget = forget
        self._client: Consumer | None = None
        self._contacted = False
        self._outage_since: float | None = None
        self._logged_at = 0.0
        self._attempts = 0
        self.expected: str | None = None
        """Id of the expected cluster; None until a checkpoint has named it."""
        self.known = False
        """Whether a checkpoint shows that this cluster was reached before."""

    def client(self) -> Consumer:
        """Return the client, created by the first call."""
        if self._client is None:
            self._client = self._clients.connect(self._options.consumer_config(self.expected))
        return self._client

    def close(self) -> None:
        """Close the client; the next request creates a new one."""
        if self._client is not None:
            self._clients.drop(self._client)
            self._client = None

    def pause(self) -> None:
        """Wait for the retry interval."""
        self._clock.pause(self._options.retry_interval)

    def deadline(self) -> float:
        """Return the deadline of a caller that gives up before the query's tolerance ends."""
        return self._clock.now() + SHORT_WAIT_S

    def ask(self, what: str, question: Callable[[Consumer, float], T], until: float | None) -> T:
        """Call `question` with a client; in an outage, retry for as long as the query tolerates.

        Raises `OutageContinuesError` at `until`, if the caller's deadline is earlier.
        """
        begun = self._clock.now()
        # Copied: `question` may call `ask` too, and success of that call doesn't end this outage.
        since, attempts = self._outage_since, self._attempts
        while True:
            try:
                answer = question(self.client(), self.timeout(until, begun))
            except KafkaError as error:
                last = error
                self._after(error)
                attempts += 1
            else:
                self._contacted, self._outage_since, self._attempts = True, None, 0
                return answer
            if since is None:
                since = self._logged_at = begun
            self._outage_since, self._attempts = since, attempts
            self._go_on(what, last, begun, until)
            if until is not None and self._clock.now() >= until:
                raise OutageContinuesError
            self.pause()

    def timeout(self, until: float | None, begun: float | None = None) -> float:
        """Return the seconds that one client call may take now; `begun`: when its request began."""
        now = self._clock.now()
        since = now if self._outage_since is None else self._outage_since
        own = (now if begun is None else begun) + self._patience()
        left = [ATTEMPT_S, max(since + self._tolerance(), own) - now]
        if until is not None:
            left.append(until - now)
        return max(LEAST_S, min(left))

    def _tolerance(self) -> float:
        known = self._contacted or self.known
        return self._options.outage_tolerance if known else FIRST_CONTACT_S

    def _patience(self) -> float:
        """Return the seconds for which each request is tried, even late in a long outage."""
        return min(SHORT_WAIT_S, self._tolerance())

    def _go_on(self, what: str, last: KafkaError, begun: float, until: float | None) -> None:
        """Raise `OutageError` if the outage is too long; otherwise log it from time to time."""
        now = self._clock.now()
        lasted = now - (now if self._outage_since is None else self._outage_since)
        # `until` is relative to the caller's start, which may be before this request's start.
        tried = now - begun >= self._patience() or (until is not None and now >= until)
        too_long = lasted >= self._tolerance() and self._attempts >= self._options.fetch_attempts
        if too_long and tried:
            known = self._contacted or self.known
            limit = "option outageTolerance" if known else "it has never answered before"
            raise OutageError(
                f"no usable answer from {self._options.kafka['bootstrap.servers']} "
                f"(kafka.bootstrap.servers) for {lasted:.0f} s while {what} ({limit}). "
                f"Last error: {last}"
            ) from last
        if now - self._logged_at >= LOG_EVERY_S:
            self._logged_at = now
            logger.warning(
                "no usable answer for %.0f s while %s; retrying. Last error: %s", lasted, what, last
            )

    def _after(self, error: KafkaError) -> None:
        """Decide by the class of an error whether the query can continue (R-RT-3)."""
        if error.fatal:
            self.close()
        if isinstance(error, OutageError) or error.fatal or not error.retriable:
            raise error
        self._forget()
