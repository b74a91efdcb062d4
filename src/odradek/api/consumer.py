"""The consumer as users see it: assigned partitions, records or Arrow batches.

In: assignments, positions, timeouts. Out: records, record batches, offsets, descriptions. Flow:
wire → fetcher → (caller's thread) decode → here. Must not: decide anything; the engine does.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NoReturn, TypeVar

from odradek.api.base import Client
from odradek.clients.consumer.consumer_engine import ConsumerEngine
from odradek.clients.consumer.offsets import BEGINNING, END
from odradek.clients.consumer.records import ConsumerRecord, OffsetAndTimestamp
from odradek.clients.consumer.subscription_state import EARLIEST, LATEST
from odradek.clients.descriptions import TopicDescription
from odradek.common.config import CONSUMER, Config
from odradek.common.errors import ConfigurationError, UnsupportedFeatureError
from odradek.common.types import TopicPartition
from odradek.network.host import Host

if TYPE_CHECKING:
    import pyarrow as pa

T = TypeVar("T")


class Consumer(Client[ConsumerEngine]):
    """Reads records of assigned partitions, as objects or as Arrow columns.

    All work is done in the caller's thread, inside its calls; one thread at a time. It keeps
    working when its brokers are replaced: positions are kept, and no record is handed out twice or
    left out (KIP-899). Times are in float seconds.

    >>> with Consumer({"bootstrap.servers": "localhost:9092"}) as consumer:  # doctest: +SKIP
    ...     consumer.assign([TopicPartition("flights", 0)])
    ...     for record in consumer.poll(timeout=1.0):
    ...         print(record.offset, record.value)
    """

    def __init__(
        self,
        config: Mapping[str, Any] | None = None,
        *,
        _host: Host | None = None,
        _metadata_hint: Mapping[str, Any] | None = None,
        **keywords: Any,
    ) -> None:
        """Check the configuration; nothing is opened yet.

        Raises `ConfigurationError` for a name or value that can't be used and
        `UnsupportedFeatureError` for what this release doesn't have (groups, TLS, SASL …).
        """
        settled = Config(CONSUMER, config, **keywords)
        super().__init__(
            settled,
            _host,
            lambda host: ConsumerEngine(settled, host.rng(), hint=_metadata_hint),
        )

    # Assignment and positions

    def assign(
        self,
        partitions: Collection[TopicPartition],
        *,
        until: Mapping[TopicPartition, int] | None = None,
    ) -> None:
        """Read these partitions from now on, and no others; those that stay keep their positions.

        `until` gives, per partition, the first offset that isn't wanted: records end exactly
        there, and `position()` is at or behind it then, also across gaps of compaction and
        transactions. A partition without a position starts where `auto.offset.reset` says.
        """
        self._check_open()
        self._engine.assign(partitions, until)

    def assignment(self) -> list[TopicPartition]:
        """The partitions that are assigned."""
        return list(self._engine.subscription.partitions)

    def subscribe(self, *_: Any, **__: Any) -> NoReturn:
        """Not there yet: raises `UnsupportedFeatureError`."""
        raise UnsupportedFeatureError(
            "consumer groups aren't in this release yet: assign() the partitions, for example "
            "those that partitions_for(topic) gives"
        )

    def commit(self, *_: Any, **__: Any) -> NoReturn:
        """Not there yet: raises `UnsupportedFeatureError`."""
        raise UnsupportedFeatureError(
            "commits to a group aren't in this release yet: keep position() yourself and seek()"
        )

    def seek(self, tp: TopicPartition, offset: int) -> None:
        """Go on reading a partition at an offset. Whether it is in the log shows at `poll`."""
        self._check_open()
        self._engine.subscription.seek(tp, offset)

    def seek_to_beginning(self, partitions: Collection[TopicPartition] | None = None) -> None:
        """Go on at the first offset that is there (None: all assigned); looked up by `poll`."""
        self._check_open()
        self._engine.subscription.request_reset(partitions, EARLIEST)

    def seek_to_end(self, partitions: Collection[TopicPartition] | None = None) -> None:
        """Go on behind the last record (None: all assigned); looked up by `poll`."""
        self._check_open()
        self._engine.subscription.request_reset(partitions, LATEST)

    def position(self, tp: TopicPartition, timeout: float | None = None) -> int:
        """The offset of the next record that `poll` will hand out.

        It moves when records are handed out, and by nothing else. Waits for a lookup where there is
        no position yet, at most `timeout` seconds (default `default.api.timeout.ms`).
        """
        state = self._engine.subscription.get(tp)
        if state.position is not None:
            return state.position
        return self._call(
            lambda deadline: self._engine.position(tp, deadline), timeout, f"position of {tp}"
        )

    def pause(self, partitions: Collection[TopicPartition]) -> None:
        """Hand out nothing of these partitions until `resume`."""
        self._check_open()
        self._engine.subscription.pause(partitions, paused=True)

    def resume(self, partitions: Collection[TopicPartition]) -> None:
        """Hand out records of these partitions again."""
        self._check_open()
        self._engine.subscription.pause(partitions, paused=False)

    # Reading

    def poll(self, timeout: float = 1.0, max_records: int | None = None) -> list[ConsumerRecord]:
        """Records, at most `max_records` (default `max.poll.records`); none after `timeout`.

        Returns as soon as there are any. During an outage it returns an empty list at its timeout
        and goes on trying; `explain()` says what. Raises `NoSuchOffsetError` where a position isn't
        in the log and `auto.offset.reset` is none, `CorruptRecordError`,
        `TopicAuthorizationFailedError`, `UnknownTopicOrPartitionError` (each with the partition;
        the others go on), `ClusterIdMismatchError`, and with `metadata.recovery.strategy=none`
        `NoBrokerAvailableError` after `metadata.unavailable.timeout.ms` (KIP-899).
        """
        most = self._config["max.poll.records"] if max_records is None else max_records
        if most < 1:
            raise ConfigurationError(f"max_records must be 1 or more, not {most}")
        return self._next(timeout, lambda now: self._engine.take_records(most, now)) or []

    def poll_arrow(
        self,
        timeout: float = 1.0,
        *,
        columns: Sequence[str] | None = None,
        include_headers: bool = False,
    ) -> pa.RecordBatch | None:
        """The records of one partition as an Arrow batch; None after `timeout` without any.

        Schema, as Spark's Kafka source has it, all fields nullable: `key binary, value binary,
        topic string, partition int32, offset int64, timestamp timestamp[us, UTC], timestampType
        int32` (0: create time, 1: log append time), and with `include_headers` `headers
        list<struct<key: string, value: binary>>`, null where a record has none. `columns` chooses
        some of them, in that order; what isn't chosen isn't decoded either.

        The batch owns its buffers. Raises what `poll` raises.
        """
        return self._next(
            timeout, lambda now: self._engine.take_arrow(columns, include_headers, now)
        )

    def _next(self, timeout: float, take: Callable[[float], T]) -> T | None:
        """What `take` makes of the next records; waits for some, at most `timeout` seconds.

        It may make nothing of what came (markers, aborted transactions): then it goes on waiting.
        """
        self._check_open()
        engine, host = self._engine, self._host
        deadline = self._deadline(timeout)
        if engine.buffered:
            host.drive()  # the next fetch goes out while the caller works on what is here
        while engine.buffered or self._call(
            engine.data, max(0.0, deadline - host.now()), "records"
        ):
            found = take(host.now())
            if found:
                return found
        return None

    # Offsets

    def beginning_offsets(
        self, partitions: Collection[TopicPartition], timeout: float | None = None
    ) -> dict[TopicPartition, int]:
        """The first offset that is there, per partition."""
        return self._call(
            lambda deadline: self._engine.offsets_at(partitions, BEGINNING, deadline),
            timeout,
            "beginning offsets",
        )

    def end_offsets(
        self, partitions: Collection[TopicPartition], timeout: float | None = None
    ) -> dict[TopicPartition, int]:
        """The offset that the next record will get (read_committed: the last stable offset)."""
        return self._call(
            lambda deadline: self._engine.offsets_at(partitions, END, deadline),
            timeout,
            "end offsets",
        )

    def offsets_for_times(
        self, times: Mapping[TopicPartition, int], timeout: float | None = None
    ) -> dict[TopicPartition, OffsetAndTimestamp | None]:
        """Per partition the first record at or after a time in ms since the epoch, else None."""
        for tp, time_ms in times.items():
            if time_ms < 0:
                raise ConfigurationError(f"the time for {tp} must be 0 or more, not {time_ms}")
        return self._call(
            lambda deadline: self._engine.offsets_for_times(times, deadline),
            timeout,
            "offsets for times",
        )

    # Topics and cluster

    def partitions_for(self, topic: str, timeout: float | None = None) -> list[TopicPartition]:
        """The partitions of a topic, in order. Raises `UnknownTopicOrPartitionError`."""
        return self._call(
            lambda deadline: self._engine.partitions_for(topic, deadline),
            timeout,
            f"partitions of {topic}",
        )

    def describe(
        self, topics: Collection[str], timeout: float | None = None
    ) -> dict[str, TopicDescription]:
        """Partitions, leaders and ids by topic. Raises `UnknownTopicOrPartitionError`."""
        return self._call(
            lambda deadline: self._engine.describe(list(topics), deadline),
            timeout,
            "description of topics",
        )

    def cluster_id(self, timeout: float | None = None) -> str:
        """The id of the cluster, from its metadata."""
        snapshot = self._call(self._engine.snapshot, timeout, "metadata of the cluster")
        return snapshot.cluster_id or ""

    def bootstrap_hint(self) -> dict[str, Any]:
        """What is known of the cluster, as plain data: another process can start from it."""
        return self._engine.bootstrap_hint() or {}
