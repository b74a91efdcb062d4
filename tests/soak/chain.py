"""A member of a read-process-write chain that records its calls in a history.

In: factories of a group's consumer and of a transactional producer. Out: each `step` processes the
records of one poll in one transaction: an output record for each input, the offsets, a commit. The
history contains the records that were read and written, and the result of each transaction as the
member knows it. Members run on real brokers (in a thread or as a task of an event loop) and in
virtual time (step by step), with synchronous or asyncio clients (`ways`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field

from tests.soak.ways import AnyConsumer, AnyProducer, Delivery, of, sent

from odradek.common.errors import (
    AbortableTransactionError,
    ClientBrokenError,
    FatalTransactionError,
    KafkaError,
    KafkaTimeoutError,
)
from odradek.common.types import TopicPartition
from odradek.simulation.checkers.history import (
    CallKind,
    CallResult,
    History,
    Operation,
    Write,
)

MAX_RECORDS = 50
COMMITS = 4
"""Attempts of commit_transaction or abort_transaction if each of them times out."""


@dataclass(slots=True)
class Zombie:
    """A producer that was replaced during its transaction, without having been notified."""

    producer: AnyProducer
    transaction: Operation


@dataclass(slots=True)
class Tally:
    """Counts of a chain's events and errors, for progress lines."""

    counts: Counter[str] = field(default_factory=Counter)
    errors: Counter[str] = field(default_factory=Counter)


class Chain:
    """A chain's member. `name` is its transactional id, which it only shares with its zombies."""

    def __init__(
        self,
        name: str,
        group: str,
        history: History,
        make_consumer: Callable[[], AnyConsumer],
        make_producer: Callable[[], AnyProducer],
        *,
        source: str,
        target: str,
        tally: Tally | None = None,
    ) -> None:
        self.name, self.group, self.source, self.target = name, group, source, target
        self.history = history
        self.tally = tally or Tally()
        self.incarnation = 0
        self.zombie: Zombie | None = None
        self._make_consumer, self._make_producer = make_consumer, make_producer
        self._consumer: AnyConsumer | None = None
        self._producer: AnyProducer | None = None
        self._joined = 0
        self._rewind = False
        self._serial = 0

    # Clients

    async def consumer(self) -> AnyConsumer:
        """Return the consumer, and subscribe it if it is new."""
        if self._consumer is None:
            self._consumer = self._make_consumer()
            self._joined += 1
            self.history.note(CallKind.SUBSCRIBE, self._reader, self._joined)
            subscribed = self._consumer.subscribe(
                [self.source],
                on_assigned=lambda _, found: self._rebalanced(CallKind.ASSIGNED, found),
                on_revoked=lambda _, found: self._rebalanced(CallKind.REVOKED, found),
                on_lost=lambda _, found: self._rebalanced(CallKind.REVOKED, found),
            )
            await of(subscribed)
        return self._consumer

    @property
    def producer(self) -> AnyProducer | None:
        """The current producer; None if a new producer must be created."""
        return self._producer

    @property
    def _reader(self) -> str:
        return f"{self.name}'s consumer"

    def _rebalanced(self, call: CallKind, partitions: list[TopicPartition]) -> None:
        """Record the partitions that the consumer got or lost."""
        self.history.note(call, self._reader, self._joined, partitions)
        self.tally.counts["rebalances"] += 1

    async def _ready(self) -> AnyProducer | None:
        """Return the producer with an epoch; None if it couldn't get one."""
        if self._producer is None:
            made = self._make_producer()
            try:
                await of(made.init_transactions())
            except KafkaError as error:
                self._note(error)
                await self._close(made)
                return None
            self._producer = made
            self.incarnation += 1
        return self._producer

    def _note(self, error: KafkaError) -> None:
        self.tally.errors[type(error).__name__] += 1
        if isinstance(error, ClientBrokenError):
            raise error  # a bug of Odradek

    @staticmethod
    async def _close(client: AnyConsumer | AnyProducer) -> None:
        with suppress(KafkaError):
            await of(client.close(0.0))

    # Work

    async def step(self, timeout: float, *, leave: bool = False, regret: bool = False) -> int:
        """Process the records of one poll in a transaction, and return their number.

        With `regret` the transaction is aborted instead of committed.

        With `leave` the transaction remains open, as in a process that hangs: the next step uses
        another producer, and `wake_zombie` commits with the first one.
        """
        producer = await self._ready()
        if producer is None or not await self._rewound():
            return 0
        try:
            consumer = await self.consumer()
            poll = self.history.invoke(CallKind.POLL, self._reader, self._joined, group=self.group)
            try:
                records = await of(consumer.poll(timeout, max_records=MAX_RECORDS))
            except KafkaError:
                poll.ended(CallResult.FAIL)
                raise
        except KafkaError as error:
            self._note(error)
            return 0
        for record in records:
            poll.saw(TopicPartition(record.topic, record.partition), record.offset, record.value)
        poll.ended()
        if not records:
            return 0
        made = self.history.begin(self.name, self.incarnation, group=self.group)
        poll.belongs_to(made)
        places = [(TopicPartition(r.topic, r.partition), r.offset) for r in records]
        await self._transact(producer, made, places, leave=leave, regret=regret)
        return len(records)

    async def _transact(
        self,
        producer: AnyProducer,
        made: Operation,
        places: list[tuple[TopicPartition, int]],
        *,
        leave: bool,
        regret: bool,
    ) -> None:
        pending: list[tuple[Write, Delivery]] = []
        try:
            await of(producer.begin_transaction())
            for partition, offset in places:
                self._serial += 1
                value = f"{self.group}/{partition.partition}/{offset}/{self.name}/{self._serial}"
                made.consumed(partition, offset)
                target = TopicPartition(self.target, partition.partition)
                write = made.wrote(target, value)
                future = await sent(producer, self.target, value, partition.partition)
                pending.append((write, future))
            ends = {partition: offset + 1 for partition, offset in places}
            group = (await self.consumer()).group_metadata()
            await of(producer.send_offsets_to_transaction(ends, group))
            if leave:
                self.zombie = Zombie(producer, made)
                self._producer, self._rewind = None, True
                self.tally.counts["zombies"] += 1
                return
            if regret:
                self._rewind = True
                await self._give_up(producer, made, KafkaError("the application changed its mind"))
                return
            made.commits()
            await self._commit(producer)
        except KafkaError as error:
            self._note(error)
            self._rewind = True
            await self._give_up(producer, made, error)
            return
        made.ended()
        self.tally.counts["committed"] += 1
        self.tally.counts["records"] += len(places)
        for write, future in pending:
            offset = future.result().offset
            write.offset = offset if offset >= 0 else None

    @staticmethod
    async def _commit(producer: AnyProducer) -> None:
        """Commit; after a timeout, call commit_transaction again."""
        for left in reversed(range(COMMITS)):
            try:
                await of(producer.commit_transaction())
            except KafkaTimeoutError:
                if not left:
                    raise
            else:
                return

    async def _give_up(self, producer: AnyProducer, made: Operation, error: KafkaError) -> None:
        """Abort the transaction if that is possible, otherwise replace the producer."""
        if not isinstance(error, FatalTransactionError | KafkaTimeoutError):
            for _ in range(COMMITS):
                try:
                    await of(producer.abort_transaction())
                except KafkaTimeoutError as late:
                    self._note(late)
                    continue
                except KafkaError as worse:
                    self._note(worse)
                    break
                made.ended(CallResult.FAIL)
                self.tally.counts["aborted"] += 1
                return
        elif isinstance(error, KafkaTimeoutError):
            # The result of a commit under way is unknown; otherwise the transaction can be aborted.
            with suppress(KafkaError):
                await of(producer.abort_transaction())
                made.ended(CallResult.FAIL)
                self.tally.counts["aborted"] += 1
                return
        self.tally.counts["replaced"] += 1
        await self._close(producer)
        self._producer = None

    async def _rewound(self) -> bool:
        """After an abort, seek to the committed offsets; return whether the member can continue."""
        if not self._rewind:
            return True
        try:
            consumer = await self.consumer()
            assigned = consumer.assignment()
            offsets = await of(consumer.committed(assigned)) if assigned else {}
            for partition, found in offsets.items():
                self.history.note(CallKind.SEEK, self._reader, self._joined, [partition])
                if found is None:
                    consumer.seek_to_beginning([partition])
                else:
                    consumer.seek(partition, found.offset)
        except KafkaError as error:
            self._note(error)
            return False
        self._rewind = False
        return True

    # Zombies and leaving members

    async def wake_zombie(self, timeout: float = 5.0) -> None:
        """Commit with the replaced producer, which must get the error that it is fenced."""
        zombie, self.zombie = self.zombie, None
        if zombie is None:
            return
        zombie.transaction.commits()
        try:
            await of(zombie.producer.commit_transaction(timeout))
            zombie.transaction.ended()
            self.tally.counts["zombie commits"] += 1
        except (AbortableTransactionError, FatalTransactionError):
            self.tally.counts["fenced"] += 1
        except KafkaError as error:
            self._note(error)
        await self._close(zombie.producer)

    async def leave_group(self, timeout: float = 10.0) -> None:
        """Leave the group; the next step joins it again."""
        consumer, self._consumer = self._consumer, None
        self._rewind = False
        if consumer is not None:
            with suppress(KafkaError):
                await of(consumer.close(timeout))

    async def close(self, timeout: float = 10.0) -> None:
        """Leave the group, and commit with the zombie; then close the producer."""
        await self.leave_group(timeout)
        await self.wake_zombie()
        producer, self._producer = self._producer, None
        if producer is not None:
            with suppress(KafkaError):
                await of(producer.close(timeout))
