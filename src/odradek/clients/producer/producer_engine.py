"""Combine accumulator, partitioner and sender of one producer with the client engine.

In: records of `send()`, in the callers' threads; calls such as `flush()`. Out: batches with
outcomes. Must not: block; public methods wait until the generators (flows) of this class finish.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import TYPE_CHECKING

from odradek.clients.bootstrap_timeout import BLOCK_TIMEOUT, DELIVERY_TIMEOUT, FIRST_CONTACT
from odradek.clients.client_engine import SHIPPED, ClientEngine, Parts, again
from odradek.clients.producer.batch import UNPLACED, FailedRecords, Placed, ProducerBatch, all_over
from odradek.clients.producer.batch_completion import BatchCompletion
from odradek.clients.producer.batch_timeouts import BatchTimeouts
from odradek.clients.producer.memory_waiters import MemoryWaiters
from odradek.clients.producer.partition_load import PartitionLoad
from odradek.clients.producer.partition_queue import PartitionQueues
from odradek.clients.producer.partition_rules import rule_for
from odradek.clients.producer.partitioner import Partitioner
from odradek.clients.producer.produce_exchange import SentCounts
from odradek.clients.producer.producer_id import ProducerIdentity, SenderIdentity
from odradek.clients.producer.record_accumulator import RecordAccumulator
from odradek.clients.producer.records_without_metadata import (
    NO_PARTITION,
    RecordsWithoutMetadata,
    RecordWithoutMetadata,
)
from odradek.clients.producer.sender import Sender
from odradek.clients.producer.uncertain_writes import counted, were
from odradek.clients.producer.wait_reasons import WaitReasons
from odradek.common.config import Config
from odradek.common.errors import ClientClosedError, KafkaTimeoutError, NoBrokerAvailableError
from odradek.common.types import Lock, Rng
from odradek.metadata.cluster import Topic
from odradek.network.flow import START, Flow, Signal, Wait
from odradek.record import SentColumns

if TYPE_CHECKING:
    from odradek.clients.producer.transaction_manager import TransactionManager
    from odradek.clients.producer.unobserved_failures import UnobservedFailures


ACKNOWLEDGEMENT, TRANSACTION_END = "the acknowledgement of", "the end of"
"""Prefixes of texts on waits which continue if credentials are refused (see `patient`)."""


class ProducerEngine(ClientEngine):
    """The engine of a producer."""

    right = "WRITE"

    def __init__(self, config: Config, rng: Rng, lock: Lock, *, parts: Parts = SHIPPED) -> None:
        super().__init__(config, rng, parts=parts)
        self.accumulator = RecordAccumulator(config, lock, self._placed_in)
        self.batch_done = Signal()
        self.timeouts = BatchTimeouts(self.metadata, self.missing.near, self.timed_out)
        self.transactions: TransactionManager | None = None
        self._failures: UnobservedFailures | None = None
        identity = self._identity(config)
        queues, counts = PartitionQueues(), SentCounts()
        network, metadata, accumulator = self.network, self.metadata, self.accumulator
        batch_completion = BatchCompletion(
            config,
            self,
            network,
            metadata,
            accumulator,
            identity,
            queues,
            counts,
            self.timeouts,
            self.batch_done,
            rng,
            self.unnoticed,
        )
        self.sender = Sender(
            config,
            self,
            network,
            metadata,
            self.brokers.check,
            accumulator,
            identity,
            batch_completion,
            queues,
            counts,
        )
        sent_at = self.sender.sent_at
        self._partition_load = PartitionLoad(config, queues.active, sent_at)
        partitioner = config["partitioner"]
        self.partitioner = Partitioner(
            rng,
            stride=config["batch.size"],
            ignore_keys=config["partitioner.ignore.keys"] or partitioner == "random",
            rule=rule_for(partitioner),
            load=self._load if config["partitioner.adaptive.partitioning.enable"] else None,
        )
        self.early = RecordsWithoutMetadata(
            self,
            network,
            metadata,
            accumulator,
            self.partitioner,
            self.sender,
            topic=self.topic,
            pause=self.pause,
            track=self.track,
            timeout=self.timeout,
            unreached_until=lambda begun: self.unreached_until(begun, BLOCK_TIMEOUT),
            unreached=self.unreached,
            note_missing=self.missing.note,
            unnoticed=self.unnoticed,
        )
        self.wait_reasons = WaitReasons(
            metadata, network, queues.active, identity, self.transactions, config["linger.ms"]
        )
        self.line = MemoryWaiters(accumulator)
        self.components += (self.early, self.sender, self.line)
        metadata.held_by.append(lambda: {b.partition.topic for b in self.incomplete()})
        metadata.on_forgotten.append(self._forget)
        network.states.on_forgotten.append(lambda address: sent_at.pop(address, None))

    def _identity(self, config: Config) -> SenderIdentity:
        """Return the identity of the batches; with a transactional.id, a transaction manager."""
        if config["transactional.id"] is None:
            return ProducerIdentity(self, self.network, self.brokers, config)
        # Imported here, because most producers have no transactions.
        from odradek.clients.producer.transaction_manager import TransactionManager

        self.transactions = TransactionManager(
            config,
            self,
            self.network,
            self.metadata,
            self.brokers,
            self.accumulator,
            self.incomplete,
            self.batch_done,
            self.timeouts,
            lambda: self.sender.batch_completion.acknowledged_as,
        )
        return self.transactions

    def incomplete(self) -> list[ProducerBatch]:
        """Return every batch without an outcome, including open ones and records without metadata.

        Any thread may call this: `live()` also contains a batch that is being moved between queues.
        Records without metadata are read first, because they become batches.
        """
        found = dict.fromkeys(leaf for early in self.early.incomplete() for leaf in early.leaves())
        found.update(dict.fromkeys(self.accumulator.live()))
        return [batch for batch in found if not batch.done.done]

    def _placed_in(self, topic: str) -> Placed:
        """Return the topic information that a new batch keeps."""
        snapshot = self.metadata.snapshot
        if snapshot is None:
            return UNPLACED
        # Try the dict first, which is faster than a method.
        found = snapshot.asked.get(topic) or snapshot.topic(topic)
        if found is None:
            return UNPLACED
        return tuple.__new__(Placed, (found.topic_id, found.count))  # saves a Python call

    def _forget(self, topic: str) -> None:
        """Drop all state of a topic that isn't in use any more (R-MD-7)."""
        self.partitioner.forget(topic)
        self._partition_load.forget(topic)
        self.accumulator.forget(topic)
        self.sender.counts.forget(topic)

    def _load(self, topic: Topic) -> tuple[Sequence[int], Sequence[int] | None]:
        snapshot = self.metadata.snapshot
        brokers = {} if snapshot is None else snapshot.brokers
        return self._partition_load.table(topic, brokers, self.now)

    def newer(self, topic: Topic, columns: SentColumns, deadline: float) -> Flow[Topic]:
        """Return newer metadata of a topic, because rows may name a partition that was just added.

        The metadata is refreshed once: an invalid row mustn't block its caller for `max.block.ms`.
        """
        now = yield START
        before = self.metadata.refreshed_at
        if columns.partitions is None:
            return topic
        self.metadata.request(f"a row names an unknown partition of {topic.name}")
        while self.metadata.refreshed_at == before:
            now = yield from self.pause(f"metadata of topic {topic.name}", deadline, now)
        return (yield from self.topic(topic.name, deadline))

    def leave_line(self, owner: object) -> None:
        """Stop a caller's wait for memory, and release the bytes that are reserved for it."""
        self.start(self.line.leave(owner))

    def flush(self, deadline: float) -> Flow[None]:
        """Send lingering batches and wait until all earlier records have an outcome.

        Raises if records have failed because no broker was reached (R-RB-10): otherwise a program
        that only calls `flush()` or `close()` wouldn't notice that nothing was sent.
        """
        now = yield START
        self.accumulator.close_all()
        early = self.early.incomplete()
        pending = deque(self.incomplete())
        while not all_over(pending):
            if now >= deadline:
                leaves = (b for batch in pending for b in batch.leaves() if not b.done.done)
                left = list(dict.fromkeys(leaves))
                remaining = sum(b.count for b in left)
                batches = "1 batch" if len(left) == 1 else f"{len(left)} batches"
                why = self._why_early(left[0], now)
                what = f"{ACKNOWLEDGEMENT} {counted(remaining)} in {batches}{why}"
                raise self.timeouts.timeout(what, now, left).leaving(remaining)
            now = yield Wait((self.batch_done,), deadline)
        for error in [record.done.error for record in early]:
            if isinstance(error, NoBrokerAvailableError) and not error.reached_before:
                raise again(error)

    def ends(self, batch: ProducerBatch) -> tuple[float, str]:
        """Return when a batch times out, and the option that sets this timeout."""
        if not isinstance(batch, RecordWithoutMetadata):
            return batch.deadline, DELIVERY_TIMEOUT
        at = self.early.ends_at(batch)
        return at, BLOCK_TIMEOUT if at == batch.deadline else FIRST_CONTACT

    def unnoticed(self, records: int, error: BaseException) -> FailedRecords | None:
        """Return an object that logs a failure if the program drops its futures unread.

        Returns None if the program is notified anyway: by the end of a transaction, by `flush()`,
        or by its own `close()`.
        """
        unreached = isinstance(error, NoBrokerAvailableError) and not error.reached_before
        if unreached or self.transactions is not None or isinstance(error, ClientClosedError):
            return None
        if self._failures is None:
            # Imported here, because most producers have no failures.
            try:
                from odradek.clients.producer.unobserved_failures import UnobservedFailures
            except (OSError, ImportError):  # no free file descriptor (R-TI-2)
                return None
            self._failures = UnobservedFailures(self, self.config["client.id"])
            self.components.append(self._failures)
        return self._failures.watch(records, error)

    def report_failures(self) -> None:
        """Log the failures that the program hasn't read, without waiting for more of them."""
        if self._failures is not None:
            self._failures.flushed()

    def unsettled(self) -> int:
        """Return the number of records without an outcome."""
        return sum(batch.count for batch in self.incomplete())

    def left(self) -> str:
        """Return a text with the number of records without an outcome; empty without any."""
        left = self.incomplete()
        total, sent = sum(b.count for b in left), sum(b.count for b in left if b.attempts)
        if not total:
            return ""
        if not sent:
            return f"{counted(total)} that {were(total)} not sent"
        some = " that" if sent == total else f", of which {sent}"
        known = "errors say which records may have been written"
        return f"{counted(total)}{some} {were(sent)} sent; {known}"

    def undelivered(self, what: str, now: float) -> KafkaTimeoutError:
        """Return the error of a call that waited for records, or for their memory."""
        return self.timeouts.timeout(what, now, self.incomplete())

    def no_outcome(self, of: ProducerBatch | int, now: float) -> KafkaTimeoutError:
        """Return the error of a call that waited for a batch, or for a number of rows."""
        if isinstance(of, int):
            return self.undelivered(f"{ACKNOWLEDGEMENT} {counted(of)}", now)
        topic, partition = of.partition
        place = f"topic {topic}" if partition == NO_PARTITION else of.partition
        what = f"{ACKNOWLEDGEMENT} records for {place}{self._why_early(of, now)}"
        return self.undelivered(what, now)

    def _why_early(self, batch: ProducerBatch, now: float) -> str:
        """Return a text on why a record without metadata waits; empty for a batch."""
        early = isinstance(batch, RecordWithoutMetadata)
        return f" (waiting for {self.wait_reasons.of(batch, now)})" if early else ""

    def patient(self, what: str) -> bool:
        """Return whether a wait continues although credentials are refused (R-CS-4).

        A producer that was accepted before keeps its records until delivery.timeout.ms.
        """
        waits = what.startswith((ACKNOWLEDGEMENT, TRANSACTION_END))
        return waits and self.updater.refusals.got_in()

    def waits(self) -> list[tuple[str, float]]:
        """Return what callers wait for, and the records without an outcome."""
        found, pending = super().waits(), self.incomplete()
        if pending:
            partitions = len({b.partition for b in pending})
            places = "1 partition" if partitions == 1 else f"{partitions} partitions"
            waiting = counted(sum(b.count for b in pending))
            what = f"{ACKNOWLEDGEMENT} {waiting} for {places}, the oldest first"
            attempts, _ = self.timeouts.refusals(pending, self.now)
            said = "".join(f"; {attempt.describe(self.now)}" for attempt in attempts)
            found.append((f"{what}{said}", min(self.ends(b)[0] for b in pending)))
        return found
