"""Check invariants of every simulated run, with one small class or function for each.

In: a client's events, results of calls, a cluster's logs. Out: nothing, or a `Violation` with the
reason and the time. `wire_checkers` checks requests and responses, `call_checkers` the promises to
callers. Must not change the observed objects.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Collection, Container, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from odradek.common.backoff import STEADY, ExponentialBackoff
from odradek.common.config import Config
from odradek.common.events import Event, EventLog
from odradek.common.types import TopicPartition
from odradek.network.connection import METADATA, SECONDARY
from odradek.network.network_client import SUSPECT_AFTER_S
from odradek.simulation.brokers.broker_faults import disturbed, lost_values
from odradek.simulation.brokers.cluster import SimulatedCluster
from odradek.simulation.checkers.history import History
from odradek.simulation.logs.partition_log import PartitionLog
from odradek.simulation.world.world import World

SLACK = 1e-6
"""Tolerance in seconds: events round their times to microseconds."""
CONSTANT = ("JoinGroup", "SyncGroup", "Heartbeat")
"""Requests of classic group members whose first retries have a constant interval (KIP-580)."""


class Violation(AssertionError):  # noqa: N818  # reads better where it is raised
    """An invariant of the simulated run doesn't hold."""


class EventChecker(Protocol):
    """A checker of one client that gets the client's events of some kinds."""

    @property
    def KINDS(self) -> tuple[str, ...]:  # noqa: N802  # a constant of each
        """The kinds of events that the checker gets."""

    def __call__(self, event: Event) -> None:
        """Check one event; raises a `Violation`."""


class OneMetadataRequest:
    """R-MD-4: a client has at most one metadata refresh in flight.

    If a request has to wait for a blocked write (`excused` detects this in the traffic), the client
    drops it without an event and may send another one: see `metadata.candidates`. After the
    suspicion time, the client may also ask another broker, or the same address by a connection for
    metadata that it has opened since (R-TI-1, R-RB-9): the first connection may be half-open.
    """

    KINDS = (
        *("dial", "metadata_request", "metadata"),
        *("metadata_failed", "disconnected", "broken", "closed"),
    )

    def __init__(self, excused: Callable[[str], bool] = lambda _: False) -> None:
        self._open: str | None = None
        self._sent_at = -math.inf
        self._excused = excused
        self._dialled: set[str] = set()
        """Addresses to which a connection for metadata was opened since the open request."""

    def __call__(self, event: Event) -> None:
        address = str(event.fields.get("address"))
        if event.kind == "dial":
            if event.fields.get("purpose") == METADATA:
                self._dialled.add(address)
        elif event.kind == "metadata_request":
            other = address != self._open or address in self._dialled
            late = event.at >= self._sent_at + SUSPECT_AFTER_S - SLACK and other
            if self._open is not None and not late and not self._excused(self._open):
                raise Violation(
                    f"{event.at}: a metadata request to {address} while the one to "
                    f"{self._open} is open"
                )
            self._open, self._sent_at = address, event.at
            self._dialled.clear()
        elif (
            event.kind in ("broken", "closed", "metadata")
            # Another connection attempt may fail meanwhile: only the address of the request counts.
            or (event.kind in ("metadata_failed", "disconnected") and address == self._open)
        ):
            self._open = None


@dataclass(slots=True)
class _Dialled:
    failures: int = 0
    not_before: float = -math.inf
    before_proof: int = 0


def bounds(policy: ExponentialBackoff, failures: int) -> tuple[float, float]:
    """Return the minimum and maximum backoff after this number of earlier failures (R-BO-1)."""
    if policy.constant:
        return policy.maximum, policy.maximum
    if policy.base == 0:
        return 0.0, 0.0
    grown = policy.base * 2.0 ** min(failures, 512)
    low = min(grown, policy.maximum / (1 + policy.jitter)) * (1 - policy.jitter)
    return low, min(grown * (1 + policy.jitter), policy.maximum)


class BackoffInBounds:
    """R-BO-1, R-CS-3: connection attempts to an address wait for the backoff of its failures.

    The checker counts failures itself: a refused, broken or unproved connection is a failure; a
    proved one resets the count, unless a different cluster answered (R-RB-5).
    """

    KINDS = ("dial", "proved", "foreign_cluster", "dial_failed", "disconnected")

    def __init__(self, config: Config) -> None:
        self._policy: ExponentialBackoff = config.backoff("reconnect.backoff")
        self._addresses: dict[str, _Dialled] = {}

    def __call__(self, event: Event) -> None:
        address = event.fields.get("address")
        if address is None:
            return
        state = self._addresses.setdefault(str(address), _Dialled())
        if event.kind == "dial" and event.at < state.not_before - SLACK:
            raise Violation(
                f"{event.at}: {address} is connected {state.not_before - event.at:.3f} s too soon "
                f"after {state.failures} failures"
            )
        if event.kind == "proved":
            state.before_proof, state.failures = state.failures, 0
            state.not_before = -math.inf
        elif event.kind == "foreign_cluster":
            state.failures = max(state.failures, state.before_proof)
        elif event.kind != "dial" and event.fields.get("purpose") not in SECONDARY:
            self._ended(event, str(address), state)  # a secondary connection's end doesn't count

    def _ended(self, event: Event, address: str, state: _Dialled) -> None:
        failure = bool(event.fields["failure"])
        low, high = bounds(self._policy, state.failures if failure else 0)
        state.not_before = max(state.not_before if not failure else -math.inf, event.at + low)
        if failure:
            backoff = float(event.fields["backoff"])
            if not low - SLACK <= backoff <= high + SLACK:
                raise Violation(
                    f"{event.at}: {address} waits {backoff} s after failure "
                    f"{state.failures + 1}; allowed are {low:.3f} to {high:.3f}"
                )
            state.failures += 1


class RetriesInBounds:
    """R-BO-1, R-RT-1: metadata rounds and retries of calls and batches wait as KIP-580 defines."""

    KINDS = ("metadata", "round_failed", "retry")

    def __init__(self, config: Config) -> None:
        self._policy: ExponentialBackoff = config.backoff("retry.backoff")
        self._rounds = 0

    def __call__(self, event: Event) -> None:
        if event.kind == "metadata":
            self._rounds = 0
        elif event.kind == "round_failed":
            self._rounds += 1
            self._check(event, "a round of metadata", self._rounds)
        elif event.kind == "retry" and event.fields.get("backoff"):
            # A batch whose leader has changed doesn't wait, and a new epoch isn't a retry.
            self._check(event, str(event.fields["what"]), int(event.fields["attempt"]))

    def _check(self, event: Event, what: str, attempt: int) -> None:
        if "ConcurrentTransactions" in str(event.fields.get("error")):
            return  # the last transaction is ending: 20 ms at first, as in Java (KIP-890)
        steady = STEADY if what in CONSTANT else 0
        low, high = bounds(self._policy, max(0, attempt - 1 - steady))
        backoff = float(event.fields["backoff"])
        if not low - SLACK <= backoff <= high + SLACK:
            raise Violation(
                f"{event.at}: {what} waits {backoff} s after attempt {attempt}; allowed are "
                f"{low:.3f} to {high:.3f}"
            )


class RebootstrapsCounted:
    """R-RB-4: a rebootstrap is counted once per outage, and never twice within a backoff step."""

    KINDS = ("rebootstrap", "rebootstrapped")

    def __init__(self, config: Config) -> None:
        self._step = config.backoff("retry.backoff").base * 0.8
        self._open = False
        self._last = -math.inf

    def __call__(self, event: Event) -> None:
        if event.kind == "rebootstrapped":
            self._open = False
        elif event.kind == "rebootstrap":
            if self._open:
                raise Violation(f"{event.at}: a rebootstrap during another one")
            if event.at - self._last < self._step - SLACK:
                raise Violation(
                    f"{event.at}: a rebootstrap {event.at - self._last:.3f} s after the last one"
                )
            self._open, self._last = True, event.at


PENDING_DIALS = 6
DIAL_SPACING = 0.04
"""Minimum seconds between two connection attempts after failures (R-MD-3): 50 ms minus jitter."""
NAME_DELAY = 0.005
"""Maximum seconds between the decision to connect and the attempt, for the name lookup."""


class DialsLimited:
    """R-CS-8, R-RB-7: after failures, a client's connection attempts are few and spaced."""

    KINDS = ("dial", "ready", "proved", "dial_failed", "disconnected")

    def __init__(self, config: Config) -> None:
        self._most: int = config["reconnect.attempts.per.second"]
        own = min(config["reconnect.backoff.ms"], config["reconnect.backoff.max.ms"])
        self._spacing = min(DIAL_SPACING, max(own, 1.0 / self._most))
        self._failing: dict[str, None] = {}
        self._engaged = False
        self._recent: deque[float] = deque()
        self._last_limited = -math.inf
        self._pending: dict[object, tuple[str, object]] = {}

    def __call__(self, event: Event) -> None:
        kind, address = event.kind, str(event.fields.get("address"))
        if kind == "dial":
            self._dialled(event, address)
        elif kind == "ready":
            place = (address, event.fields.get("purpose"))
            for number in [n for n, found in self._pending.items() if found == place]:
                del self._pending[number]
        elif kind in ("dial_failed", "disconnected"):
            self._pending.pop(event.fields.get("connection"), None)
            if event.fields["failure"]:
                self._engaged = True
                self._failing[address] = None
        elif kind == "proved":
            self._engaged, self._last_limited = False, -math.inf
            self._failing.pop(address, None)

    def _dialled(self, event: Event, address: str) -> None:
        now = event.at
        recent = self._recent
        while recent and now - recent[0] >= 1.0 - NAME_DELAY:
            recent.popleft()
        if self._engaged or address in self._failing:
            # The limit may be lifted while an attempt's name is resolved: such attempts don't
            # count.
            if sum(now - at >= NAME_DELAY for at in recent) >= self._most:
                raise Violation(
                    f"{now}: more than {self._most} connection attempts within a second "
                    "after a failure"
                )
            if now - self._last_limited < self._spacing - NAME_DELAY:
                gap = now - self._last_limited
                raise Violation(f"{now}: a connection attempt {gap:.4f} s after another")
            if len(self._pending) >= PENDING_DIALS:
                pending = len(self._pending)
                raise Violation(f"{now}: a connection attempt while {pending} others are pending")
            self._last_limited = now
        recent.append(now)
        self._pending[event.fields.get("connection")] = (address, event.fields.get("purpose"))


@dataclass(slots=True)
class _Sent:
    value: bytes
    acknowledged: bool = False
    offset: int | None = None


@dataclass(slots=True)
class RecordLedger:
    """Sent and acknowledged records, which are compared with the logs at the end.

    Values must be unique. Sends to one partition are added in order.
    """

    _sent: dict[TopicPartition, list[_Sent]] = field(default_factory=dict)

    def sent(self, partition: TopicPartition, value: bytes) -> None:
        """Add a record that was passed to a producer for this partition."""
        self._sent.setdefault(partition, []).append(_Sent(value))

    def acknowledged(self, partition: TopicPartition, value: bytes, offset: int | None) -> None:
        """Note that a record was acknowledged (None: a duplicate with an unknown offset)."""
        for record in self._sent.setdefault(partition, []):
            if record.value == value:
                record.acknowledged, record.offset = True, offset
                return
        self._sent[partition].append(_Sent(value, True, offset))  # sent without a chosen partition

    def verify(self, cluster: SimulatedCluster) -> None:
        """Check that no acknowledged record is lost, duplicated or out of order in the logs."""
        for partition, sent in self._sent.items():
            topic, index = partition
            there = cluster.topics.get(topic)
            rows = []
            if there is not None and index < len(there.partitions):
                rows = cluster.records(topic, index)
            lost: set[bytes] | None = None
            if disturbed(cluster, topic, index):
                lost = lost_values(cluster, topic, index)
            self._verify(partition, sent, {row[0]: row[4] for row in rows}, lost)

    def _verify(
        self,
        partition: TopicPartition,
        sent: list[_Sent],
        stored: dict[int, bytes | None],
        lost: set[bytes] | None,
    ) -> None:
        """Check one partition.

        `lost` are values that an unclean election or a deletion removed. With these values the log
        has lost sequence numbers, so records in flight may have any order.
        """
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
            if lost is not None and (record.value in lost or at is not None):
                continue
            if record.acknowledged and (at is None or record.offset not in (None, at)):
                raise Violation(
                    f"{partition}: {record.value!r} was acknowledged at {record.offset}, but "
                    + ("is lost" if at is None else f"is at {at}")
                )
            if at is None:
                continue
            if last is not None and at < last[0]:
                raise Violation(f"{partition}: {record.value!r} comes before {last[1]!r}")
            last = (at, record.value)


def wrong_epoch(log: PartitionLog, epoch: int, position: int) -> str:
    """Describe the leader epoch of a position if it is too old or too new; else return "".

    If the epoch ends before the position, its records look lost; if it begins after the next
    record, a consumer waits for newer metadata than it needs (KIP-320, R-ID-4).
    """
    if log.ends_before(epoch, position):
        return f"the leader epoch {epoch}, which ends before"
    if log.begins_after(epoch, position):
        return f"the leader epoch {epoch}, which begins after the next record"
    return ""


class PositionsGoForward:
    """A consumer's position in a partition never goes back, except by a seek."""

    def __init__(self) -> None:
        self._positions: dict[TopicPartition, int] = {}

    def moved(self, partition: TopicPartition, position: int) -> None:
        """Check that the client's position, or the offset after a returned record, isn't lower."""
        before = self._positions.get(partition, -1)
        if position < before:
            raise Violation(f"{partition}: the position went from {before} back to {position}")
        self._positions[partition] = position

    def sought(self, partition: TopicPartition, position: int) -> None:
        """Note that the application sought this position."""
        self._positions[partition] = position


class RecordsOnce:
    """A consumer returns each offset of a partition once, in order, without skipping any.

    Simulated logs have no gaps except markers and aborted records: nothing is compacted.
    """

    def __init__(self) -> None:
        self._next: dict[TopicPartition, int] = {}

    def read(self, partition: TopicPartition, offset: int) -> None:
        """Check a record that was returned to the caller."""
        expected = self._next.get(partition, 0)
        if offset < expected:
            raise Violation(f"{partition}: offset {offset} again, {expected} was next")
        if offset > expected:
            raise Violation(f"{partition}: offset {offset}, though {expected} was next")
        self._next[partition] = offset + 1

    def hidden(self, partition: TopicPartition, offsets: Collection[int]) -> None:
        """Skip offsets that no consumer returns."""
        while self._next.get(partition, 0) in offsets:
            self._next[partition] = self._next.get(partition, 0) + 1

    def skipped(self, partition: TopicPartition, offset: int) -> None:
        """Allow that records before this offset were deleted."""
        self._next[partition] = max(self._next.get(partition, 0), offset)

    def sought(self, partition: TopicPartition, offset: int) -> None:
        """Note that the application sought this offset."""
        self._next[partition] = offset

    def verify(self, cluster: SimulatedCluster, partitions: Iterable[TopicPartition]) -> None:
        """Check that all committed records were read."""
        for partition in partitions:
            end = cluster.log(partition.topic, partition.partition).high_watermark
            if self._next.get(partition, 0) != end:
                raise Violation(f"{partition}: read up to {self._next.get(partition, 0)} of {end}")


def no_hot_loop(world: World) -> None:
    """Check that no client exceeded its limit of steps in a virtual second."""
    if world.hot_loops:
        raise Violation("; ".join(world.hot_loops))


class TopicIdsAdvance:
    """R-ID-3: a client's metadata doesn't go back to a topic that was deleted and recreated.

    If the metadata has lost the topic meanwhile, or the client has bootstrapped again, the client
    may accept an id that it hasn't had before: ids are random, so it can't know that the id belongs
    to a deleted topic. If the application stops using the topic, the client forgets the ids.
    """

    KINDS = ("metadata",)

    def __init__(
        self,
        ids: Callable[[], Mapping[str, bytes]],
        lives: Callable[[str], Sequence[bytes]],
        bootstrap: Container[str] = (),
    ) -> None:
        """Set functions that return a client's topic ids, and all ids of a topic, the oldest first.

        A response from a `bootstrap` address replaces all metadata of the client.
        """
        self._ids = ids
        self._lives = lives
        self._bootstrap = bootstrap
        self._last: dict[str, bytes] = {}
        self._had: dict[str, set[bytes]] = {}
        """All ids that the client has had, by topic."""
        self._lost: set[str] = set()
        """Topics that the client's metadata has lost since their last id."""

    def __call__(self, event: Event) -> None:
        ids = self._ids()
        again = event.fields.get("address") in self._bootstrap
        self._lost.update(self._last.keys() - (() if again else ids.keys()))
        for name, topic_id in ids.items():
            before, lives = self._last.get(name), self._lives(name)
            if topic_id in lives:  # other ids are zero or another cluster's
                self._last[name] = topic_id
                had = self._had.setdefault(name, set())
                new = name in self._lost and topic_id not in had
                self._lost.discard(name)
                had.add(topic_id)
                if (
                    before is not None
                    and not new
                    and before in lives
                    and lives.index(topic_id) < lives.index(before)
                ):
                    raise Violation(
                        f"{event.at}: topic {name} is {topic_id.hex()} again, which was deleted "
                        f"before {before.hex()} was created"
                    )

    def forgotten(self, topic: str) -> None:
        """Note that the client forgets a topic's ids, because its application stopped using it."""
        self._had.pop(topic, None)
        self._lost.add(topic)


class Checkers:
    """The checkers that get each client's events, and the history of all clients' calls."""

    def __init__(self, world: World) -> None:
        self._world = world
        self.history = History(lambda: world.now)
        self.violations: list[Violation] = []
        """Violations so far, of all watched clients."""

    def watch(
        self,
        events: EventLog,
        config: Config,
        held: Callable[[str], bool] = lambda _: False,
        *more: EventChecker,
    ) -> None:
        """Check this client's events from now on; `verify` raises the violations.

        `held` takes an address and returns whether its broker blocks a write that is in flight.
        """
        checkers: list[EventChecker] = [
            OneMetadataRequest(held),
            BackoffInBounds(config),
            RetriesInBounds(config),
            RebootstrapsCounted(config),
            DialsLimited(config),
            *more,
        ]
        by_kind: dict[str, list[EventChecker]] = {}
        for checker in checkers:
            for kind in checker.KINDS:
                by_kind.setdefault(kind, []).append(checker)

        def listen(event: Event) -> None:
            for checker in by_kind.get(event.kind, ()):
                try:
                    checker(event)
                except Violation as violation:  # raising it here would break the client
                    self.violations.append(violation)

        events.listen(listen)

    def verify(self) -> None:
        """Raise the first violation, if any, or one for a client with too many steps."""
        if self.violations:
            raise self.violations[0]
        no_hot_loop(self._world)
