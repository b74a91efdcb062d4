"""Define the rules of other clients for connections and metadata, for comparisons.

In: the released engine, with other `Parts`. Out: strategies by name. Must not be used by released
code.

Java's rules are written from the behaviour of Kafka's own client (trunk, August 2026). Modelled
are: the choice of a node for metadata and for connections; the timing of refreshes, with jitter
redrawn at every check; a failure for each disconnect while a refresh is due; both triggers of a
rebootstrap (no node is available for a due refresh; 300 s without success); backoff reset as soon
as ApiVersions is answered; no limit on connection attempts except the backoff of each address; no
suspicion of silent connections. Not modelled: backoff by node id instead of address (the same here,
since replaced brokers have other addresses); sends held back while a refresh is due. Requests,
retries of batches and the wire are Odradek's own in every strategy, so only the rules differ.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, cast

from odradek.clients.client_engine import SHIPPED, Parts
from odradek.common.backoff import ExponentialBackoff
from odradek.common.config import Config
from odradek.common.errors import KafkaError
from odradek.common.errors.kafka import RebootstrapRequiredError
from odradek.common.types import Address, Rng
from odradek.metadata.bootstrap import Rebootstrap
from odradek.metadata.metadata_updater import MetadataUpdater
from odradek.metadata.round import PendingRequest
from odradek.network.cluster_connection_states import ClusterConnectionStates
from odradek.network.connection import Connection
from odradek.network.connection_limiter import ConnectionLimiter
from odradek.network.connection_policy import ConnectionPolicy
from odradek.network.engine import Engine
from odradek.network.flow import START, Flow, Wait
from odradek.network.network_client import NetworkClient
from odradek.protocol.messages.metadata import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
)


class JavaStates(ClusterConnectionStates):
    """KIP-144 as in Java: each closed connection is a failure, and ApiVersions resets the count."""

    def closed(self, address: Address, now: float) -> float:
        """Count an orderly close as a failure, like any other."""
        return self.failed(address, now, None, connecting=False)

    def setup_done(self, address: Address) -> None:
        """Reset the failures of attempts and of connections, because the connection is ready."""
        super().setup_done(address)
        self.state(address).failures = 0


class NoLimiter(ConnectionLimiter):
    """A limiter that never delays attempts, so that only the backoffs of addresses limit them."""

    def wait(
        self, now: float, *, for_metadata: bool, failed: bool = False, again: bool = False
    ) -> float:
        """Return 0.0, so that no attempt waits."""
        return 0.0

    def failed(self, now: float) -> None:
        """Ignore the failure of an attempt."""


class JavaNetwork(NetworkClient):
    """The network client with Java's connection states, and without limiter and suspicion."""

    def __init__(self, engine: Engine, config: Config, rng: Rng, *, frame_limit: int) -> None:
        super().__init__(engine, config, rng, frame_limit=frame_limit)
        self.states = JavaStates(
            config.backoff("reconnect.backoff"),
            config.backoff("socket.connection.setup.timeout"),
            rng,
        )
        self.dials = ConnectionPolicy(self.states, NoLimiter(rng))

    def _suspect(self, connection: Connection, now: float) -> None:
        connection.suspect = True  # unused; prevents more checks


class JavaUpdater(MetadataUpdater):
    """The metadata updater with Java's rules for refreshes and rebootstraps."""

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self._rng: Rng = arguments[-1]
        self._policy = self._config.backoff("retry.backoff")
        self._base: float = self._config["reconnect.backoff.ms"]
        self._asked: PendingRequest | None = None
        self._last_refresh = -math.inf
        self._failures = 0
        self._same = 0

    def run(self) -> Flow[None]:
        """Check for due updates at every event, as each poll of Java's network client does."""
        now = yield START
        while True:
            until = self._maybe_update(now)
            replies = () if self._asked is None else (self._asked.reply,)
            signals = (self._network.changed, self.metadata.wanted)
            now = yield Wait((*signals, *replies), None if until == math.inf else until)

    # Timing

    def _due_at(self) -> float:
        """Return the time from which a refresh is allowed and due, with newly drawn jitter."""
        allowed = self._last_refresh + self._policy.delay(max(self._failures - 1, 0), self._rng)
        if self._same:
            spaced = self._last_refresh + self._policy.delay(self._same - 1, self._rng)
            allowed = max(allowed, spaced)
        self.metadata.allowed_at = -math.inf  # Odradek's minimum interval doesn't apply here
        return max(allowed, self.metadata.due_at())

    def _failed_update(self, now: float) -> None:
        self._failures += 1
        self._last_refresh = now
        self._same = 0

    def _maybe_update(self, now: float) -> float:
        """Update the metadata if an update is due; return when to check again without an event."""
        if self._asked is not None and self._asked.reply.done:
            self._answered(self._asked, now)
        if self._rebootstraps and self.due_since is not None:
            if now - self.due_since > self._trigger:
                self._restart("no metadata in time", now, close=True)
            trigger_at = self.due_since + self._trigger + 0.001
        else:
            trigger_at = math.inf
        if self._asked is not None:
            return trigger_at
        due = self._due_at()
        if due > now:
            return min(due, trigger_at)
        if self.due_since is None:
            self.due_since = now
        address, any_ready = self._least_loaded(now)
        if address is None and not any_ready and self._rebootstraps:
            self._restart("no node is available", now, close=False)
            address, _ = self._least_loaded(now)
        if address is None:
            return now + self._base
        connection = self._network.connection(address)
        if connection is not None and connection.ready:
            self._send(connection, now)
            return trigger_at
        if connection is None:
            self._network.dial(address, now, for_metadata=True)
        return now + self._base

    # Choice of a node

    def _nodes(self) -> list[Address]:
        snapshot = self.metadata.snapshot
        return self.bootstrap if snapshot is None else snapshot.addresses()

    def _least_loaded(self, now: float) -> tuple[Address | None, bool]:
        """Return the node for a metadata request, and whether any connection is ready."""
        nodes = self._nodes()
        start = int(self._rng.random() * len(nodes))
        busy: tuple[int, Address] | None = None
        connecting: Address | None = None
        oldest: tuple[float, Address] | None = None
        for index in range(len(nodes)):
            address = nodes[(start + index) % len(nodes)]
            connection = self._network.connection(address)
            if connection is None:
                state = self._network.states.state(address)
                if state.backoff_until <= now and (oldest is None or state.last_dial < oldest[0]):
                    oldest = (state.last_dial, address)
            elif not connection.ready:
                connecting = address
            elif connection.throttled_until <= now:
                load = len(connection.in_flight)
                if not load:
                    return address, True
                if busy is None or load < busy[0]:
                    busy = (load, address)
        if busy is not None:
            return busy[1], True
        if connecting is not None:
            return connecting, False
        return (None if oldest is None else oldest[1]), False

    def _send(self, connection: Connection, now: float) -> None:
        topics, partial = self.metadata.next_topics(full=self.metadata.snapshot is None)
        body = MetadataRequest(
            topics=[MetadataRequestTopic(name=name) for name in topics],
            allow_auto_topic_creation=False,
        )
        try:
            reply = self._network.send(connection, body, now)
        except KafkaError:
            self._failed_update(now)
            return
        serial = self.metadata.sent(topics)
        bootstrap = self.metadata.snapshot is None
        self._asked = PendingRequest(connection, reply, topics, partial, bootstrap, serial, now)
        self.rounds += 1
        self._events.emit(
            now,
            "metadata_request",
            address=str(connection.address),
            why=self.metadata.why,
            topics=len(topics),
            round=self.rounds,
        )

    # Responses

    def _answered(self, asked: PendingRequest, now: float) -> None:
        self._asked = None
        if asked.reply.error is not None:
            self.metadata.failed()
            self._failed_update(now)
            return
        response = cast("MetadataResponse", asked.reply.result())
        if response.error_code == RebootstrapRequiredError.code and self._rebootstraps:
            self.metadata.failed()
            self.due_since = -math.inf  # makes the next check rebootstrap at once
            return
        if response.error_code or not response.brokers:
            self.metadata.failed()
            self._failed_update(now)
            return
        before = self.metadata.snapshot
        after = self.metadata.apply(
            response,
            asked.topics,
            now,
            partial=asked.partial,
            fresh=before is None,
            serial=asked.serial,
        )
        unchanged = before is not None and after.topics == before.topics
        self._same = self._same + 1 if unchanged else 0
        self._failures = 0
        self._last_refresh = now
        self.due_since = self.unavailable_since = None
        if self.current is not None:
            self.current.end(now, asked.connection.address)
            self.current = None
        self._events.emit(
            now,
            "metadata",
            address=str(asked.connection.address),
            brokers=len(after.brokers),
            cluster_id=after.cluster_id,
        )

    def _restart(self, why: str, now: float, *, close: bool) -> None:
        """Restart from the bootstrap list, and forget the metadata with the cluster id."""
        nodes = self._nodes()
        self.current = Rebootstrap(why, now)
        self.history.append(self.current)
        self.due_since = self.unavailable_since = now
        if self.metadata.snapshot is not None:
            self.metadata.forget()
        self._events.emit(now, "rebootstrap", why=why, known=[str(a) for a in nodes])
        for address in nodes if close else ():
            connection = self._network.connection(address)
            if connection is not None:
                self._network.close(connection, now, "rebootstrap")

    def _lost(self, connection: Connection, error: KafkaError, failure: bool, now: float) -> None:
        """Count a disconnect as a failed update if an update is due, and request an update."""
        asked = self._asked
        if asked is not None and asked.connection is connection:
            self._asked = None
            self.metadata.failed()
            self._failed_update(now)
        elif asked is None and self._due_at() <= now:
            self._failed_update(now)
        self.metadata.request(f"{connection.address} was lost")

    def _suspected(self, connection: Connection, now: float) -> None:
        """Ignore a silent connection: Java has no suspicion."""


class JavaBackoff(ExponentialBackoff):
    """Java's backoff curve, which is capped at the maximum both before and after its jitter."""

    def delay(self, failures: int, rng: Rng) -> float:
        """Return min(max, min(max, base · 2^failures) · random(0.8, 1.2)).

        If the curve doesn't grow, it has no jitter.
        """
        if self.constant or not self.base:
            return self.maximum if self.constant else 0.0
        jitter = 1.0 - self.jitter + 2.0 * self.jitter * rng.random()
        curve = min(self.maximum, math.ldexp(self.base, min(failures, 64)))
        return min(self.maximum, curve * jitter)


class JavaConfig(Config):
    """A client configuration whose backoffs follow Java's rules."""

    def backoff(self, name: str) -> ExponentialBackoff:
        """Return the backoff with the options `name.ms` and `name.max.ms`."""
        usual = super().backoff(name)
        return JavaBackoff(usual.base, usual.maximum)


class LiteralBackoff(ExponentialBackoff):
    """KIP-580's formula, literally: the jittered value is capped, the exponent isn't limited.

    When the curve is far above the maximum, the cap removes all jitter.
    """

    def delay(self, failures: int, rng: Rng) -> float:
        """Return min(max, base · 2^failures · random(0.8, 1.2))."""
        jitter = 1.0 - self.jitter + 2.0 * self.jitter * rng.random()
        return min(self.maximum, math.ldexp(self.base, min(failures, 64)) * jitter)


class LiteralConfig(Config):
    """A client configuration whose backoffs follow KIP-580's formula literally."""

    def backoff(self, name: str) -> ExponentialBackoff:
        """Return the backoff with the options `name.ms` and `name.max.ms`."""
        usual = super().backoff(name)
        return LiteralBackoff(usual.base, usual.maximum)


@dataclass(frozen=True, slots=True)
class Strategy:
    """The rules of one client for connections and metadata, under a name."""

    name: str
    help: str
    parts: Parts = SHIPPED
    kind: type[Config] = Config
    config: Mapping[str, Any] = field(default_factory=dict)
    always_runs: bool = False
    """Whether the real client has a thread that also runs between calls."""

    def configure(self, client: str, bootstrap_servers: str, **more: Any) -> Config:
        """Return the configuration of a client with this strategy's rules."""
        given = {"bootstrap.servers": bootstrap_servers, **self.config, **more}
        return self.kind(client, given)


JAVA = Parts(JavaNetwork, JavaUpdater)
CONSTANT_MS = 100
"""Constant backoff of KIP-580's example in ms: ten attempts per second, without end."""

STRATEGIES = {
    s.name: s
    for s in (
        Strategy("odradek", "What ships."),
        Strategy("java", "The rules of Kafka's own client.", JAVA, JavaConfig, always_runs=True),
        Strategy(
            "constant",
            "Java's rules with a constant backoff of 100 ms, as before KIP-144 and KIP-580.",
            JAVA,
            JavaConfig,
            {
                "reconnect.backoff.ms": CONSTANT_MS,
                "reconnect.backoff.max.ms": CONSTANT_MS,
                "retry.backoff.ms": CONSTANT_MS,
                "retry.backoff.max.ms": CONSTANT_MS,
            },
            always_runs=True,
        ),
        Strategy(
            "kip580-literal",
            "Java's rules with KIP-580's formula taken literally: no jitter at the cap.",
            JAVA,
            LiteralConfig,
            always_runs=True,
        ),
    )
}
