"""Invariants that must hold in every simulated run, one small class or function for each.

In: a client's events, what callers were told, a cluster's logs. Out: nothing, or a `Violation`
that says what broke and when. Must not: take the client's word for what can be seen from outside.
(That a future is completed only once needs no checker: `Completion` raises.)
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, field

from odradek.common.backoff import ExponentialBackoff
from odradek.common.config import Config
from odradek.common.events import Event, EventLog
from odradek.common.types import TopicPartition
from odradek.simulation.cluster import SimulatedCluster
from odradek.simulation.world import World

SLACK = 1e-6
"""Events round their times to microseconds."""


class Violation(AssertionError):  # noqa: N818  # it reads better so where it is raised
    """An invariant doesn't hold."""


class OneMetadataRequest:
    """R-MD-4: a client has at most one metadata refresh in flight."""

    def __init__(self) -> None:
        self._open: str | None = None

    def __call__(self, event: Event) -> None:
        address = str(event.fields.get("address"))
        if event.kind == "metadata_request":
            if self._open is not None:
                raise Violation(
                    f"{event.at}: a metadata request to {address} while the one to "
                    f"{self._open} is open"
                )
            self._open = address
        elif (
            event.kind in ("broken", "closed", "metadata")
            # What failed may also be a dial of the round; the request's own address counts.
            or (event.kind in ("metadata_failed", "disconnected") and address == self._open)
        ):
            self._open = None


@dataclass(slots=True)
class _Dialled:
    failures: int = 0
    not_before: float = -math.inf


class BackoffInBounds:
    """R-BO-1, R-CS-3: each address is dialled no sooner than its failures in a row allow.

    It counts failures by itself: from refused, broken and unproved connections, back to none when a
    connection proved itself.
    """

    def __init__(self, config: Config) -> None:
        self._policy: ExponentialBackoff = config.backoff("reconnect.backoff")
        self._addresses: dict[str, _Dialled] = {}

    def _bounds(self, failures: int) -> tuple[float, float]:
        policy = self._policy
        if policy.constant:
            return policy.maximum, policy.maximum
        if policy.base == 0:
            return 0.0, 0.0
        grown = policy.base * 2.0 ** min(failures, math.log2(policy.maximum / policy.base))
        low, high = grown * (1 - policy.jitter), grown * (1 + policy.jitter)
        return min(low, policy.maximum), min(high, policy.maximum)

    def __call__(self, event: Event) -> None:
        address = event.fields.get("address")
        if address is None:
            return
        state = self._addresses.setdefault(str(address), _Dialled())
        if event.kind == "dial" and event.at < state.not_before - SLACK:
            raise Violation(
                f"{event.at}: {address} is dialled {state.not_before - event.at:.3f} s too soon "
                f"after {state.failures} failures"
            )
        if event.kind == "proved":
            state.failures, state.not_before = 0, -math.inf
        elif event.kind in ("dial_failed", "disconnected"):
            self._ended(event, str(address), state)

    def _ended(self, event: Event, address: str, state: _Dialled) -> None:
        failure = bool(event.fields["failure"])
        low, high = self._bounds(state.failures if failure else 0)
        state.not_before = max(state.not_before if not failure else -math.inf, event.at + low)
        if failure:
            backoff = float(event.fields["backoff"])
            if not low - SLACK <= backoff <= high + SLACK:
                raise Violation(
                    f"{event.at}: {address} waits {backoff} s after failure "
                    f"{state.failures + 1}; allowed are {low:.3f} to {high:.3f}"
                )
            state.failures += 1


@dataclass(slots=True)
class _Sent:
    value: bytes
    offset: int | None = None


@dataclass(slots=True)
class RecordLedger:
    """What producers sent and what was acknowledged; compared with the cluster's logs at the end.

    Values must be unique. Sends of one partition are noted in their order.
    """

    _sent: dict[TopicPartition, list[_Sent]] = field(default_factory=dict)

    def sent(self, partition: TopicPartition, value: bytes) -> None:
        """A record was handed to a producer for this partition."""
        self._sent.setdefault(partition, []).append(_Sent(value))

    def acknowledged(self, partition: TopicPartition, value: bytes, offset: int) -> None:
        """Its future was completed with this offset."""
        for record in self._sent.setdefault(partition, []):
            if record.value == value:
                record.offset = offset
                return
        self._sent[partition].append(_Sent(value, offset))  # the partition was chosen late

    def verify(self, cluster: SimulatedCluster) -> None:
        """No acknowledged record is lost, none is there twice, order holds in each partition."""
        for partition, sent in self._sent.items():
            rows = cluster.records(partition.topic, partition.partition)
            self._verify(partition, sent, {row[0]: row[4] for row in rows})

    def _verify(
        self, partition: TopicPartition, sent: list[_Sent], stored: dict[int, bytes | None]
    ) -> None:
        places: dict[bytes, int] = {}
        for offset, value in stored.items():
            if value is None:
                continue
            if value in places:
                raise Violation(f"{partition}: {value!r} is at {places[value]} and at {offset}")
            places[value] = offset
        last: tuple[int, bytes] | None = None
        for record in sent:
            at = places.get(record.value)
            if record.offset is not None and at != record.offset:
                raise Violation(
                    f"{partition}: {record.value!r} was acknowledged at {record.offset}, but "
                    + ("is lost" if at is None else f"is at {at}")
                )
            if at is None:
                continue
            if last is not None and at < last[0]:
                raise Violation(f"{partition}: {record.value!r} comes before {last[1]!r}")
            last = (at, record.value)


class PositionsGoForward:
    """A consumer's position in a partition never goes back, except by a seek."""

    def __init__(self) -> None:
        self._positions: dict[TopicPartition, int] = {}

    def moved(self, partition: TopicPartition, position: int) -> None:
        """The position as the client says it, or the offset behind a record it handed out."""
        before = self._positions.get(partition, -1)
        if position < before:
            raise Violation(f"{partition}: the position went from {before} back to {position}")
        self._positions[partition] = position

    def sought(self, partition: TopicPartition, position: int) -> None:
        """The caller asked for this position."""
        self._positions[partition] = position


class RecordsOnce:
    """A consumer hands out each offset of a partition once, in order."""

    def __init__(self) -> None:
        self._next: dict[TopicPartition, int] = {}

    def read(self, partition: TopicPartition, offset: int) -> None:
        """A record was handed to the caller."""
        expected = self._next.get(partition, 0)
        if offset < expected:
            raise Violation(f"{partition}: offset {offset} again, {expected} was next")
        self._next[partition] = offset + 1

    def verify(self, cluster: SimulatedCluster, partitions: Iterable[TopicPartition]) -> None:
        """Everything that is committed was read."""
        for partition in partitions:
            end = cluster.log(partition.topic, partition.partition).high_watermark
            if self._next.get(partition, 0) != end:
                raise Violation(f"{partition}: read up to {self._next.get(partition, 0)} of {end}")


def no_hot_loop(world: World) -> None:
    """No client took more steps in a virtual second than its limit."""
    if world.hot_loops:
        raise Violation("; ".join(world.hot_loops))


class Checkers:
    """The checkers that only need a client's events, together."""

    def __init__(self, world: World) -> None:
        self._world = world
        self.violations: list[Violation] = []
        """What was found so far, of all clients that are watched."""

    def watch(self, events: EventLog, config: Config) -> None:
        """Check a client from now on; what is found is raised by `verify`."""
        for checker in (OneMetadataRequest(), BackoffInBounds(config)):
            self._guard(checker, events)

    def _guard(self, checker: OneMetadataRequest | BackoffInBounds, events: EventLog) -> None:
        def listen(event: Event) -> None:
            try:
                checker(event)
            except Violation as violation:  # raised in a step it would only break the client
                self.violations.append(violation)

        events.listen(listen)

    def verify(self) -> None:
        """Raise the first violation, if there was one; look for hot loops."""
        if self.violations:
            raise self.violations[0]
        no_hot_loop(self._world)
