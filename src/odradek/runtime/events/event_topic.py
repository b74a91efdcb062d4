"""Write a client's events (R-EV-1) to the topic `events.topic`, to observe many clients.

In: a client's configuration. Out: a listener that queues the client's events, and a producer that
writes them, created in the queue's thread at the first event. The producer connects as the client
does (addresses, security, changed passwords, backoff), or to `events.bootstrap.servers`; events of
this producer aren't published. Must not: let the client wait, fail or stay open.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any, Protocol

from odradek.clients.calls.record_sending import DeliveryCallback
from odradek.clients.producer.batch import RecordMetadata
from odradek.common.config import ALL, OPTIONS, Config
from odradek.common.secret import Secret
from odradek.runtime.events.event_queue import EventQueue

logger = logging.getLogger("odradek")

OWN = {
    "linger.ms": 100,
    "buffer.memory": 4 << 20,
    "max.block.ms": 1000,  # the thread must soon notice `close`
    "delivery.timeout.ms": 3_600_000,
}
"""Options of the producer of events.

Most events are about outages, so they are buffered until an outage ends: up to one hour or 4 MiB.
"""


class EventProducer(Protocol):
    """Interface of the producer that writes events."""

    def send(
        self,
        topic: str,
        value: bytes | None = None,
        key: bytes | None = None,
        *,
        timestamp_ms: int | None = None,
        on_delivery: DeliveryCallback | None = None,
    ) -> object:
        """Send one record; return the future of its result."""

    def set_sasl_credentials(self, username: str, password: str) -> None:
        """Use another user name and password from now on."""

    def close(self, timeout: float) -> None:
        """Send the buffered records, then close."""


class EventTopic:
    """The publication of one client's events in a topic; `queue` is the listener."""

    def __init__(self, config: Config, make: Callable[[dict[str, Any]], EventProducer]) -> None:
        """Read the settings; `make` is the function that creates the producer."""
        self._topic: str = config["events.topic"]
        self._client: str = config["client.id"]
        self._settings = producer_settings(config)
        self._credentials: tuple[str, Secret] | None = None
        self._make = make
        self._producer: EventProducer | None = None
        servers = self._settings["bootstrap.servers"]
        where = servers if isinstance(servers, str) else ",".join(str(a) for a in servers)
        self.queue = EventQueue(self._open, self._client, where=f"{self._topic} at {where}")

    def set_sasl_credentials(self, username: str, password: str) -> None:
        """Use the client's new user name and password from now on; any thread may call this."""
        self._credentials = username, Secret(password)
        self._tell(self._producer)

    def _tell(self, producer: EventProducer | None) -> None:
        if producer is not None and self._credentials is not None:
            username, password = self._credentials
            producer.set_sasl_credentials(username, password.reveal())

    def _open(self) -> _TopicSink:
        self._producer = made = self._make(self._settings)
        # Set credentials that were replaced before the producer existed, before its first call
        # connects; `set_sasl_credentials` sets later ones.
        self._tell(made)
        return _TopicSink(made, self._topic, self._client)


def producer_settings(config: Config) -> dict[str, Any]:
    """Return the settings of the producer of events, which connects as the client does."""
    elsewhere = config["events.bootstrap.servers"] is not None
    settings = {
        name: value
        for name, value in config.stated.items()
        if not name.startswith("events.")
        and OPTIONS[name].clients == ALL
        and not (elsewhere and name == "cluster.id.expected")
    }
    if elsewhere:
        settings["bootstrap.servers"] = config.stated["events.bootstrap.servers"]
    return {**settings, "client.id": f"{config['client.id']}-events", **OWN}


class _TopicSink:
    """Sink that sends the lines of one client in order, to one partition."""

    def __init__(self, producer: EventProducer, topic: str, client: str) -> None:
        self._producer = producer
        self._topic = topic
        self._key = client.encode()
        self._client = client
        self._warned = False

    def send(self, line: bytes, at: float) -> None:
        """Send one line as a record."""
        self._producer.send(
            self._topic, line, self._key, timestamp_ms=int(at * 1000), on_delivery=self._outcome
        )

    def _outcome(self, error: BaseException | None, metadata: RecordMetadata) -> None:
        if error is not None and not self._warned:
            self._warned = True
            logger.warning(
                "[%s] an event couldn't be published to %s: %s", self._client, self._topic, error
            )

    def close(self, timeout: float) -> None:
        """Send accepted lines for at most `timeout` seconds, then close the producer."""
        self._producer.close(timeout)
