"""The engine of one consumer: subscription, fetcher and offsets on top of the client engine.

In: assignments and calls of the facade. Out: records or columns, offsets, descriptions. What is
marked "caller's thread" decodes and moves positions there. Must not: block; the facade waits for
what the flows here wait for.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from odradek.clients.client_engine import ClientEngine
from odradek.clients.consumer.fetched import Fetched
from odradek.clients.consumer.fetcher import Fetcher
from odradek.clients.consumer.offsets import (
    BEGINNING,
    END,
    ListedOffset,
    ListOffsetsCall,
    list_offsets,
)
from odradek.clients.consumer.records import ConsumerRecord, NoSuchOffsetError, OffsetAndTimestamp
from odradek.clients.consumer.subscription_state import (
    EARLIEST,
    NONE,
    PartitionState,
    SubscriptionState,
)
from odradek.clients.descriptions import TopicDescription, describe_topics
from odradek.common.config import Config
from odradek.common.errors import (
    CorruptRecordError,
    IllegalStateError,
    KafkaError,
    UnsupportedFeatureError,
)
from odradek.common.events import Event
from odradek.common.types import Rng, TopicPartition
from odradek.metadata.cluster import to_hint
from odradek.network.flow import START, Flow, Wait
from odradek.record import RecordColumns

if TYPE_CHECKING:
    import pyarrow as pa

FRAME_SLACK = 64 << 20
"""A first batch is sent whole even where it is above `fetch.max.bytes`."""
BUFFER_SLACK = 32 << 20
"""Receive buffers may keep so much more than `fetch.max.bytes`, which bounds what is in them."""
ARROW_ROWS = 65536
"""Rows of one `poll_arrow()` at which decoding stops, at the end of a batch."""
LOG_RANGE_TIMEOUT = 5.0
"""Seconds for finding out where a log begins and ends, when that is only for an error's text."""
UNAVAILABLE_PATIENCE = 1.0
"""Each poll tries at least so long, up to its timeout, before it raises for want of a broker."""


class ConsumerEngine(ClientEngine):
    """What a consumer is made of."""

    def __init__(self, config: Config, rng: Rng, *, hint: Mapping[str, Any] | None = None) -> None:
        limit = max(config["fetch.max.bytes"], config["max.partition.fetch.bytes"]) + FRAME_SLACK
        super().__init__(config, rng, frame_limit=min(limit, 2**31 - 1), hint=hint)
        self.network.buffers.limit = config["fetch.max.bytes"] + BUFFER_SLACK
        self.subscription = SubscriptionState(
            config["auto.offset.reset"], config.backoff("retry.backoff"), rng
        )
        self.fetcher = Fetcher(self, self.subscription)
        self.components.append(self.fetcher)
        self.isolation = 1 if config["isolation.level"] == "read_committed" else 0
        self._disturbed_at = -math.inf
        self._undelivered = True
        self.events.listen(self._note_disturbance)

    # The assignment

    def assign(
        self, partitions: Iterable[TopicPartition], until: Mapping[TopicPartition, int] | None
    ) -> None:
        """Replace the assignment, and with it the topics in use."""
        before = {p.topic for p in self.subscription.partitions}
        self.subscription.assign(partitions, until or {})
        topics = dict.fromkeys(p.topic for p in self.subscription.partitions)
        gone = before.difference(topics)
        self.post(lambda _: self.metadata.forget_topics(gone))
        self.post(lambda _: self.metadata.want(topics))

    # Positions

    def start_resets(self, now: float) -> bool:
        """Look up positions for partitions that have none; part of the fetcher's advance."""
        states = [
            s
            for s in self.subscription.partitions.values()
            if s.position is None and not s.resetting and s.error is None and s.backoff.until <= now
        ]
        wanted: dict[TopicPartition, int] = {}
        resets: dict[TopicPartition, tuple[PartitionState, int]] = {}
        for state in states:
            if state.reset == NONE:
                text = f"{state.partition} has no position and auto.offset.reset is none: seek()"
                self.subscription.fail(state, IllegalStateError(text), now)
                self.fetcher.changed.notify()
                continue
            state.resetting = True
            wanted[state.partition] = BEGINNING if state.reset == EARLIEST else END
            resets[state.partition] = (state, state.generation)
        if not wanted:
            return False

        def still(partition: TopicPartition) -> bool:
            state, generation = resets[partition]
            return state.generation == generation and self.subscription.holds(state)

        def found(partition: TopicPartition, result: ListedOffset | KafkaError) -> None:
            state, _ = resets[partition]
            if not still(partition):
                return
            if isinstance(result, KafkaError):
                state.resetting = False
                self.subscription.fail(state, result, self.now)
            else:
                state.move_to(result.offset)
            self.subscription.changed.notify()
            self.fetcher.changed.notify()

        call = ListOffsetsCall(self, wanted, found, isolation=self.isolation, still=still)
        self.start(call.run())
        return True

    def out_of_range(self, state: PartitionState) -> None:
        """Have the next poll raise where a position is, and where the log begins and ends."""
        state.fetch_offset = None  # nothing is asked meanwhile
        self.start(self._out_of_range(state, state.generation))

    def _out_of_range(self, state: PartitionState, generation: int) -> Flow[None]:
        now = yield START
        partition, position = state.partition, state.position
        log: dict[int, int] = {}
        for which in (BEGINNING, END):
            try:
                deadline = now + LOG_RANGE_TIMEOUT
                found = yield from list_offsets(self, {partition: which}, self.isolation, deadline)
                log[which] = found[partition].offset
            except KafkaError:  # the text will say "unknown"
                break
        if state.generation != generation or position is None:
            return
        state.fetch_offset = position
        error = NoSuchOffsetError(partition, position, log.get(BEGINNING), log.get(END))
        self.subscription.fail(state, error, self.now)
        self.fetcher.changed.notify()

    def position(self, partition: TopicPartition, deadline: float) -> Flow[int]:
        """The offset of the next record; waits for a reset."""
        now = yield START
        state = self.subscription.get(partition)
        while state.position is None:
            if state.error is not None:
                error, state.error = state.error, None
                raise error
            if now >= deadline:
                raise self.timeout(f"position of {partition}", now)
            now = yield Wait((self.fetcher.changed,), deadline)
        return state.position

    # Offsets

    def offsets_at(
        self, partitions: Iterable[TopicPartition], which: int, deadline: float
    ) -> Flow[dict[TopicPartition, int]]:
        """Beginning or end offsets."""
        wanted = dict.fromkeys(partitions, which)
        found = yield from list_offsets(self, wanted, self.isolation, deadline)
        return {p: f.offset for p, f in found.items()}

    def offsets_for_times(
        self, times: Mapping[TopicPartition, int], deadline: float
    ) -> Flow[dict[TopicPartition, OffsetAndTimestamp | None]]:
        """The first record at or after a time; None where there is none."""
        found = yield from list_offsets(self, times, self.isolation, deadline)
        return {
            p: OffsetAndTimestamp(f.offset, f.timestamp_ms, f.leader_epoch)
            if f.offset >= 0
            else None
            for p, f in found.items()
        }

    # Topics

    def describe(self, topics: Sequence[str], deadline: float) -> Flow[dict[str, TopicDescription]]:
        """Describe topics by a request of its own."""
        return describe_topics(self, topics, deadline)

    def partitions_for(self, topic: str, deadline: float) -> Flow[list[TopicPartition]]:
        """The partitions of a topic that exists."""
        found = yield from describe_topics(self, [topic], deadline)
        return [TopicPartition(topic, p.partition) for p in found[topic].partitions]

    def bootstrap_hint(self) -> dict[str, Any] | None:
        """The snapshot as plain data, for a consumer in another process."""
        snapshot = self.metadata.snapshot
        return None if snapshot is None else to_hint(snapshot)

    # Polling

    def data(self, deadline: float) -> Flow[bool]:
        """Wait until there is something for the caller; False at the deadline, or at the end.

        Raises `NoBrokerAvailableError` once `metadata.unavailable.timeout.ms` has passed (R-RB-6).
        """
        now = yield START
        if not self.subscription.partitions:
            raise IllegalStateError("no partition is assigned: call assign() first")
        patience = min(deadline, now + UNAVAILABLE_PATIENCE)
        while True:
            if self.subscription.pending or self.fetcher.head() is not None:
                return True
            if self.subscription.finished():
                return False
            raise_at = max(self._unavailable_until(), patience)
            if now >= raise_at:
                raise self.timeout("records", now)
            if now >= deadline:
                return False
            until = min(deadline, raise_at)
            self.waiting["records"] = deadline
            try:
                now = yield Wait((self.fetcher.changed, self.metadata.changed), until)
            finally:
                self.waiting.pop("records", None)

    def _unavailable_until(self) -> float:
        limit: float | None = self.config["metadata.unavailable.timeout.ms"]
        since = self.updater.unavailable_since
        if since is None and self.metadata.snapshot is None:
            since = self.updater.due_since
        return math.inf if limit is None or since is None else since + limit

    @property
    def buffered(self) -> bool:
        """Something is there for the caller already."""
        return self.fetcher.head() is not None or self.subscription.pending

    def take_records(self, most: int, now: float) -> list[ConsumerRecord]:
        """Decode and hand out up to so many records (caller's thread)."""
        self._check()
        records: list[ConsumerRecord] = []
        while len(records) < most:
            entry = self.fetcher.head()
            if entry is None:
                break
            try:
                columns = entry.take(most - len(records))
            except (CorruptRecordError, UnsupportedFeatureError) as error:
                failure = self._undecodable(entry, error, now)
                if not records:
                    raise failure from error
                entry.state.error = failure
                break
            if columns.count:
                self._note_delivery(entry, now)
                _append(records, entry, columns)
        return records

    def take_arrow(
        self, names: Sequence[str] | None, include_headers: bool, now: float
    ) -> pa.RecordBatch | None:
        """Decode and hand out one partition's records as a record batch (caller's thread)."""
        from odradek.record.arrow import arrow_schema, to_record_batch

        self._check()
        wanted = arrow_schema(include_headers, names).names  # refuses names that aren't there
        while True:
            entry = self.fetcher.head()
            if entry is None:
                return None
            try:
                columns = entry.take(
                    ARROW_ROWS,
                    key="key" in wanted,
                    value="value" in wanted,
                    headers="headers" in wanted,
                )
            except (CorruptRecordError, UnsupportedFeatureError) as error:
                raise self._undecodable(entry, error, now) from error
            if columns.count:
                self._note_delivery(entry, now)
                partition = entry.state.partition
                return to_record_batch(columns, partition.topic, partition.partition, names=wanted)

    def _check(self) -> None:
        if self.ended is not None:
            raise self.ended.with_traceback(None)
        self.subscription.raise_pending()

    def _undecodable(self, entry: Fetched, error: KafkaError, now: float) -> KafkaError:
        """Say which partition, and how to go on; the position stays before the bad batch."""
        state = entry.state
        failure = type(error)(
            f"{state.partition}: {error} (position {state.position}; seek() past it to go on)"
        )
        self.fetcher.discard(entry, failure, now)
        state.error = None
        return failure

    # The event that says that records flow again

    def _note_disturbance(self, event: Event) -> None:
        failed = event.kind == "disconnected" and event.fields.get("failure")
        if failed or event.kind in ("dial_failed", "rebootstrap"):
            self._disturbed_at = event.at
            self._undelivered = True

    def _note_delivery(self, entry: Fetched, now: float) -> None:
        if self._undelivered and entry.arrived >= self._disturbed_at:
            self._undelivered = False
            partition = entry.state.partition
            self.events.emit(
                now, "first_record", topic=partition.topic, partition=partition.partition
            )


def _append(records: list[ConsumerRecord], entry: Fetched, columns: RecordColumns) -> None:
    topic, partition = entry.state.partition.topic, entry.state.partition.partition
    epochs = entry.leader_epochs(columns)
    if isinstance(epochs, int):
        records.extend(ConsumerRecord(topic, partition, *row, epochs) for row in columns)
    else:
        records.extend(
            ConsumerRecord(topic, partition, *row, epoch)
            for row, epoch in zip(columns, epochs, strict=True)
        )
