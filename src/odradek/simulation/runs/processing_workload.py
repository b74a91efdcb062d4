"""Simulate processors: members of a group that write results in transactions with offsets.

In: a client of a schedule, a stage (simulation and cluster), the group's checker, a history. Out:
one transaction for each poll's records: an output per record, the offsets with the member's
identity (KIP-447), a commit. Calls and outcomes are added to the history, which `history_check`
judges. After an abort the application seeks to the group's offsets; a producer with a fatal error
is replaced by another one with the same id. Must not cause faults, or decide what is right.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from contextlib import suppress
from typing import TypeVar

from odradek.clients.caller_flow import CallerFlow
from odradek.clients.consumer.records import ConsumerRecord, OffsetAndMetadata
from odradek.common.errors import AbortableTransactionError, KafkaError
from odradek.common.types import TopicPartition
from odradek.simulation.checkers.group_checkers import GroupLedger
from odradek.simulation.checkers.history import CallResult, Operation
from odradek.simulation.checkers.invariants import Checkers
from odradek.simulation.faults.fault_table import Stage
from odradek.simulation.runs.caller import Caller, pause
from odradek.simulation.runs.group_workload import MemberDriver
from odradek.simulation.runs.schedule import GROUP_ID, TOPIC, ScheduledClient
from odradek.simulation.runs.transaction_workload import (
    CALL,
    PAUSE,
    Acknowledged,
    TransactionalDriver,
)
from odradek.simulation.runs.workload import Driver
from odradek.simulation.world.link import Mode

T = TypeVar("T")


class Writer(TransactionalDriver):
    """The producer of a processor; the processor (`owner`) makes all of the producer's calls."""

    def __init__(
        self, owner: ProcessorDriver, client: ScheduledClient, mode: Mode, checkers: Checkers
    ) -> None:
        self.owner = owner
        super().__init__(owner.stage, client, mode, checkers)

    def application(self) -> Caller:
        """Return the object that makes the processor's calls while its process runs."""
        return Caller(self.world, self.calls, lambda: self.owner.over, self.owner.soon)

    def close(self, *, died: bool = False) -> None:
        """Close the producer, because it is being replaced or its process has ended."""
        self.died = died
        if not died:
            self.engine.shut()
        self.host.close(self.world.now)

    def look(self) -> None:
        """Check the client, unless its process was killed."""
        if not self.died:
            super().look()

    def probe(self) -> None:
        """Do nothing: the processor continues by itself."""

    def finished(self) -> bool:
        """Return True: the processor decides whether the run is finished."""
        return True


class ProcessorDriver(MemberDriver):
    """A member that reads records, processes them, and writes results in transactions."""

    def __init__(
        self,
        stage: Stage,
        client: ScheduledClient,
        mode: Mode,
        checkers: Checkers,
        ledger: GroupLedger,
        topics: Collection[str],
        incarnations: Callable[[str], int],
        enlist: Callable[[Driver], None],
    ) -> None:
        self.incarnation = 0
        self.writer: Writer | None = None
        self._ready = False
        self._back_to_committed = False
        self._incarnations, self._enlist = incarnations, enlist
        self._mode, self._checkers = mode, checkers
        super().__init__(stage, client, mode, checkers, ledger, topics)

    @property
    def reader(self) -> str:
        """Name of the consumer in the history; the producer has the processor's name."""
        return f"{self.name}'s consumer"

    # The application's thread

    @property
    def stopped(self) -> bool:
        """Whether the application makes no calls, because its process is stopped or it is busy."""
        return self._frozen or self.world.now < self._idle_until

    def _go_on(self, seconds: float = 0.0) -> None:
        """Let the application poll again after this many seconds."""
        self._polling = False
        self._later(seconds)

    def poll(self) -> None:
        """Poll, unless the producer must be initialized or the position reset before."""
        done = self._ready and not self._back_to_committed
        if done or self.over or self._polling or self._leaving or self.engine.ended is not None:
            super().poll()
            return
        self._polling = True
        if not self._ready:
            self._initialise()
            return
        application = self.application()
        application.begin(f"{self.name}: committed", self._look_up(), self._go_on, self._failed)

    def _initialise(self) -> None:
        if self.writer is None:
            self.writer = Writer(self, self.client.writer, self._mode, self._checkers)
            self._enlist(self.writer)

        def ended(ready: bool) -> None:
            if ready:
                self._ready = True
                self.incarnation = self._incarnations(self.name)
            self._go_on()

        self._have(self.writer, "init", self.writer.initialised(), ended)

    def _have(
        self, writer: Writer, what: str, flow: CallerFlow[T], then: Callable[[T], None]
    ) -> None:
        """Make a call of the producer; if the call fails fatally, replace the producer."""

        def failed(error: Exception) -> None:
            if not isinstance(error, KafkaError):
                writer.judged(error, what)
            self.writer, self._ready, self._back_to_committed = None, False, True
            writer.close()
            self._go_on(PAUSE)

        writer.caller.begin(f"{writer.name}: {what}", flow, then, failed)

    def _look_up(self) -> CallerFlow[float]:
        """Seek to the group's offsets.

        A member that has lost its partitions and got them back meanwhile has newer positions than
        the response: an application that seeks must handle that itself.
        """
        before, stored = self.identity, self.group.commits.stored
        partitions = list(self.engine.subscription.partitions)
        try:
            committed = yield from self.consumer.call(
                lambda d: stored.fetch(partitions, d), CALL, "committed offsets"
            )
        except KafkaError as error:
            self.errors.append(error)
            return PAUSE
        if self.identity != before:
            return PAUSE
        self._back_to_committed = False
        for partition, found in committed.items():
            with suppress(KafkaError):  # the consumer has lost the partition
                self.consumer.seek(partition, found or 0)
                self.sought(partition)
        return 0.0

    # One transaction

    def work(self, records: list[ConsumerRecord], first: dict[TopicPartition, int]) -> None:
        """Process the records of a poll in a transaction."""
        writer = self.writer
        if not records or writer is None:
            self._later(self.rng.uniform(0.0, self.habits.work))
            return
        self._polling = True
        self._have(writer, "a transaction", self._process(writer, records), self._go_on)

    def _process(self, writer: Writer, records: list[ConsumerRecord]) -> CallerFlow[float]:
        """Run a transaction; return how long the application works before it polls again."""
        made = self.history.begin(self.name, self.incarnation, group=GROUP_ID)
        if self.reading is not None:
            self.reading.belongs_to(made)
        for record in records:
            made.consumed(self._source(record), record.offset)
        yield from self._works()
        try:
            sent = yield from self._write(writer, made, records)
            yield from self._works()
            regrets = self.rng.random() < self.habits.regrets
        except KafkaError as error:
            yield from writer.bear(error, "a transaction")
            regrets = True
        if not regrets:
            made.commits()
            failed = yield from writer.commit()
            if failed is None:
                for write, batch, index in sent:
                    made.acknowledged(batch.metadata(index, 0).offset, write)
                made.ended()
                return self.rng.uniform(0.0, self.habits.work)
            if not isinstance(failed, AbortableTransactionError):
                raise failed
        failed = yield from writer.abort()
        if failed is not None:
            raise failed
        made.ended(CallResult.FAIL)
        self._back_to_committed = True
        return 0.0

    def _source(self, record: ConsumerRecord) -> TopicPartition:
        """Return where a record was read, with the topic's incarnation."""
        return self.ledger.place(record.topic_partition, record.value)

    def _works(self) -> CallerFlow[None]:
        return pause(self.rng.uniform(0.0, self.habits.work))

    def _write(
        self, writer: Writer, made: Operation, records: list[ConsumerRecord]
    ) -> CallerFlow[list[Acknowledged]]:
        """Write the results and offsets in a transaction, without ending it."""
        producer, sent = writer.producer, []
        yield from producer.begin_transaction()
        count = len((yield from producer.partitions_for(TOPIC, CALL)))
        ends: dict[TopicPartition, OffsetAndMetadata] = {}
        parts, group = self.habits.parts, self.group.metadata()
        for number, record in enumerate(records, 1):
            target = TopicPartition(TOPIC, record.partition % count)
            source = "{}/{}/{}".format(*self._source(record), record.offset)
            value = writer.value(f"{source} by {self.name}.{self.incarnation}")
            batch, index = yield from writer.send(
                target.partition, value, lambda batch, index, _: (batch, index)
            )
            sent.append((made.wrote(target, value.decode()), batch, index))
            ends[TopicPartition(record.topic, record.partition)] = OffsetAndMetadata(
                record.offset + 1, leader_epoch=record.leader_epoch
            )
            if number < len(records) and number % (len(records) // parts + 1) == 0:
                yield from producer.send_offsets(ends, group, CALL)
        yield from producer.send_offsets(ends, self.group.metadata(), CALL)
        return sent

    # Process

    def freeze(self, seconds: float) -> None:
        """Stop the process for this many seconds: both clients and the application."""
        stopped = self._frozen
        super().freeze(seconds)
        if self.writer is not None and not self.over and not stopped:
            self.writer.host.freeze()
            self.writer.calls.excuse(self.world.now + seconds)
            self.writer.wire.excuse(self.world.now + seconds)

    def _thaw(self, member_id: str) -> None:
        super()._thaw(member_id)
        if self.writer is not None and not self.over:
            self.writer.host.freeze(on=False)

    def _end(self) -> None:
        if self.writer is not None:
            self.writer.close(died=self.died)
        super()._end()
