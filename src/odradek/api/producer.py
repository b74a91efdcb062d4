"""The producer as users see it.

In: records one by one, or Arrow batches. Out: futures. Flow: `send` → accumulator → sender → wire.
Must not: decide anything; the engine does.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from odradek.api.base import GRACE, Client
from odradek.api.record_future import ArrowFuture, RecordFuture, not_yet
from odradek.clients.producer.batch import ProducerBatch
from odradek.clients.producer.producer_engine import ProducerEngine
from odradek.clients.producer.record_accumulator import Appended
from odradek.common.config import PRODUCER, Config
from odradek.common.errors import (
    BufferExhaustedError,
    ConfigurationError,
    RecordTooLargeError,
)
from odradek.common.types import TopicPartition
from odradek.metadata.cluster import Topic
from odradek.network.host import Host
from odradek.record import estimate_record_size

if TYPE_CHECKING:
    from odradek.record.arrow_send import ArrowRecords

CLOSE_TIMEOUT = 30.0


class Producer(Client[ProducerEngine]):
    """Writes records: idempotent, `acks=all`, in order per partition, without duplicates.

    `config` has Kafka's names (`{"bootstrap.servers": "host:9092"}`); keywords take underscores
    (`linger_ms=20`). Threads may share a producer. It keeps working when its brokers are replaced:
    records wait in `buffer.memory` and go to whoever leads then, for `delivery.timeout.ms`
    (KIP-91, KIP-98, KIP-899).

    >>> with Producer({"bootstrap.servers": "localhost:9092"}) as producer:  # doctest: +SKIP
    ...     future = producer.send("flights", value=b"JFK", key=b"N14228")
    ...     print(future.result(timeout=10).offset)
    """

    def __init__(
        self,
        config: Mapping[str, Any] | None = None,
        *,
        _host: Host | None = None,
        **keywords: Any,
    ) -> None:
        """Check the configuration; nothing is opened yet.

        Raises `ConfigurationError` for a name or value that can't be used and
        `UnsupportedFeatureError` for what this release doesn't have (transactions, TLS, SASL …).
        """
        settled = Config(PRODUCER, config, **keywords)
        super().__init__(
            settled, _host, lambda host: ProducerEngine(settled, host.rng(), host.lock)
        )

    def _usual_host(self) -> Host:
        """A thread of its own, started at the first record: records linger while users go on."""
        from odradek.runtime import ThreadHost

        return ThreadHost()

    def send(
        self,
        topic: str,
        value: bytes | None = None,
        key: bytes | None = None,
        headers: Sequence[tuple[str, bytes | None]] = (),
        partition: int | None = None,
        timestamp_ms: int | None = None,
    ) -> RecordFuture:
        """Give one record to the producer; returns at once unless memory or metadata is missing.

        `partition`: None lets the key decide (Java's murmur2), or the sticky partitioner without a
        key (KIP-480, KIP-794). `timestamp_ms`: milliseconds since the epoch, None for now.
        It waits at most `max.block.ms` for the topic's metadata and for room in `buffer.memory`.

        Raises `RecordTooLargeError` (`max.request.size`), `BufferExhaustedError`,
        `KafkaTimeoutError` (no metadata of the topic, with all that was tried),
        `TopicAuthorizationFailedError`, `InvalidTopicError`, `ClientClosedError`; errors of sending
        come out of the future.
        """
        self._check_open()
        size = estimate_record_size(key, value, headers)
        self._check_size(size)
        at = int(self._host.wall_clock() * 1000) if timestamp_ms is None else timestamp_ms
        place = self._append(self._topic(topic), key, value, headers, partition, at, size)
        return RecordFuture(self, place.batch, place.index, at)

    def send_arrow(self, topic: str, data: Any) -> ArrowFuture:
        """Give the rows of Arrow data to the producer.

        `data`: a pyarrow RecordBatch or Table, or anything with the Arrow PyCapsule interface
        (Polars, DuckDB, pandas 3). Columns: `value` (binary or string) and, where wanted, `key`
        (binary or string), `headers` (list of struct<key: string, value: binary>), `partition`
        (integer), `timestamp` (timestamp, or integer in milliseconds since the epoch).
        Null keys, values, partitions and timestamps mean what None means to `send`.

        Waits for room as `send` does. The future's `result()` gives the offset ranges.
        Raises what `send` raises, and `ArrowSchemaError` for columns that don't fit.
        """
        from odradek.record.arrow_send import records_from_arrow

        self._check_open()
        rows: ArrowRecords = records_from_arrow(data)
        known = self._topic(topic)
        pieces: dict[ProducerBatch, list[int]] = {}
        for key, value, headers, partition, timestamp_ms in rows:
            size = estimate_record_size(key, value, headers)
            self._check_size(size)
            at = int(self._host.wall_clock() * 1000) if timestamp_ms is None else timestamp_ms
            place = self._append(known, key, value, headers, partition, at, size)
            range_ = pieces.setdefault(place.batch, [place.index, place.index])
            range_[1] = place.index
        return ArrowFuture(
            self, [(batch, first, last) for batch, (first, last) in pieces.items()], len(rows)
        )

    def flush(self, timeout: float | None = None) -> None:
        """Send everything that lingers and wait until all records sent before have an outcome.

        `timeout` in seconds, default `delivery.timeout.ms`. Raises `KafkaTimeoutError` when some
        have none by then; they go on being sent. Errors of records come out of their futures.
        """
        self._call(
            self._engine.flush, timeout, "acknowledgement of all records", "delivery.timeout.ms"
        )

    def partitions_for(self, topic: str, timeout: float | None = None) -> list[TopicPartition]:
        """The partitions of a topic, in order. Waits for metadata, default `max.block.ms`."""
        found = self._topic(topic, timeout)
        return [TopicPartition(topic, p.partition) for p in found.partitions]

    def close(self, timeout: float = CLOSE_TIMEOUT) -> None:
        """Flush for at most `timeout` seconds, then close; records left get `ClientClosedError`."""
        if self._closed:
            return
        deadline = self._host.now() + timeout
        try:
            if self._engine.ended is None and self._engine.sender.incomplete():
                self.flush(timeout)
        finally:
            super().close(max(1.0, deadline - self._host.now()))

    # What the futures need

    def now(self) -> float:
        """The producer's monotonic time in seconds."""
        return self._host.now()

    def deadline(self, timeout: float | None) -> float:
        """The time at which a wait of `timeout` seconds ends."""
        return self._deadline(timeout, "delivery.timeout.ms")

    def await_batch(self, batch: ProducerBatch, timeout: float | None) -> None:
        """Wait for a batch's outcome; raises `KafkaTimeoutError` when it isn't there in time."""
        if batch.done.done:
            return
        deadline = self.deadline(timeout)
        self._host.wake()
        if not self._host.run(batch.done, deadline):
            what = f"acknowledgement of records for {batch.partition}"
            raise not_yet(batch, self._engine.timeout(what, self._host.now()))

    # Inside

    def _topic(self, name: str, timeout: float | None = None) -> Topic:
        """The topic's metadata; from the snapshot where it is known, which is nearly always."""
        snapshot = self._engine.metadata.snapshot
        found = snapshot.topic(name) if snapshot is not None else None
        if found is not None and found.partitions:
            return found
        return self._call(
            lambda deadline: self._engine.topic(name, deadline),
            timeout,
            f"metadata of topic {name}",
            "max.block.ms",
        )

    def _check_size(self, size: int) -> None:
        limit = min(self._config["max.request.size"], self._config["buffer.memory"])
        if size > limit:
            raise RecordTooLargeError(
                f"a record of up to {size} bytes is above max.request.size "
                f"({self._config['max.request.size']}) or buffer.memory"
            )

    def _append(
        self,
        topic: Topic,
        key: bytes | None,
        value: bytes | None,
        headers: Sequence[tuple[str, bytes | None]],
        partition: int | None,
        timestamp_ms: int,
        size: int,
    ) -> Appended:
        """Put one record into its partition's open batch; waits for room where there is none."""
        engine, host = self._engine, self._host
        if engine.ended is not None:
            raise engine.ended
        if partition is None:
            partition = engine.partitioner.partition(topic, key, size)
        elif not 0 <= partition < len(topic.partitions):
            raise ConfigurationError(
                f"topic {topic.name} has partitions 0 to {len(topic.partitions) - 1}, "
                f"not {partition}"
            )
        target = TopicPartition(topic.name, partition)
        deadline: float | None = None
        while True:
            place = engine.accumulator.append(
                target, key, value, headers, timestamp_ms, size, host.now()
            )
            if place is not None:
                break
            if deadline is None:
                deadline = host.now() + self._config["max.block.ms"]
            self._await_room(size, deadline)
        if place.wake:
            host.wake()
        return place

    def _await_room(self, size: int, deadline: float) -> None:
        engine, host = self._engine, self._host
        room = engine.start(engine.room(size, deadline))
        host.wake()
        if not host.run(room, deadline + GRACE) or not room.result():
            error = engine.timeout(f"room for {size} bytes in buffer.memory", host.now())
            raise BufferExhaustedError(
                f"buffer.memory ({engine.accumulator.limit} bytes) stayed full for max.block.ms"
            ) from error
