"""Push metrics that brokers subscribe to (KIP-714), as Java's `ClientTelemetryReporter` does.

In: connections that are ready, metrics. Out: GetTelemetrySubscriptions on such a connection, and
PushTelemetry at the broker's interval, the first after 0.5 to 1.5 intervals. A broker answers a
connection's requests in order, and its plugin for metrics may be slow: so pushes use a separate
connection to a connected broker; only the last push, at `close`, uses the connection of other
requests. Brokers without these APIs get no requests. Must not: delay other requests, or fail a
call.

A push counts once it is answered, so the next one contains the deltas of a push that was lost.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, TypeVar, cast

from odradek.clients.metrics.catalogue import OURS
from odradek.clients.metrics.metric import Metric, MetricName, Metrics
from odradek.clients.telemetry.otlp import CUMULATIVE, DELTA, Point, metrics_data
from odradek.common.config import Config
from odradek.common.errors import KafkaError
from odradek.common.errors.kafka import (
    InvalidRecordError,
    InvalidRequestError,
    TelemetryTooLargeError,
    ThrottlingQuotaExceededError,
    UnknownSubscriptionIdError,
    UnsupportedCompressionTypeError,
    UnsupportedVersionError,
    error_for,
)
from odradek.common.options.values import ADMIN, CONSUMER, PRODUCER
from odradek.network.connection import COORDINATOR, DATA, PUSH, Connection
from odradek.network.effects import AnyRequest
from odradek.network.flow import START, Completion, Flow, Signal, Wait
from odradek.protocol.message import Message
from odradek.protocol.messages.get_telemetry_subscriptions import (
    GetTelemetrySubscriptionsRequest,
    GetTelemetrySubscriptionsResponse,
)
from odradek.protocol.messages.push_telemetry import PushTelemetryRequest, PushTelemetryResponse
from odradek.record.compression import CODECS, compress

if TYPE_CHECKING:
    from odradek.clients.client_engine import ClientEngine
    from odradek.clients.consumer.group.consumer_group import ConsumerGroup

logger = logging.getLogger("odradek")

M = TypeVar("M", bound=Message)
NO_ID = bytes(16)
USUAL_INTERVAL = 300.0
"""Seconds until the next attempt if the broker has named no interval, or an invalid one."""
LEAST_INTERVAL = 0.1
"""Minimum interval in seconds; brokers accept no smaller `interval.ms` for a subscription."""
SOONEST, LATEST = 0.5, 1.5
"""Random bounds, in intervals, of the time until the first push.

Clients that start together shouldn't push together.
"""
BUSY = 1.0
"""Seconds until the next check if no connection can be used."""
ALL = "*"
"""Brokers' name for all metrics; the KIP uses an empty prefix."""
PREFIX = "org.apache.kafka"
FOR_GOOD = frozenset((InvalidRequestError.code, InvalidRecordError.code,
                      UnsupportedVersionError.code))  # fmt: skip
"""Codes after which another request or push would fail in the same way."""
AT_ONCE = frozenset((UnknownSubscriptionIdError.code, UnsupportedCompressionTypeError.code))
"""Codes of a push after which the changed subscription is requested again."""
OF_THE_CLIENT = {
    PRODUCER: ("transactional.id",),
    CONSUMER: ("client.rack", "group.id", "group.instance.id"),
    ADMIN: (),
}
LATER = frozenset((TelemetryTooLargeError.code, ThrottlingQuotaExceededError.code))


class MetricsPush:
    """The pushes of one client, also after its engine was replaced."""

    def __init__(
        self,
        engine: ClientEngine,
        snapshot: Callable[[], Metrics],
        resource: dict[str, str],
        instance_id: bytes = NO_ID,
    ) -> None:
        """Set `resource`, the client's attributes in each push."""
        self._engine = engine
        self._snapshot = snapshot
        self._resource = resource
        self.instance_id = instance_id
        """Id that a broker has assigned to this client; zeros before that."""
        self.changed = Signal()
        """Notified when an id was assigned, and when brokers refuse this client for good."""
        self.refused: KafkaError | None = None
        self._wanted: GetTelemetrySubscriptionsResponse | None = None
        self._interval = USUAL_INTERVAL
        self._next_at = -math.inf
        self._compresses = True
        self._pushed: dict[MetricName, tuple[float, float]] = {}
        """Counters in the last push, each with the time at which counting began."""
        self._since: float | None = None
        """Time of the last push, in seconds since the epoch; None before the first."""
        self._began = snapshot().at
        self._running = False
        self._ending = False
        """Whether `last` has begun, after which no other push may begin."""
        self._out: Completion[None] | None = None
        """The current or latest push."""

    def connected(self) -> None:
        """Start pushing if a ready connection leads to a broker that accepts metrics."""
        if self._running or self._ending:
            return
        if self._next_at < math.inf and self._connection() is not None:
            self._running = True
            self._engine.start(self._run())

    def note_member(self) -> None:
        """Note a consumer's member id, which pushes also contain after it has left the group."""
        group: ConsumerGroup | None = getattr(self._engine, "group", None)
        if group is not None and (member_id := group.identity().member_id):
            self._resource["group_member_id"] = member_id

    @property
    def subscribed(self) -> bool:
        """Whether a broker has requested metrics of this client."""
        return self._wanted is not None and bool(self._wanted.requested_metrics)

    def _connection(self) -> Connection | None:
        """Return the least busy usable connection."""
        now = self._engine.now
        usable = [c for c in self._there() if c.writable and c.throttled_until <= now]
        return min(usable, key=lambda c: len(c.in_flight), default=None)

    def _there(self) -> list[Connection]:
        """Return the usable connections to brokers that accept metrics."""
        key = GetTelemetrySubscriptionsRequest.API_KEY
        return [
            c
            for c in self._engine.network.connections.values()
            if c.ready and not c.suspect and c.purpose in (DATA, COORDINATOR) and key in c.versions
        ]

    def _run(self) -> Flow[None]:
        """Subscribe and push as long as a connection is available."""
        now = yield START
        try:
            while self._next_at < math.inf and not self._ending:
                if now < self._next_at:
                    now = yield Wait((), self._next_at)
                    continue
                if self._connection() is None:
                    there = self._there()
                    if not there:
                        return  # `connected` starts pushing again
                    now = yield Wait((), max(now + BUSY, min(c.throttled_until for c in there)))
                    continue
                if self._wanted is None:
                    yield from self._subscribe()
                elif (apart := self._apart()) is None:
                    now = yield Wait((self._engine.network.changed,), now + BUSY)
                    continue
                else:
                    self._out = self._engine.start(self._push(apart))
                    yield Wait((self._out,))
                now = self._engine.now
        finally:
            self._running = False

    def _apart(self) -> Connection | None:
        """Return a secondary connection for a push; open one if necessary."""
        network, first = self._engine.network, self._connection()
        addresses = [address for address, purpose in network.connections if purpose == PUSH]
        if first is not None and not addresses:
            addresses.append(first.address)
        return network.pushing(addresses[0], self._engine.now) if addresses else None

    def _ask(
        self, connection: Connection | None, body: AnyRequest, response: type[M]
    ) -> Flow[M | None]:
        """Send a request; return None without a response."""
        yield START
        if connection is None:
            return None
        network = self._engine.network
        patience = network.request_timeout if connection.secondary else 0.0
        try:
            reply = network.send(connection, body, self._engine.now, patience=patience)
            yield Wait((reply,))
            return cast("M", reply.result())
        except KafkaError as error:
            logger.debug("pushing metrics to %s failed: %s", connection.address, error)
            return None

    # Subscription

    def _subscribe(self) -> Flow[None]:
        request = GetTelemetrySubscriptionsRequest(self.instance_id)
        answer = yield from self._ask(
            self._connection(), request, GetTelemetrySubscriptionsResponse
        )
        now = self._engine.now
        if answer is None:
            self._next_at = now + self._interval
        elif answer.error_code:
            self._refused(answer.error_code, now, at_once=False)
        else:
            if answer.client_instance_id != NO_ID:
                self.instance_id = answer.client_instance_id
                self.changed.notify()
            interval = answer.push_interval_ms / 1000
            self._interval = interval if interval >= LEAST_INTERVAL else USUAL_INTERVAL
            share = 1.0
            if answer.requested_metrics:
                self._wanted = answer
                share = self._engine.rng.uniform(SOONEST, LATEST)
            self._next_at = now + share * self._interval

    def _refused(self, code: int, now: float, *, at_once: bool) -> None:
        """Handle an error code: request another subscription at once, after an interval, or never.

        `at_once`: whether a request without delay is allowed, as after a push (R-RT-1).
        """
        if code != ThrottlingQuotaExceededError.code:  # pushed too early: the subscription is valid
            self._wanted = None
        if code in AT_ONCE or code in LATER:
            soon = at_once and code in AT_ONCE
            self._next_at = now if soon else now + self._interval
        else:
            why = error_for(code)
            if code not in FOR_GOOD:
                logger.info("stopped pushing metrics: %s", why)
            self._next_at = math.inf
            self.refused = why
            self.changed.notify()

    # Pushes

    def last(self, deadline: float) -> Flow[None]:
        """Push for the last time, at `close`."""
        del deadline  # the caller enforces the deadline
        yield START
        self._ending = True  # another push would send the same deltas
        if self._out is not None:  # the last push mustn't repeat the deltas of the current one
            yield Wait((self._out,))
        if self.subscribed and self._connection() is not None:
            yield from self._push(self._connection(), terminating=True)

    def _push(self, connection: Connection | None, *, terminating: bool = False) -> Flow[None]:
        wanted = cast("GetTelemetrySubscriptionsResponse", self._wanted)
        found = self._snapshot()
        sums = {m.key: (m.value, self._counts_since(m)) for m in found.all if m.kind == "counter"}
        data = metrics_data(
            self._points(found, wanted, sums),
            self._resource,
            found.at,
            DELTA if wanted.delta_temporality else CUMULATIVE,
        )
        codec, packed = 0, data
        if self._compresses and wanted.accepted_compression_types:
            known = (c for c in wanted.accepted_compression_types if 0 <= c < len(CODECS))
            codec = next(known, 0)
            packed = bytes(compress(codec, None, memoryview(data))) if codec else data
        if len(packed) > wanted.telemetry_max_bytes > 0:
            logger.debug("metrics of %d bytes exceed the broker's limit", len(packed))
            self._next_at = self._engine.now + self._interval
            return
        request = PushTelemetryRequest(
            self.instance_id, wanted.subscription_id, terminating, codec, packed
        )
        answer = yield from self._ask(connection, request, PushTelemetryResponse)
        # The interval begins at the response: after a slow push, the next one would otherwise be
        # too early, and brokers refuse that.
        self._next_at = self._engine.now + self._interval
        if answer is None:
            return  # the next push includes these deltas
        if answer.error_code:
            self._compresses &= answer.error_code != UnsupportedCompressionTypeError.code
            self._refused(answer.error_code, self._engine.now, at_once=True)
            return
        self._pushed, self._since = sums, found.at

    def _counts_since(self, metric: Metric) -> float:
        """Return the time at which counting of a metric began.

        Counters of a topic or an address that is used again restart at 0. Receivers treat a smaller
        sum as an error unless its start time is later.
        """
        before, since = self._pushed.get(metric.key, (math.inf, 0.0))
        if before <= metric.value:
            return since
        return self._began if self._since is None else self._since

    def _points(
        self,
        found: Metrics,
        wanted: GetTelemetrySubscriptionsResponse,
        sums: Mapping[MetricName, tuple[float, float]],
    ) -> Iterator[Point]:
        last = self._began if self._since is None else self._since
        prefixes = tuple("" if p == ALL else p for p in wanted.requested_metrics)
        for metric in found.all:
            name = kip_714_name(metric)
            if math.isnan(metric.value) or not name.startswith(prefixes):
                continue
            value, since = metric.value, last
            if metric.kind == "counter" and wanted.delta_temporality:
                before, _ = self._pushed.get(metric.key, (0, 0.0))
                value -= before if before <= value else 0  # a smaller counter has restarted at 0
            elif metric.kind == "counter":
                _, since = sums[metric.key]
            tags = {t.replace("-", "_"): v for t, v in metric.tags.items() if t != "client-id"}
            # The start mustn't be after the end, even if the clock was set back.
            yield Point(name, tags, value, metric.kind, min(since, found.at))


def kip_714_name(metric: Metric) -> str:
    """Return the KIP-714 name: `org.apache.kafka` or `odradek`, group and name, with dots."""
    group = metric.group.removesuffix("-metrics")
    words = group if metric.group == OURS else f"{PREFIX}.{group}"
    return f"{words}.{metric.name}".replace("-", ".")


def resource_of(config: Config) -> dict[str, str]:
    """Return the attributes of the client itself, as Java names them."""
    found = {}
    for option in OF_THE_CLIENT[config.client]:
        if config[option]:
            found[option.replace(".", "_")] = str(config[option])
    return found
