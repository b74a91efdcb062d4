"""The engine of one producer: accumulator, partitioner and sender on top of the client engine.

In: records of `send()`, on the callers' threads; flows for the facade. Out: batches with outcomes.
Must not: block; the facade waits for what the flows here wait for.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import TYPE_CHECKING

from odradek.clients.client_engine import SHIPPED, ClientEngine, Parts
from odradek.clients.producer.batch import ProducerBatch, all_over
from odradek.clients.producer.early_records import NOWHERE, EarlyRecord, EarlyRecords
from odradek.clients.producer.partition_load import PartitionLoad
from odradek.clients.producer.partition_rules import rule_for
from odradek.clients.producer.partitioner import Partitioner
from odradek.clients.producer.producer_id import ProducerIdentity, SenderIdentity
from odradek.clients.producer.record_accumulator import RecordAccumulator
from odradek.clients.producer.room_line import RoomLine
from odradek.clients.producer.sender import Sender
from odradek.clients.producer.why_waiting import why_waiting
from odradek.common.config import Config
from odradek.common.errors import KafkaTimeoutError
from odradek.common.types import Lock, Rng
from odradek.metadata.cluster import Topic
from odradek.network.flow import START, Flow, Wait
from odradek.record import SentColumns

if TYPE_CHECKING:
    from odradek.clients.producer.transaction_manager import TransactionManager


class ProducerEngine(ClientEngine):
    """What a producer is made of."""

    def __init__(self, config: Config, rng: Rng, lock: Lock, *, parts: Parts = SHIPPED) -> None:
        super().__init__(config, rng, parts=parts)
        self.accumulator = RecordAccumulator(config, lock)
        self.identity: SenderIdentity = ProducerIdentity(self)
        self.early = EarlyRecords(self)
        self.sender = Sender(self)
        partitioner = config["partitioner"]
        self.partitioner = Partitioner(
            rng,
            stride=config["batch.size"],
            ignore_keys=config["partitioner.ignore.keys"] or partitioner == "random",
            rule=rule_for(partitioner),
            load=self._load if config["partitioner.adaptive.partitioning.enable"] else None,
        )
        self._partition_load = PartitionLoad(config, self.sender.queues, self.sender.sent_at)
        self.line = RoomLine(self.accumulator)
        self.components += (self.early, self.sender, self.line)
        self.metadata.held_by.append(lambda: {b.partition.topic for b in self.sender.incomplete()})
        self.metadata.on_forgotten.append(self.partitioner.forget)
        self.transactions: TransactionManager | None = None
        if config["transactional.id"] is not None:
            # Imported where it is needed: most producers have no transactions.
            from odradek.clients.producer.transaction_manager import TransactionManager

            self.transactions = TransactionManager(self)
            self.identity = self.transactions

    def _load(self, topic: Topic) -> tuple[Sequence[int], Sequence[int] | None]:
        snapshot = self.metadata.snapshot
        brokers = {} if snapshot is None else snapshot.brokers
        return self._partition_load.table(topic, brokers, self.now)

    def newer(self, topic: Topic, columns: SentColumns, deadline: float) -> Flow[Topic]:
        """The topic as it is now, for rows that name a partition which may just have been added. It
        looks once: a row that can't be sent shouldn't keep its caller for `max.block.ms`.
        """
        now = yield START
        before = self.metadata.refreshed_at
        if columns.partitions is None:
            return topic
        self.metadata.request(f"a row names no partition of {topic.name}")
        while self.metadata.refreshed_at == before:
            now = yield from self.pause(f"metadata of topic {topic.name}", deadline, now)
        return (yield from self.topic(topic.name, deadline))

    def leave_line(self, owner: object) -> None:
        """Nobody waits for that room any more, or wants what was or will be granted."""
        self.start(self.line.leave(owner))

    def flush(self, deadline: float) -> Flow[None]:
        """Send what lingers and wait until everything sent before has its outcome."""
        now = yield START
        self.accumulator.close_all()
        pending = deque(self.sender.incomplete())
        while not all_over(pending):
            if now >= deadline:
                leaves = (b for batch in pending for b in batch.leaves() if not b.done.done)
                left = list(dict.fromkeys(leaves))
                records = sum(b.count for b in left)
                what = f"acknowledgement of {records} records in {len(left)} batches"
                error = self.sender.settling.timeout(what, now, left)
                error.remaining = records
                raise error
            now = yield Wait((self.sender.batch_done,), deadline)

    def unsettled(self) -> int:
        """How many records have no outcome yet."""
        return sum(batch.count for batch in self.sender.incomplete())

    def undelivered(self, what: str, now: float) -> KafkaTimeoutError:
        """The error of a call that waited for records, or for their memory."""
        return self.sender.settling.timeout(what, now, self.sender.incomplete())

    def no_outcome(self, of: ProducerBatch | int, now: float) -> KafkaTimeoutError:
        """The error of a call that waited for a batch, or for a number of rows."""
        if isinstance(of, int):
            return self.undelivered(f"acknowledgement of {of} records", now)
        topic, partition = of.partition
        place = f"topic {topic}" if partition == NOWHERE else of.partition
        what = f"acknowledgement of records for {place}"
        if isinstance(of, EarlyRecord):
            what += f", which waits for {why_waiting(self, of, now)},"
        return self.undelivered(what, now)

    def patient(self, what: str) -> bool:
        """R-CS-4: a producer that had got in keeps its records until delivery.timeout.ms."""
        waits = what.startswith(("acknowledgement", "end of "))
        return waits and self.updater.refusals.got_in()

    def waits(self) -> list[tuple[str, float]]:
        """What callers wait for, and the records that have no outcome yet."""
        found, pending = super().waits(), self.sender.incomplete()
        if pending:
            records = sum(b.count for b in pending)
            partitions = len({b.partition for b in pending})
            what = f"acknowledgement of {records} records for {partitions} partitions (the oldest)"
            attempts, _ = self.sender.settling.refusals(pending, self.now)
            said = "".join(f"; {attempt.describe(self.now)}" for attempt in attempts)
            found.append((f"{what}{said}", min(b.deadline for b in pending)))
        return found
