"""`AIOKafkaConsumer` on `odradek.AsyncConsumer`.

In: aiokafka's arguments. Out: aiokafka's records, offsets and errors. Must not: decide which
records are read next; the wrapped consumer does.
"""

from __future__ import annotations

import asyncio
import logging
import math
import re
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from types import TracebackType
from typing import Any, Self

from odradek.clients.consumer.records import ConsumerGroupMetadata
from odradek.clients.consumer.records import ConsumerRecord as Record
from odradek.common.errors import IllegalStateError as WrongTime
from odradek.common.errors import KafkaError as OurError
from odradek.common.errors.topics import TopicRecreatedError
from odradek.common.secret import private
from odradek.common.types import TopicPartition as Partition
from odradek.compat.aiokafka.abc import ConsumerRebalanceListener
from odradek.compat.aiokafka.consumer.listeners import theirs
from odradek.compat.aiokafka.consumer.pauses import Pauses
from odradek.compat.aiokafka.consumer.reader_tasks import Readers
from odradek.compat.aiokafka.consumer.rebalance_task import Attendant
from odradek.compat.aiokafka.consumer.subscriptions import TURN, Subscriptions
from odradek.compat.aiokafka.consumer.wrapped_state import AIOKafkaConsumer as KnowingConsumer
from odradek.compat.aiokafka.coordinator.assignors.roundrobin import RoundRobinPartitionAssignor
from odradek.compat.aiokafka.errors import (
    ConsumerStoppedError,
    IllegalOperation,
    IllegalStateError,
    KafkaConnectionError,
    KafkaTimeoutError,
    RecordTooLargeError,
    UnknownTopicOrPartitionError,
)
from odradek.compat.aiokafka.offsets import offsets_by_partition
from odradek.compat.aiokafka.settings import INT_MAX, consumer_settings, running_loop
from odradek.compat.aiokafka.structs import (
    ConsumerRecord,
    OffsetAndMetadata,
    OffsetAndTimestamp,
    TopicPartition,
    records_of,
)
from odradek.compat.aiokafka.translation import raising
from odradek.compat.clock import monotonic

logger = logging.getLogger("odradek.compat")

MOMENT = 0.0001
"""Seconds before its deadline at which a call checks for records for the last time."""
FOREVER = math.inf
"""Timeout in seconds of calls that aiokafka doesn't limit; use `asyncio.timeout`."""
Offsets = Mapping[TopicPartition, int | tuple[int, str] | OffsetAndMetadata]
Deserializer = Callable[[bytes], Any]
Runs = Sequence[Sequence[Any]]
"""Lists of consecutive records of one partition each."""


class AIOKafkaConsumer:
    """aiokafka's consumer: `start()`, then `getone`, `getmany` or `async for`, then `stop()`.

    Keywords, their defaults and errors are aiokafka's; `docs/switching.md` lists the differences.
    The consumer keeps working when its brokers are replaced (KIP-899). Any number of tasks may
    request records at the same time. A task that requests records of some partitions doesn't wait
    for tasks that read others.
    """

    @private
    def __init__(
        self,
        *topics: str,
        loop: asyncio.AbstractEventLoop | None = None,
        bootstrap_servers: str | Sequence[str] = "localhost",
        client_id: str = "aiokafka-0.14.0",
        group_id: str | None = None,
        group_instance_id: str | None = None,
        key_deserializer: Deserializer | None = None,
        value_deserializer: Deserializer | None = None,
        fetch_max_wait_ms: int = 500,
        fetch_max_bytes: int = 52428800,
        fetch_min_bytes: int = 1,
        max_partition_fetch_bytes: int = 1048576,
        request_timeout_ms: int = 40000,
        retry_backoff_ms: int = 100,
        auto_offset_reset: str = "latest",
        enable_auto_commit: bool = True,
        auto_commit_interval_ms: int = 5000,
        check_crcs: bool = True,
        metadata_max_age_ms: int = 300000,
        partition_assignment_strategy: Sequence[Any] = (RoundRobinPartitionAssignor,),
        max_poll_interval_ms: int = 300000,
        rebalance_timeout_ms: int | None = None,
        session_timeout_ms: int = 10000,
        heartbeat_interval_ms: int = 3000,
        consumer_timeout_ms: int = 200,
        max_poll_records: int | None = None,
        ssl_context: Any = None,
        security_protocol: str = "PLAINTEXT",
        api_version: str | None = None,
        exclude_internal_topics: bool = True,
        connections_max_idle_ms: int = 540000,
        isolation_level: str = "read_uncommitted",
        sasl_mechanism: str = "PLAIN",
        sasl_plain_password: str | None = None,
        sasl_plain_username: str | None = None,
        sasl_kerberos_service_name: str = "kafka",
        sasl_kerberos_domain_name: str | None = None,
        sasl_oauth_token_provider: Any = None,
        client_rack: str | None = None,
    ) -> None:
        """Check the settings and note the topics; must be called inside a coroutine.

        No connection is opened yet. Raises `ValueError`, and its subclass `RefusedSettingError` for
        a setting that isn't supported.
        """
        given = {name: value for name, value in locals().items() if name != "self"}
        self._loop = running_loop(given)
        settings = consumer_settings(given)
        self._deserializers = key_deserializer, value_deserializer
        with raising():
            # Deserializers are called record by record; without them, whole batches are converted.
            made = records_of if self._deserializers == (None, None) else list[Record]
            self._consumer = KnowingConsumer(settings, made)
        self._closed, self._started = False, False
        self._group_id = group_id
        self._timeout = request_timeout_ms / 1000
        self._max_poll_records = max_poll_records
        self._pauses = Pauses(self._consumer)
        self._readers = Readers(self._consumer)
        patience = (rebalance_timeout_ms or session_timeout_ms) if enable_auto_commit else 0
        self._attendant = Attendant(self._consumer, self._readers, patience / 1000)
        self._subscriptions = Subscriptions(
            self._consumer,
            self._pauses,
            self._attendant,
            grouped=group_id is not None,
            refresh=metadata_max_age_ms / 1000,
        )
        if topics:
            self.subscribe(topics)

    # Start and stop

    @property
    def _coordinator(self) -> ConsumerGroupMetadata | None:
        """Membership of the group, for FastStream's log: `member_id`, `generation_id`."""
        return None if self._group_id is None else self._consumer.group_metadata()

    async def start(self) -> None:
        """Connect and look up the topics; with a `group_id`, join and wait for partitions.

        Raises `GroupAuthorizationFailedError`; and after `request_timeout_ms`
        `KafkaConnectionError` and `UnknownTopicOrPartitionError`.
        """
        if asyncio.get_running_loop() is not self._loop:
            raise AssertionError("start() must run in the event loop that created the consumer")
        if self._started:
            raise AssertionError("start() was called twice")
        try:
            await self._consumer.cluster_id(self._timeout)
        except OurError as error:
            raise KafkaConnectionError(f"no broker could be reached: {error}") from error
        self._started = True
        for topic in sorted(self._subscriptions.topics()):
            with raising():
                if not await self._consumer.await_topic(topic, self._timeout):
                    raise UnknownTopicOrPartitionError(topic)
        self._subscriptions.start()
        await self._subscriptions.settled()
        with suppress(TimeoutError):
            async with asyncio.timeout(self._timeout):
                await self._subscriptions.located()

    async def stop(self) -> None:
        """Commit (`enable_auto_commit`), leave the group and close; may be called twice.

        Calls that wait for records raise `ConsumerStoppedError`; loops over records end.
        """
        if self._closed:
            return
        self._closed = True
        self._subscriptions.there.set()
        await self._subscriptions.end()
        with raising():
            await self._consumer.close()

    # Subscriptions

    def subscribe(
        self,
        topics: Collection[str] = (),
        pattern: str | None = None,
        listener: ConsumerRebalanceListener | None = None,
    ) -> None:
        """Subscribe to topics, or to those whose names match `pattern` at their beginning.

        Without a `group_id` all their partitions are read. `listener` is called in calls that
        request records, when the group assigns and revokes partitions. Raises `TypeError`,
        `ValueError` for an invalid pattern, and `IllegalStateError` after `assign`.
        """
        if not (topics or pattern):
            raise TypeError("expected topics or a pattern")
        if topics and pattern:
            raise TypeError("expected topics or a pattern, not both")
        if listener is not None and not isinstance(listener, ConsumerRebalanceListener):
            raise TypeError("listener must be a ConsumerRebalanceListener")
        if pattern is None and not isinstance(topics, tuple | set | list):
            raise TypeError(f"topics must be a list of names, not {type(topics).__name__}")
        compiled = None
        if pattern is not None:
            try:
                compiled = re.compile(pattern)
            except re.error as error:
                raise ValueError(f"invalid regular expression {pattern!r}: {error}") from error
        self._subscriptions.subscribe(topics, compiled, listener)

    def unsubscribe(self) -> None:
        """Drop all partitions and leave the group."""
        self._subscriptions.unsubscribe()

    def subscription(self) -> frozenset[str] | set[str]:
        """Return the subscribed topics."""
        return self._subscriptions.topics() or set()

    def assign(self, partitions: Collection[TopicPartition]) -> None:
        """Read exactly these partitions. Raises `IllegalStateError` after `subscribe`."""
        with raising():
            self._subscriptions.assign([Partition(*partition) for partition in partitions])

    def assignment(self) -> frozenset[TopicPartition] | set[TopicPartition]:
        """Return the assigned partitions."""
        return frozenset(theirs(self._subscriptions.assignment(announced=True))) or set()

    def _assigned(self, partition: TopicPartition) -> Partition:
        """Return a partition in Odradek's type; raise `IllegalStateError` if it isn't assigned."""
        wanted = Partition(*partition)
        if wanted not in self._subscriptions.assignment():
            raise IllegalStateError(f"{wanted} isn't assigned")
        return wanted

    def _some(self, partitions: Sequence[TopicPartition]) -> list[Partition]:
        """Return these partitions, which must be assigned, or all assigned ones by default."""
        if not all(isinstance(partition, TopicPartition) for partition in partitions):
            raise TypeError("partitions must be TopicPartition tuples")
        if partitions:
            return [self._assigned(partition) for partition in partitions]
        if not (found := self._subscriptions.assignment()):
            raise AssertionError("no partitions are assigned")
        return found

    # Records

    async def getone(self, *partitions: TopicPartition) -> ConsumerRecord[Any, Any]:
        """Return the next record of these partitions, or of all; waits without a timeout.

        Raises `ConsumerStoppedError`, `OffsetOutOfRangeError`, `NoOffsetForPartitionError`
        (`auto_offset_reset="none"`), `TopicAuthorizationFailedError`, `CorruptRecordException`,
        `RecordTooLargeError`, and what a deserializer raises.
        """
        if not partitions and (record := self._quickly()) is not None:
            return record
        self._check_reading(partitions)
        return self._one((await self._asked(partitions, math.inf, None))[0][0])

    def _quickly(self) -> ConsumerRecord[Any, Any] | None:
        """Return the next fetched record; None if the caller has to await `getone` instead.

        It has to if no record is fetched, a subscription changes, or an error must be raised first.
        """
        late = self._subscriptions.pending is not None or self._attendant.trouble is not None
        found = None if late or self._closed else self._consumer.at_hand()
        if found is None or isinstance(found, ConsumerRecord):
            return found
        return self._one(found)

    def _one(self, found: Any) -> ConsumerRecord[Any, Any]:
        """Convert Odradek's record to aiokafka's, unless it is already converted."""
        return found if isinstance(found, ConsumerRecord) else self._made([(found,)])[0][0]

    async def getmany(
        self, *partitions: TopicPartition, timeout_ms: float = 0, max_records: int | None = None
    ) -> dict[TopicPartition, list[ConsumerRecord[Any, Any]]]:
        """Return fetched records by partition; waits up to `timeout_ms` if there are none.

        Returns at most `max_records` (default: `max_poll_records`). Raises what `getone` raises.
        """
        self._check_reading(partitions)
        if max_records is not None and (not isinstance(max_records, int) or max_records < 1):
            raise ValueError("max_records must be a positive int or None")
        most = max_records or self._max_poll_records or INT_MAX
        found = await self._asked(partitions, timeout_ms / 1000, most)
        by_partition: dict[TopicPartition, list[ConsumerRecord[Any, Any]]] = {}
        for run, made in zip(found, self._made(found), strict=True):
            by_partition.setdefault(TopicPartition(*run[0][:2]), []).extend(made)
        return by_partition

    def _check_reading(self, partitions: Sequence[TopicPartition]) -> None:
        if not all(isinstance(partition, TopicPartition) for partition in partitions):
            raise AssertionError("partitions must be TopicPartition tuples")
        if self._closed:
            raise ConsumerStoppedError("the consumer was stopped")
        if not self._started:
            raise IllegalStateError("the consumer wasn't started: call await start() first")

    async def _settled(self, seconds: float) -> bool:
        """Wait for a subscription or assignment to complete; return False after `seconds`."""
        try:
            async with asyncio.timeout(None if seconds == FOREVER else max(seconds, 0.001)):
                await self._subscriptions.there.wait()
                if self._subscriptions.patience() <= 0:
                    self._subscriptions.begin()
                await self._subscriptions.settled()
        except TimeoutError:  # for example, the group hasn't assigned partitions yet
            if seconds == FOREVER:
                raise
            return False
        return True

    async def _asked(
        self, partitions: Sequence[TopicPartition], timeout: float, most: int | None
    ) -> Runs:
        """Wait for records of these partitions, or of all; return none after `timeout` seconds.

        `most` is None for `getone`, which takes a single record, perhaps already converted.
        """
        deadline = monotonic() + timeout
        wanted = frozenset(Partition(*partition) for partition in partitions) or None
        left, last = timeout, False
        found: Runs = []
        try:
            while await self._settled(left):
                found = await self._taken(wanted, most)
                if found or last:
                    return found
                left = max(0.0, deadline - monotonic())
                last = left < MOMENT
                if self._subscriptions.idle():
                    await asyncio.sleep(min(left, TURN))
                else:
                    patience = self._subscriptions.patience()
                    await self._readers.wait(wanted, min(left, patience))
            return []
        finally:
            self._attendant.handed_out(some=bool(found) or self._consumer.in_hand)

    async def _taken(self, wanted: frozenset[Partition] | None, most: int | None) -> Runs:
        """Return at most `most` fetched records without waiting; None: a single record."""
        await self._consumer.breathe()
        if self._closed:
            raise ConsumerStoppedError("the consumer was stopped")
        self._attendant.raise_trouble()
        with raising():
            if most is not None or wanted is not None:
                return self._consumer.taken(most or 1, wanted)
            record = self._consumer.at_hand() if self._consumer.take() else None
        return [] if record is None else [(record,)]

    def _made(self, runs: Runs) -> list[list[ConsumerRecord[Any, Any]]]:
        """Convert records; if a deserializer raises, seek back, so the next call returns them."""
        try:
            return [records_of(run, *self._deserializers) for run in runs]
        except Exception:
            for run in reversed(runs):
                with suppress(WrongTime, TopicRecreatedError):  # the partition was revoked
                    self._consumer.seek(run[0].topic_partition, run[0].offset)
            raise

    def __aiter__(self) -> Self:
        if self._closed:
            raise ConsumerStoppedError("the consumer was stopped")
        return self

    async def __anext__(self) -> ConsumerRecord[Any, Any]:
        while True:
            try:
                return self._quickly() or await self.getone()
            except ConsumerStoppedError:
                raise StopAsyncIteration from None
            except RecordTooLargeError as error:
                logger.error("iteration over records continues after an error: %s", error)

    # Commits

    async def commit(self, offsets: Offsets | None = None) -> None:
        """Commit these offsets, or (None) the offsets after all returned records.

        Waits without a timeout. Raises `IllegalOperation` without a `group_id`, `IllegalStateError`
        for a partition that isn't assigned, `ValueError`, `TypeError`, `CommitFailedError`,
        `GroupAuthorizationFailedError` and `OffsetMetadataTooLargeError`.
        """
        self._check_group()
        if not self._subscriptions.assignment():
            raise IllegalStateError("no partitions are assigned")
        checked = None if offsets is None else offsets_by_partition(offsets)
        for partition in checked or ():
            self._assigned(TopicPartition(*partition))
        await self._subscriptions.assigned()
        with raising():
            await self._consumer.commit(checked, FOREVER)

    async def committed(self, partition: TopicPartition) -> int | None:
        """Return the group's committed offset of a partition, or None.

        Raises `IllegalOperation` without a `group_id`.
        """
        self._check_group()
        wanted = Partition(*partition)
        with raising():
            found = (await self._consumer.committed([wanted], FOREVER))[wanted]
        return None if found is None else found.offset

    def _check_group(self) -> None:
        if self._group_id is None:
            raise IllegalOperation("commits and committed offsets need a group_id")

    # Positions

    async def position(self, partition: TopicPartition) -> int:
        """Return the offset of a partition's next record.

        Raises `IllegalStateError` if the partition isn't assigned.
        """
        wanted = self._assigned(partition)
        await self._subscriptions.assigned()
        with raising():
            return await self._consumer.position(wanted, FOREVER)

    def seek(self, partition: TopicPartition, offset: int) -> None:
        """Set the position of a partition.

        Raises `ValueError`, and `IllegalStateError` if the partition isn't assigned.
        """
        if not isinstance(offset, int) or offset < 0:
            raise ValueError(f"an offset must be a non-negative int, not {offset!r}")
        with raising():
            self._subscriptions.seek(self._assigned(partition), offset)

    async def seek_to_beginning(self, *partitions: TopicPartition) -> bool:
        """Set the positions of these partitions, or of all, to the beginning of their logs.

        Waits for the lookup of the offsets; returns False if that takes longer than
        `request_timeout_ms`. Raises `TypeError`, and
        `IllegalStateError` for a partition that isn't assigned.
        """
        wanted = self._some(partitions)
        await self._subscriptions.assigned()
        with raising():
            self._consumer.seek_to_beginning(wanted)
        return await self._found(wanted)

    async def seek_to_end(self, *partitions: TopicPartition) -> bool:
        """Set the positions of these partitions, or of all, to the ends of their logs.

        Returns and raises as `seek_to_beginning` does.
        """
        wanted = self._some(partitions)
        await self._subscriptions.assigned()
        with raising():
            self._consumer.seek_to_end(wanted)
        return await self._found(wanted)

    async def _found(self, partitions: Sequence[Partition]) -> bool:
        deadline = monotonic() + self._timeout
        try:
            with raising():
                for partition in partitions:
                    left = max(0.0, deadline - monotonic())
                    await self._consumer.position(partition, left)
        except KafkaTimeoutError:
            return False
        return True

    async def seek_to_committed(
        self, *partitions: TopicPartition
    ) -> dict[TopicPartition, int | None]:
        """Set the positions of these partitions, or of all, to the committed offsets; return these.

        A partition without a committed offset keeps its position. Raises `IllegalOperation` without
        a `group_id`, and what `seek_to_beginning` raises.
        """
        found: dict[TopicPartition, int | None] = {}
        for partition in self._some(partitions):
            place = TopicPartition(*partition)
            offset = found[place] = await self.committed(place)
            if offset:
                self.seek(place, offset)
        return found

    def highwater(self, partition: TopicPartition) -> int | None:
        """Return the high watermark of the last fetch response, or None before the first.

        Raises `AssertionError` for a partition that isn't assigned.
        """
        return self._told(partition, 0)

    def last_stable_offset(self, partition: TopicPartition) -> int | None:
        """Return the last stable offset of the last fetch response, or None before the first."""
        return self._told(partition, 1)

    def last_poll_timestamp(self, partition: TopicPartition) -> int | None:
        """Return the time of the last fetch response in milliseconds since the epoch."""
        return self._told(partition, 2)

    def _told(self, partition: TopicPartition, which: int) -> int | None:
        wanted = Partition(*partition)
        if wanted not in self._subscriptions.assignment():
            raise AssertionError(f"{wanted} isn't assigned")
        found = self._consumer.ends(wanted)
        return None if found is None else found[which]

    # Pauses

    def pause(self, *partitions: TopicPartition) -> None:
        """Stop returning records of these partitions. Raises `TypeError`, `IllegalStateError`."""
        with raising():
            self._pauses.pause(self._each(partitions))

    def resume(self, *partitions: TopicPartition) -> None:
        """Return records of these partitions again. Raises `TypeError`, `IllegalStateError`."""
        with raising():
            self._pauses.resume(self._each(partitions))

    def paused(self) -> set[TopicPartition]:
        """Return the paused partitions."""
        return theirs(self._pauses.paused())

    def _each(self, partitions: Sequence[TopicPartition]) -> list[Partition]:
        if not all(isinstance(partition, TopicPartition) for partition in partitions):
            raise TypeError("partitions must be TopicPartition tuples")
        return [self._assigned(partition) for partition in partitions]

    # Offsets and topics

    async def beginning_offsets(
        self, partitions: Collection[TopicPartition]
    ) -> dict[TopicPartition, int]:
        """Return the first offsets by partition.

        Raises `KafkaTimeoutError` after `request_timeout_ms`.
        """
        with raising():
            found = await self._consumer.beginning_offsets([Partition(*p) for p in partitions])
        return {TopicPartition(*partition): offset for partition, offset in found.items()}

    async def end_offsets(
        self, partitions: Collection[TopicPartition]
    ) -> dict[TopicPartition, int]:
        """Return the log end offsets by partition; raises what `beginning_offsets` raises."""
        with raising():
            found = await self._consumer.end_offsets([Partition(*p) for p in partitions])
        return {TopicPartition(*partition): offset for partition, offset in found.items()}

    async def offsets_for_times(
        self, timestamps: Mapping[TopicPartition, int]
    ) -> dict[TopicPartition, OffsetAndTimestamp | None]:
        """Return, by partition, the first record at or after a time (ms since the epoch), or None.

        Raises `ValueError` for a time before 1970, and `KafkaTimeoutError`.
        """
        wanted: dict[Partition, int] = {}
        for partition, at in timestamps.items():
            if at < 0:
                raise ValueError(f"the time of {partition} is before 1970: {at}")
            wanted[Partition(*partition)] = int(at)
        with raising():
            found = await self._consumer.offsets_for_times(wanted)
        return {
            TopicPartition(*partition): None
            if one is None
            else OffsetAndTimestamp(one.offset, one.timestamp_ms)
            for partition, one in found.items()
        }

    async def topics(self) -> set[str]:
        """Return the names of all topics that the user may see."""
        with raising():
            return set(await self._consumer.list_topics())

    def partitions_for_topic(self, topic: str) -> set[int] | None:
        """Return the numbers of a topic's partitions, or None while they are unknown."""
        return self._consumer.known_partitions(topic)

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.stop()
