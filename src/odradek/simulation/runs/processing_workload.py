"""Members of a group that write what they make of records, in transactions with their offsets.

In: a client of a schedule, a stage, the group's books, a history. Out: one transaction for what
each poll brought: a record for each that was read, the offsets with who the member is (KIP-447), a
commit.
What was told of each is noted in the history, which `history_check` judges. After an abort the
application goes back to the group's offsets; a producer that can't go on is replaced by another one
with its transactional id. Must not: cause faults, or decide what is right.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from contextlib import suppress
from typing import Any

from odradek.clients.consumer.records import ConsumerRecord, OffsetAndMetadata
from odradek.clients.producer.batch import ProducerBatch
from odradek.common.errors import AbortableTransactionError, KafkaError
from odradek.common.types import TopicPartition
from odradek.network.flow import Completion, Flow
from odradek.record import estimate_record_size
from odradek.simulation.checkers.group_checkers import GroupLedger
from odradek.simulation.checkers.history import History, Transaction, TransactionOutcome, Write
from odradek.simulation.checkers.invariants import Checkers
from odradek.simulation.faults.verbs import Stage
from odradek.simulation.runs.group_workload import MemberDriver
from odradek.simulation.runs.schedule import GROUP_ID, TOPIC, ScheduledClient
from odradek.simulation.runs.transaction_workload import CALL, PAUSE, TransactionalDriver
from odradek.simulation.runs.workload import Driver
from odradek.simulation.world.link import Mode

Acknowledged = tuple[Write, ProducerBatch, int]


class Writer(TransactionalDriver):
    """The producer of a processor; it does what that one says."""

    def __init__(
        self, owner: ProcessorDriver, client: ScheduledClient, mode: Mode, checkers: Checkers
    ) -> None:
        self.owner = owner
        super().__init__(owner.stage, client, mode, checkers)

    def after(self, seconds: float, action: Callable[[], None]) -> None:
        """The application goes on so much later, unless its process is stopped."""
        self.owner.soon(seconds, action)

    def given_up(self) -> None:
        """Another one is needed."""
        if self.owner.writer is self:
            self.owner.replace_writer()

    def look(self) -> None:
        """Check what can be checked at any time."""
        if not self.died:
            super().look()

    def probe(self) -> None:
        """Its owner goes on."""

    def finished(self) -> bool:
        """Its owner says so."""
        return True


class ProcessorDriver(MemberDriver):
    """Reads, processes, writes."""

    def __init__(
        self,
        stage: Stage,
        client: ScheduledClient,
        mode: Mode,
        checkers: Checkers,
        ledger: GroupLedger,
        topics: Collection[str],
        history: History,
        incarnations: Callable[[str], int],
        enlist: Callable[[Driver], None],
    ) -> None:
        self.history = history
        self.incarnation = 0
        self.writer: Writer | None = None
        self._ready = False
        self._back_to_committed = False
        self._incarnations, self._enlist = incarnations, enlist
        self._mode, self._checkers = mode, checkers
        super().__init__(stage, client, mode, checkers, ledger, topics)

    # The application's thread

    def soon(self, seconds: float, action: Callable[[], None]) -> None:
        """Go on so much later; who is stopped, busy with something else or dead doesn't."""

        def act() -> None:
            if self._frozen or self.world.now < self._idle_until:
                self.world.at(max(self._idle_until, self.world.now), act)
            elif not self.over:
                action()

        self.world.after(seconds, act)

    def _go_on(self, seconds: float = 0.0) -> None:
        """Back to `poll`."""
        self._polling = False
        self._later(seconds)

    def poll(self) -> None:
        """Poll, unless there is something to be done before."""
        if self.over or self._polling or self._leaving or self.engine.ended is not None:
            super().poll()
        elif self.writer is None or not self._ready:
            self._polling = True
            self._initialise()
        elif self._back_to_committed:
            self._polling = True
            self._look_up()
        else:
            super().poll()

    def _initialise(self) -> None:
        if self.writer is None:
            self.writer = Writer(self, self.client.writer, self._mode, self._checkers)
            self._enlist(self.writer)

        def ready() -> None:
            self._ready = True
            self.incarnation = self._incarnations(self.name)
            self._go_on()

        manager = self.writer.manager
        self.writer.do("init", manager.initialize, ready, lambda _: self._go_on(PAUSE))

    def replace_writer(self) -> None:
        """The producer is of no use any more."""
        writer, self.writer = self.writer, None
        self._ready, self._back_to_committed = False, True
        if writer is not None:
            writer.engine.shut()
            writer.host.close(self.world.now)
        self._go_on(PAUSE)

    def _look_up(self) -> None:
        """Go back to the group's offsets.

        Whoever lost its partitions and got them back meanwhile has newer positions than the answer:
        an application that seeks has to see to that itself.
        """
        partitions = list(self.engine.subscription.partitions)
        before, deadline = self.identity, self.world.now + CALL
        fetching: Completion[Any] = self.engine.start(
            self.group.commits.stored.fetch(partitions, deadline)
        )
        self.calls.begin(fetching, f"{self.name}: committed", deadline)
        fetching.when_done(lambda _: self.soon(0.0, looked_up))
        self.host.wake()

        def looked_up() -> None:
            if self.engine.ended is not None:
                return
            if fetching.error is not None:
                if isinstance(fetching.error, KafkaError):
                    self.errors.append(fetching.error)
            elif self.identity == before:
                self._back_to_committed = False
                for partition, found in fetching.result().items():
                    with suppress(KafkaError):  # it was lost
                        self.engine.subscription.seek(partition, found.offset if found else 0)
                        self.ledger.sought(self, partition)
            self._go_on(PAUSE if self._back_to_committed else 0.0)

    # One transaction

    def work(self, records: list[ConsumerRecord], first: dict[TopicPartition, int]) -> None:
        """Make a transaction of what `poll` gave."""
        writer = self.writer
        if not records or writer is None:
            self._later(self.rng.uniform(0.0, self.habits.work))
            return
        self._polling = True
        made = self.history.begin(self.name, self.incarnation, group=GROUP_ID)
        made.outcome = TransactionOutcome.ABORTED  # until its commit is asked for
        for record in records:
            made.consumed(TopicPartition(record.topic, record.partition), record.offset)

        def begin() -> None:
            writer.do(
                "begin",
                lambda _: writer.manager.begin(),
                lambda: self._fill(writer, made, records),
                lambda _: self._abort(writer, made),
            )

        self.soon(self.rng.uniform(0.0, self.habits.work), begin)

    def _fill(self, writer: Writer, made: Transaction, records: list[ConsumerRecord]) -> None:
        def know(deadline: float) -> Flow[None]:
            yield from writer.engine.topic(TOPIC, deadline)

        writer.do(
            "metadata",
            know,
            lambda: self._write(writer, made, records),
            lambda _: self._abort(writer, made),
        )

    def _write(self, writer: Writer, made: Transaction, records: list[ConsumerRecord]) -> None:
        snapshot = writer.engine.metadata.snapshot
        topic = snapshot.topic(TOPIC) if snapshot is not None else None
        if topic is None or not topic.partitions:
            self._abort(writer, made)
            return
        sent: list[Acknowledged] = []
        accumulator = writer.engine.accumulator
        for record in records:
            target = TopicPartition(TOPIC, record.partition % len(topic.partitions))
            source = f"{record.topic}/{record.partition}/{record.offset}"
            value = f"{source} by {self.name}.{self.incarnation}/{writer.serial}"
            data, now = value.encode(), int(self.world.wall_clock() * 1000)
            size = estimate_record_size(None, data, ())
            try:
                place = accumulator.append(target, (None, data, (), now), size, self.world.now)
            except KafkaError:
                place = None
            if place is None:
                self._abort(writer, made)
                return
            writer.serial += 1
            sent.append((made.wrote(target, value), place.batch, place.index))
        writer.host.wake()
        self._offsets(writer, made, sent)

    def _offsets(self, writer: Writer, made: Transaction, sent: list[Acknowledged]) -> None:
        ends = {partition: OffsetAndMetadata(offset + 1) for partition, offset in made.inputs}
        writer.do(
            "offsets",
            lambda d: writer.manager.send_offsets(ends, self.group.metadata(), d),
            lambda: self.soon(
                self.rng.uniform(0.0, self.habits.work), lambda: self._end_of(writer, made, sent)
            ),
            lambda _: self._abort(writer, made),
        )

    def _end_of(self, writer: Writer, made: Transaction, sent: list[Acknowledged]) -> None:
        if self.rng.random() < self.habits.regrets:
            self._abort(writer, made)
        else:
            self._commit_of(writer, made, sent)

    def _commit_of(self, writer: Writer, made: Transaction, sent: list[Acknowledged]) -> None:
        def committed() -> None:
            made.outcome = TransactionOutcome.COMMITTED
            for write, batch, index in sent:
                offset = batch.metadata(index, 0).offset
                write.offset = offset if offset >= 0 else None
            self._go_on(self.rng.uniform(0.0, self.habits.work))

        def failed(error: KafkaError) -> None:
            if isinstance(error, AbortableTransactionError):
                self._abort(writer, made)
            elif writer.manager.open or writer.manager.pending is not None:
                self._commit_of(writer, made, sent)  # it goes on: this waits for its end
            else:
                self.replace_writer()

        made.outcome = TransactionOutcome.UNKNOWN
        writer.do("commit", writer.manager.commit, committed, failed)

    def _abort(self, writer: Writer, made: Transaction) -> None:
        def aborted() -> None:
            made.outcome = TransactionOutcome.ABORTED
            self._back_to_committed = True
            self._go_on()

        def failed(_: KafkaError) -> None:
            if writer.manager.open or writer.manager.pending is not None:
                self._abort(writer, made)
            else:
                self.replace_writer()

        writer.do("abort", writer.manager.abort, aborted, failed)

    # Its process

    def freeze(self, seconds: float) -> None:
        """The process is stopped for so long, both clients and the application."""
        stopped = self._frozen
        super().freeze(seconds)
        if self.writer is not None and not self.over and not stopped:
            self.writer.host.freeze()
            self.writer.calls.excuse(self.world.now + seconds)

    def _thaw(self) -> None:
        super()._thaw()
        if self.writer is not None and not self.over:
            self.writer.host.freeze(on=False)

    def _end(self) -> None:
        if self.writer is not None:
            self.writer.died = self.died
            if not self.died:
                self.writer.engine.shut()
            self.writer.host.close(self.world.now)
        super()._end()
