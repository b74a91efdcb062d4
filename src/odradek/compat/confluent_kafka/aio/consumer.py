"""`AIOConsumer` as confluent-kafka has it, over our asyncio consumer.

In: subscriptions or assignments, calls that are awaited. Out: messages, errors among them;
rebalance callbacks, plain or `async def`, run in the loop inside `poll()` and `consume()`. Must
not: start a thread.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Collection
from typing import Any, Self

import odradek
from odradek.compat.confluent_kafka.aio.cluster_questions import AsyncClusterQuestions
from odradek.compat.confluent_kafka.aio.loop_callbacks import with_loop
from odradek.compat.confluent_kafka.assigned_consumer import AssignedConsumer
from odradek.compat.confluent_kafka.cluster_metadata import ClusterMetadata
from odradek.compat.confluent_kafka.consumer import LONGEST_WAIT, MOST_MESSAGES
from odradek.compat.confluent_kafka.kafka_error import KafkaError
from odradek.compat.confluent_kafka.message import Message, message_of
from odradek.compat.confluent_kafka.partition_ends import PATIENCE
from odradek.compat.confluent_kafka.settings import Given, checked_seconds
from odradek.compat.confluent_kafka.subscription import (
    RebalanceCallback,
    checked_callbacks,
    topics_or_pattern,
)
from odradek.compat.confluent_kafka.topic_partition import (
    TopicPartition,
    found_at,
    one_partition,
    ours,
    partition_list,
    with_offset,
)
from odradek.compat.confluent_kafka.translated_errors import raise_error, translated, translating

logger = logging.getLogger("odradek.compat")
Committable = dict[odradek.TopicPartition, odradek.OffsetAndMetadata]


class _Partitions(AssignedConsumer):
    """What never waits, of a consumer in a loop."""

    def __init__(self, config: Any) -> None:
        super().__init__(config)
        self.asked: list[odradek.TopicPartition] = []
        """Partitions that are to go on where the group has committed."""

    def _as_called(self, found: Given) -> Given:
        return with_loop(found)

    def _made(self) -> odradek.AsyncConsumer:
        return odradek.AsyncConsumer(self._given.ours)

    def _commit_now(self, of: Collection[odradek.TopicPartition] | None = None) -> None:
        """Awaited before."""

    def _go_to_committed(self, place: odradek.TopicPartition) -> None:
        self.asked.append(place)


class AIOConsumer:
    """Hands out messages in an event loop; every method is awaited.

    `max_workers` and `executor` are taken and change nothing: there are no threads. `poll()` and
    `consume()` of several tasks wait for each other.
    """

    def __init__(
        self, consumer_conf: dict[str, Any], max_workers: int = 100, executor: Any = None
    ) -> None:
        if executor is None and max_workers < 1:
            raise ValueError("max_workers must be at least 1")
        self._core = _Partitions(consumer_conf)
        self._questions = AsyncClusterQuestions(self._core._given.admin)
        self._records: AsyncIterator[odradek.ConsumerRecord] = _none()
        self._one = asyncio.Lock()

    def _open(self) -> odradek.AsyncConsumer:
        found: odradek.AsyncConsumer = self._core._open()
        return found

    # Messages

    async def poll(self, timeout: float = -1) -> Message | None:
        """The next message, None after `timeout` seconds; look at its `error()` first."""
        deadline = self._deadline(timeout)
        self._open()
        async with self._one:
            found = await self._next(deadline, 1)
        return found[0] if found else None

    async def consume(self, num_messages: int = 1, timeout: float = -1) -> list[Message]:
        """So many messages, fewer after `timeout` seconds, errors among them."""
        if not 0 <= num_messages <= MOST_MESSAGES:
            raise ValueError("num_messages must be between 0 and 1000000 (1M)")
        deadline = self._deadline(timeout)
        self._open()
        found: list[Message] = []
        async with self._one:
            while len(found) < num_messages:
                more = await self._next(deadline, num_messages - len(found))
                if not more:
                    break
                found += more
        return found

    @staticmethod
    def _deadline(timeout: float) -> float:
        return asyncio.get_running_loop().time() + checked_seconds(timeout)

    async def _next(self, deadline: float, most: int) -> list[Message]:
        core, loop = self._core, asyncio.get_running_loop()
        while True:
            core._queue.serve(0)
            due = core._due()
            if due:
                await self._commit_later(due)
            if (end := await self._end()) is not None:
                return [end]
            left = max(0.0, deadline - loop.time())
            often = core._ends is not None and core._ends.waits
            patience = min(left, PATIENCE if often else LONGEST_WAIT)
            if not core._has_something:
                await asyncio.sleep(min(patience, PATIENCE))
            else:
                try:
                    records = await self._some(patience, most)
                except odradek.KafkaError as error:
                    message = core._told(error)
                    if message is not None:
                        return [message]
                    await asyncio.sleep(min(left, PATIENCE))
                else:
                    if records:
                        for record in records:
                            core._books.handed_out(record)
                        return [message_of(record) for record in records]
                    if patience and (missing := core._missing()) is not None:
                        return [missing]
            if deadline <= loop.time():
                core._queue.serve(0)
                return []

    async def _some(self, patience: float, most: int) -> list[odradek.ConsumerRecord]:
        """The next records; where one is wanted, what has come already costs no wait."""
        consumer = self._open()
        record = await anext(self._records, None)
        if record is not None:
            return [record]
        found = await consumer.poll(patience, most)
        if found and most == 1:
            self._records = consumer.records(0)
        return found

    async def _end(self) -> Message | None:
        """A message that tells of an end that was reached."""
        ends, consumer = self._core._ends, self._open()
        if ends is not None:
            for partition in ends.reached(consumer):
                message = ends.message(partition, await consumer.position(partition))
                if message is not None:
                    return message
        return None

    # Subscriptions

    async def subscribe(
        self,
        topics: list[str],
        on_assign: RebalanceCallback | None = None,
        on_revoke: RebalanceCallback | None = None,
        on_lost: RebalanceCallback | None = None,
    ) -> None:
        """As `Consumer.subscribe`; callbacks may be `async def`."""
        consumer, core = self._open(), self._core
        names, pattern = topics_or_pattern(topics)
        core._tell(
            checked_callbacks(
                on_assign=on_assign, on_revoke=on_revoke, on_lost=on_lost or on_revoke
            )
        )
        with translating():
            if not consumer.subscription() and consumer.assignment():
                consumer.assign([])
            await consumer.subscribe(
                names,
                pattern,
                on_assigned=self._assigned,
                on_revoked=self._revoked,
                on_lost=self._lost,
            )
        core._has(something=True)
        core._missed.clear()

    async def unsubscribe(self) -> None:
        """Leave the group; `on_revoke` runs in here."""
        consumer = self._open()
        await self._commit_now()
        with translating():
            await consumer.unsubscribe()
        self._core._has(something=False)
        self._core._books.forget()

    async def _assigned(self, _: Any, partitions: Collection[odradek.TopicPartition]) -> None:
        self._core._books.forget(partitions)
        self._core._forget_ends()
        await self._call_back("on_assign", partitions)

    async def _revoked(self, _: Any, partitions: Collection[odradek.TopicPartition]) -> None:
        try:
            await self._call_back("on_revoke", partitions)
        finally:
            await self._commit_now(partitions)
            self._core._books.forget(partitions)

    async def _lost(self, _: Any, partitions: Collection[odradek.TopicPartition]) -> None:
        self._core._books.forget(partitions)
        await self._call_back("on_lost", partitions)

    async def _call_back(self, name: str, partitions: Collection[Any]) -> None:
        callback = self._core._callbacks[name]
        if callback is not None:
            await self._core._running.awaited(callback, self, partitions)

    # Assignments

    async def assign(self, partitions: list[TopicPartition]) -> None:
        """As `Consumer.assign`."""
        self._core.assign(partitions)
        await self._settled()

    async def unassign(self) -> None:
        """As `Consumer.unassign`."""
        if self._core._running.partitions is None:
            await self._commit_now()
        self._core.unassign()

    async def incremental_assign(self, partitions: list[TopicPartition]) -> None:
        """As `Consumer.incremental_assign`."""
        self._core.incremental_assign(partitions)
        await self._settled()

    async def incremental_unassign(self, partitions: list[TopicPartition]) -> None:
        """As `Consumer.incremental_unassign`."""
        if self._core._running.partitions is None:
            await self._commit_now([ours(p) for p in partition_list(partitions)])
        self._core.incremental_unassign(partitions)

    async def assignment(self) -> list[TopicPartition]:
        """What is assigned."""
        return self._core.assignment()

    async def seek(self, partition: TopicPartition) -> None:
        """As `Consumer.seek`."""
        self._core.seek(partition)
        await self._settled()

    async def _settled(self) -> None:
        """Ask for committed positions, where some are to go there."""
        asked, self._core.asked = self._core.asked, []
        if asked:
            with translating():
                await self._open().seek_to_committed(asked)

    async def position(self, partitions: list[TopicPartition]) -> list[TopicPartition]:
        """As `Consumer.position`."""
        return self._core.position(partitions)

    async def pause(self, partitions: list[TopicPartition]) -> None:
        """Hand out nothing of these until `resume()`."""
        self._core.pause(partitions)

    async def resume(self, partitions: list[TopicPartition]) -> None:
        """Hand out messages of these again."""
        self._core.resume(partitions)

    # Commits

    async def commit(
        self,
        message: Message | None = None,
        offsets: list[TopicPartition] | None = None,
        asynchronous: bool = True,
    ) -> list[TopicPartition] | None:
        """As `Consumer.commit`."""
        consumer, core = self._open(), self._core
        chosen = core._to_commit(message, offsets)
        if asynchronous:
            await self._commit_later(chosen)
            return None
        if not chosen:
            raise_error(KafkaError._NO_OFFSET, "Commit failed: Local: No offset stored")
        with translating():
            done = await consumer.commit(chosen)
        core._books.committed(done.items())
        core._queue.serve(0)
        return core._outcomes(done, whole=message is None and offsets is None)

    async def _commit_later(self, chosen: Committable) -> None:
        if not chosen:
            self._core._tell_of_commit({}, KafkaError(KafkaError._NO_OFFSET))
            return
        with translating():
            await self._open().commit_async(chosen, self._core._committed)

    async def _commit_now(self, of: Collection[odradek.TopicPartition] | None = None) -> None:
        """Commit what is stored before partitions go, where that is this package's task."""
        core = self._core
        chosen = {} if core._given.commit_every is None else core._books.to_commit(of)
        if not chosen:
            return
        try:
            done = await self._open().commit(chosen)
        except odradek.KafkaError as error:
            logger.warning("stored offsets weren't committed: %s", error)
            core._tell_of_commit(chosen, translated(error))
        else:
            core._books.committed(done.items())
            core._tell_of_commit(done, None)

    async def store_offsets(
        self, message: Message | None = None, offsets: list[TopicPartition] | None = None
    ) -> None:
        """As `Consumer.store_offsets`."""
        self._core.store_offsets(message, offsets)

    # Offsets

    async def committed(
        self, partitions: list[TopicPartition], timeout: float = -1
    ) -> list[TopicPartition]:
        """As `Consumer.committed`."""
        consumer, wanted = self._open(), [ours(p) for p in partition_list(partitions)]
        with translating():
            found = await consumer.committed(wanted, checked_seconds(timeout))
        return [with_offset(place, found.get(place)) for place in wanted]

    async def get_watermark_offsets(
        self, partition: TopicPartition, timeout: float = -1, cached: bool = False
    ) -> tuple[int, int]:
        """As `Consumer.get_watermark_offsets`."""
        core, consumer, place = self._core, self._open(), ours(one_partition(partition))
        if cached:
            known = await consumer.position(place) if core._has_lag(place) else None
            return core._known_watermarks(place, known)
        seconds = checked_seconds(timeout)
        with translating():
            try:
                there = await consumer.partitions_for(place.topic, seconds)
            except odradek.UnknownTopicOrPartitionError as error:
                raise_error(KafkaError._UNKNOWN_PARTITION, str(error))
            if place not in there:
                raise_error(KafkaError._UNKNOWN_PARTITION, f"there is no partition {place}")
            low = (await consumer.beginning_offsets([place], seconds))[place]
            high = (await consumer.end_offsets([place], seconds))[place]
        core._watermarks[place] = low, high
        return low, high

    async def offsets_for_times(
        self, partitions: list[TopicPartition], timeout: float = -1
    ) -> list[TopicPartition]:
        """As `Consumer.offsets_for_times`."""
        consumer, wanted = self._open(), partition_list(partitions)
        times = {ours(p): p.offset for p in wanted}
        with translating():
            found = await consumer.offsets_for_times(times, checked_seconds(timeout))
        return [found_at(place, found[place]) for place in map(ours, wanted)]

    # Group, cluster, and the end

    async def consumer_group_metadata(self) -> odradek.ConsumerGroupMetadata:
        """Who this consumer is in its group, for `send_offsets_to_transaction()`."""
        return self._core.consumer_group_metadata()

    async def list_topics(self, topic: str | None = None, timeout: float = -1) -> ClusterMetadata:
        """As `Consumer.list_topics`."""
        self._open()
        return await self._questions.list_topics(topic, timeout)

    async def cluster_id(self, timeout: float = -1) -> str:
        """The cluster's id."""
        consumer = self._open()
        with translating():
            return await consumer.cluster_id(checked_seconds(timeout))

    async def set_sasl_credentials(self, username: str, password: str) -> None:
        """Use another name and password from the next login on (PLAIN and SCRAM)."""
        consumer = self._open()
        with translating():
            consumer.set_sasl_credentials(username, password)
            self._questions.set_sasl_credentials(username, password)

    async def close(self) -> None:
        """Commit where that is set up so, leave the group, close; may be called twice."""
        core = self._core
        if core._closed:
            return
        self._records = _none()
        try:
            await self._commit_now()
            with translating():
                await self._open().close()
        finally:
            core._ended()
            await self._questions.close()
        core._queue.serve(0)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()


async def _none() -> AsyncIterator[odradek.ConsumerRecord]:
    return
    yield  # a generator of nothing
