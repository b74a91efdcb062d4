"""In-memory producers and their cluster: transactions, fencing, outages, rejected rows.

Coordinators use the simulation's state transitions (`simulation/coordinators`). Each request is
a step of `MemoryLog`, and tests can run code before and after each step.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

from odradek.clients.admin.transactions import (
    OVER,
    ProducerIdAndEpoch,
    TransactionDescription,
)
from odradek.clients.consumer.records import OffsetAndMetadata
from odradek.clients.producer.transaction_state import PreparedTransaction
from odradek.common.errors import KafkaError, KafkaTimeoutError, RecordTooLargeError
from odradek.common.errors.kafka import (
    ConcurrentTransactionsError,
    InvalidProducerIdMappingError,
    TransactionalIdNotFoundError,
    UnsupportedVersionError,
)
from odradek.common.types import TopicPartition
from odradek.simulation.coordinators import transaction_states as states
from odradek.simulation.coordinators.transaction_states import State, TransactionMetadata

Row = tuple[str, Any]
Offsets = dict[TopicPartition, OffsetAndMetadata]
ANYWHERE = TopicPartition("t", 0)


@dataclass
class Pending:
    """Rows and offsets of an open transaction."""

    rows: list[Row] = field(default_factory=list)
    offsets: dict[str, Offsets] = field(default_factory=dict)


@dataclass
class MemoryLog:
    """Committed rows and offsets, transactions, and faults."""

    clock: Any
    topics: tuple[str, ...] = ("t",)
    version: int = 2
    """The cluster's transaction.version."""
    rows: list[Row] = field(default_factory=list)
    offsets: dict[str, Offsets] = field(default_factory=dict)
    former: dict[str, list[Offsets]] = field(default_factory=dict)
    """Earlier committed offsets of each group, oldest first."""
    known: dict[str, TransactionMetadata] = field(default_factory=dict)
    pending: dict[str, Pending] = field(default_factory=dict)
    steps: list[str] = field(default_factory=list)
    down_until: float = 0.0
    timeouts: int = 0
    """Number of transactions that timed out."""
    before: Callable[[str, MemoryProducer], None] = lambda *_: None
    """Function called with the name of each request before the request takes effect."""
    after: Callable[[str, MemoryProducer], None] = lambda *_: None
    """Function called after a request has taken effect, before its response arrives."""
    late_markers: Callable[[], bool] = lambda: False
    """Function that says whether an ended transaction's markers are written only later."""
    outdated: Callable[[str], Offsets | None] = lambda _: None
    """Function that returns outdated offsets if the group's coordinator is cut off, else None."""
    ends: Callable[..., None] = lambda *_, **__: None
    """Function called when an open transaction of a task is committed or aborted."""
    dead: Callable[[], bool] = lambda: False
    """Function that says whether the calling process was killed, so it can't abort anything."""
    refuse: str | None = None
    """The producer rejects rows with this value as too large; None: it rejects no row."""
    before_3_0: bool = False
    """Whether the brokers can't describe transactions."""
    producers: list[MemoryProducer] = field(default_factory=list)
    closed: list[float] = field(default_factory=list)
    ids: Any = field(default_factory=lambda: itertools.count(1000))

    def make(self, config: Mapping[str, Any]) -> Any:
        timeout = float(config.get("transaction.timeout.ms", 60_000)) / 1000
        self.producers.append(MemoryProducer(self, config.get("transactional.id"), timeout))
        return self.producers[-1]

    @property
    def made(self) -> int:
        return len(self.producers)

    @property
    def in_use(self) -> list[str | None]:
        """Transactional ids of producers that are neither closed nor ready for another task."""
        return [p.name for p in self.producers if p.is_in_use]

    @staticmethod
    def prepared(producer: Any) -> Any:
        return MemoryTransactions(producer)

    def values(self) -> list[Any]:
        return [value for _, value in self.rows]

    # Requests to the transaction coordinator, by transactional id

    def new_id(self) -> int:
        return int(next(self.ids))

    def state(self, name: str) -> TransactionMetadata | None:
        """Return the state of a transactional id; abort a transaction that has timed out."""
        found = self.known.get(name)
        ongoing = found is not None and found.state is State.ONGOING
        if found and ongoing and self.clock.now() >= found.started + found.timeout:
            self.known[name] = states.fenced(found)
            self.complete(name)
            self.timeouts += 1
        return self.known.get(name)

    def required(self, name: str) -> TransactionMetadata:
        found = self.state(name)
        if found is None:
            raise InvalidProducerIdMappingError(name)
        return found

    def initialise(self, name: str, timeout: float) -> tuple[int, int]:
        while True:
            found = self.state(name) or TransactionMetadata(name, self.new_id())
            if found.state in states.PREPARED:
                self.complete(name)
                continue
            after = self.known[name] = states.initialised(found, timeout, None, self.new_id)
            if after.state is not State.PREPARE_ABORT:
                return after.producer_id, after.epoch

    def write(self, name: str, identity: tuple[int, int]) -> Pending:
        """Return a producer's open transaction; raise if the producer is fenced."""
        try:
            states.check_producer(self.required(name), *identity)
        except ConcurrentTransactionsError:
            self.complete(name)
        self.known[name] = states.added(self.required(name), {ANYWHERE}, self.clock.now())
        return self.pending.setdefault(name, Pending())

    def end(self, name: str, identity: tuple[int, int], *, commit: bool) -> tuple[int, int]:
        while True:
            found = self.required(name)
            try:
                after = states.ended(
                    found, *identity, self.new_id, commit=commit, version=self.version
                )
            except ConcurrentTransactionsError:
                self.complete(name)
                continue
            if after is not None:
                if found.state is State.ONGOING and not name.endswith("-driver"):
                    self.ends(name, commit=commit)
                self.known[name] = after
                if not self.late_markers():
                    self.complete(name)
            now = self.known[name]
            return now.producer_id, now.epoch

    def complete(self, name: str) -> None:
        """Complete a prepared transaction, as if all its markers were written."""
        found = self.known[name]
        if found.state not in states.PREPARED:
            return
        done = self.pending.pop(name, Pending())
        if found.commits:
            self.rows += done.rows
            for group, offsets in done.offsets.items():
                before = self.offsets.get(group, {})
                self.former.setdefault(group, []).append(before)
                self.offsets[group] = {**before, **offsets}
        self.known[name] = states.completed(found)

    def settle(self) -> None:
        """Complete all prepared transactions, and abort those that have timed out."""
        for name in list(self.known):
            self.state(name)
            self.complete(name)

    def unstable(self, group: str) -> list[str]:
        """Return the transactional ids whose pending transaction contains offsets of a group."""
        for name in list(self.pending):
            self.state(name)
        return [name for name, pending in self.pending.items() if group in pending.offsets]


class Sent:
    def __init__(self, rows: int, error: BaseException | None = None) -> None:
        self.rows, self._error = rows, error

    def done(self) -> bool:
        return True

    def exception(self, timeout: float | None = None) -> BaseException | None:
        return self._error

    def errors(self, timeout: float | None = None) -> Any:
        marks = [None] * (self.rows - 1) + ["refused"]
        return pa.array(marks) if self._error is not None else None


class MemoryProducer:
    ended: KafkaError | None = None

    def __init__(self, log: MemoryLog, name: str | None, timeout: float = 60.0) -> None:
        self.log, self.name, self._timeout = log, name, timeout
        self.identity = (-1, -1)
        self._open = self._closed = False

    @property
    def is_in_use(self) -> bool:
        return not self._closed and (self._open or self.identity != (-1, -1))

    def step(self, what: str, timeout: float | None = None) -> None:
        self.log.steps.append(what)
        self.log.before(what, self)
        clock = self.log.clock
        if clock.now() < self.log.down_until:
            clock.at += timeout or 0.0
            raise KafkaTimeoutError(f"{what}: nobody answers")

    def _pending(self) -> Pending:
        assert self.name is not None
        assert self._open, "outside of a transaction"
        return self.log.write(self.name, self.identity)

    def cluster_id(self, timeout: float | None = None) -> str:
        self.step("cluster", timeout)
        return "cluster-A"

    def partitions_for(self, topic: str, timeout: float | None = None) -> Sequence[object]:
        self.step("topic", timeout)
        if topic not in self.log.topics:
            self.log.clock.at += timeout or 0.0
            raise KafkaTimeoutError(f"metadata of topic {topic} (UNKNOWN_TOPIC_OR_PARTITION)")
        return (0,)

    def send_arrow(self, topic: str, data: Any) -> Sent:
        self.step("send")
        values = data.column("value").to_pylist()
        if self.log.refuse in values:
            raise RecordTooLargeError(f"row {values.index(self.log.refuse)}: too large")
        into = self.log.rows if self.name is None else self._pending().rows
        into += [(topic, value) for value in values]
        return Sent(len(values))

    def flush(self, timeout: float | None = None) -> None:
        self.step("flush", timeout)
        if self.name is not None:
            self._pending()

    def init_transactions(self, timeout: float | None = None) -> None:
        assert self.name is not None
        self.step("init", timeout)
        self.identity = self.log.initialise(self.name, self._timeout)
        self.log.after("init", self)

    def committed_offsets(
        self, group: str, timeout: float | None = None
    ) -> Mapping[TopicPartition, OffsetAndMetadata]:
        self.step("offsets of a group", timeout)
        outdated = self.log.outdated(group)
        return self.stable_offsets(group, timeout) if outdated is None else outdated

    def stable_offsets(self, group: str, timeout: float | None = None) -> Offsets:
        """Return a group's committed offsets; time out while they are unstable."""
        for name in self.log.unstable(group):
            if self.log.known[name].state is State.ONGOING:
                self.log.clock.at += timeout or 0.0
                raise KafkaTimeoutError(f"{group}: UNSTABLE_OFFSET_COMMIT")
            self.log.complete(name)
        return dict(self.log.offsets.get(group, {}))

    def begin_transaction(self) -> None:
        assert not self._open
        self._open = True

    def send_offsets_to_transaction(
        self, offsets: Mapping[TopicPartition, Any], group: str, timeout: float | None = None
    ) -> None:
        self.step("marker", timeout)
        self._pending().offsets.setdefault(group, {}).update(offsets)
        self.log.after("marker", self)

    def commit_transaction(self, timeout: float | None = None) -> None:
        assert self.name is not None
        self.step("commit", timeout)
        self.identity = self.log.end(self.name, self.identity, commit=True)
        self._open = False
        self.log.after("commit", self)

    def abort_transaction(self, timeout: float | None = None) -> None:
        assert self.name is not None
        self.step("abort", timeout)
        self.identity = self.log.end(self.name, self.identity, commit=False)
        self._open = False
        self.log.after("abort", self)

    def use(self, name: str) -> None:
        self.name, self.identity, self._open = name, (-1, -1), False

    def explain(self) -> str:
        return "the explanation of the client"

    def close(self, timeout: float = 30.0) -> None:
        self.log.closed.append(timeout)
        self._closed = True
        if self._open and timeout > 0 and self.name is not None and not self.log.dead():
            self._open = False
            found = self.log.state(self.name)
            now = None if found is None else (found.state, found.producer_id, found.epoch)
            if now == (State.ONGOING, *self.identity):
                self.log.end(self.name, self.identity, commit=False)


class MemoryTransactions:
    """A replacement of `PreparedTransactions`."""

    def __init__(self, producer: MemoryProducer) -> None:
        self._producer, self._log = producer, producer.log

    @property
    def identity(self) -> PreparedTransaction:
        me = self._producer
        return PreparedTransaction(me.name or "", *me.identity, self._log.version >= 2)

    def coordinator_of(self, group: str) -> int:
        return 1

    def offsets_there(self, group: str, timeout: float, *, stable: bool) -> Offsets:
        self._producer.step("offsets there", timeout)
        if stable:
            return self._producer.stable_offsets(group, timeout)
        return dict(self._log.offsets.get(group, {}))

    def prepare(self, timeout: float) -> PreparedTransaction:
        self._producer.step("prepare", timeout)
        assert self._producer.name is not None
        return self.identity

    def use(self, transactional_id: str) -> None:
        self._producer.use(transactional_id)

    def end(
        self, those: Sequence[PreparedTransaction], timeout: float, *, committed: bool
    ) -> dict[str, KafkaError | None]:
        found: dict[str, KafkaError | None] = {}
        for one in those:
            self._producer.step("end", timeout)
            found[one.transactional_id] = None
            try:
                identity = one.producer_id, one.epoch
                self._log.end(one.transactional_id, identity, commit=committed)
            except OVER as error:
                found[one.transactional_id] = error
            self._log.after("end", self._producer)
        return found

    def describe(self, ids: Sequence[str], timeout: float) -> dict[str, TransactionDescription]:
        self._producer.step("describe", timeout)
        if self._log.before_3_0:
            raise UnsupportedVersionError("DescribeTransactions")
        found = {}
        for name in ids:
            now = self._log.state(name)
            if now is None:
                raise TransactionalIdNotFoundError(name)
            found[name] = TransactionDescription(
                now.state.value, now.producer_id, now.epoch, 0, None, frozenset()
            )
        return found

    def ongoing(self, prefix: str, timeout: float) -> list[str]:
        self._producer.step("ongoing", timeout)
        if self._log.before_3_0:
            raise UnsupportedVersionError("ListTransactions")
        known = [name for name in self._log.known if name.startswith(prefix)]
        return [n for n in known if (s := self._log.state(n)) and s.state is State.ONGOING]

    def fence(self, ids: Sequence[str], timeout: float) -> dict[str, ProducerIdAndEpoch]:
        self._producer.step("fence", timeout)
        found = {name: ProducerIdAndEpoch(*self._log.initialise(name, 60.0)) for name in ids}
        self._log.after("fence", self._producer)
        return found

    def offsets(self, groups: Sequence[str], timeout: float) -> dict[str, Offsets]:
        self._producer.step("offsets of groups", timeout)
        found = {}
        for group in groups:
            outdated = self._log.outdated(group)
            found[group] = dict(self._log.offsets.get(group, {})) if outdated is None else outdated
        return found
