"""Simulate clients that write records and a group's offsets in transactions, and check them.

In: a client of a schedule, a stage (simulation and cluster). Out: a transactional producer's calls,
one after the other; at the end a comparison of its committed, aborted and uncertain transactions
with the records that read_committed consumers see, and with the group's offsets (each transaction
with offsets is one step of a read-process-write chain). Must not cause faults.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from enum import Enum

from odradek.clients.caller_flow import CallerFlow
from odradek.clients.calls.producer_calls import ProducerCalls
from odradek.clients.consumer.records import ConsumerGroupMetadata, OffsetAndMetadata
from odradek.clients.producer.batch import ProducerBatch
from odradek.clients.producer.transaction_requests import WITH_BUMPS
from odradek.common.config import Config
from odradek.common.errors import (
    AbortableTransactionError,
    FatalTransactionError,
    KafkaError,
    KafkaTimeoutError,
)
from odradek.common.errors.kafka import UnsupportedVersionError
from odradek.common.types import TopicPartition
from odradek.protocol.messages.init_producer_id import InitProducerIdRequest
from odradek.simulation.brokers.broker_faults import disturbed, lost_values
from odradek.simulation.brokers.cluster import SimulatedCluster
from odradek.simulation.checkers.history import CallResult, Operation, Write
from odradek.simulation.checkers.invariants import Violation
from odradek.simulation.coordinators.committed_offsets import Committed
from odradek.simulation.runs.application_behaviour import ApplicationBehaviour
from odradek.simulation.runs.caller import pause
from odradek.simulation.runs.record_workload import WritingDriver
from odradek.simulation.runs.workload import TOPIC

Acknowledged = tuple[Write, ProducerBatch, int]
CALL = 5.0
"""Timeout of a call in seconds; a commit or abort that times out continues, and is called again."""
PAUSE = 0.05
INPUT = TopicPartition(TOPIC, 0)
"""The partition whose offsets the transactions commit."""


class Fate(Enum):
    """Outcome of a transaction, as far as its producer knows."""

    UNKNOWN = "unknown"
    COMMITTED = "committed"
    ABORTED = "aborted"


@dataclass(slots=True)
class Made:
    """One transaction of a producer: its records, offset and outcome."""

    commits: bool
    writes: list[tuple[TopicPartition, bytes]] = field(default_factory=list)
    offset: int | None = None
    """The offset that the transaction commits for the group."""
    ending: bool = False
    """Whether the commit was called: before that call, the transaction can't be committed."""
    fate: Fate = Fate.UNKNOWN


class TransactionalDriver(WritingDriver):
    """A driver that runs transactions one by one; each is one operation of the schedule."""

    def build(self, config: Config) -> ProducerCalls:
        """Create the producer's calls and the list of its transactions."""
        self.made: list[Made] = []
        self.wanted: list[Made] = []
        self.busy = False
        self.ready = False
        self.group = f"group of {self.name}"
        self.committed_at = 0
        self.cluster.group_settings.observers.append(self._committed)
        return super().build(config)

    def _committed(
        self, group_id: str, _: str | None, offsets: Mapping[TopicPartition, Committed]
    ) -> None:
        """Check each offset that a transaction commits, when it is committed.

        At the end of the run, later transactions have replaced it. The offset must be the last one
        that a transaction has sent (R-TX-2), and must not be from an earlier transaction (R-TX-1).
        """
        found = offsets.get(INPUT)
        if group_id != self.group or found is None:
            return
        sent = [made.offset for made in self.made if made.offset is not None]
        if found.offset not in sent or found.offset < self.committed_at:
            text = f"{self.group} is committed at {found.offset} after {self.committed_at}"
            said = f"{self.world.now}: {text}; transactions have sent {sent} last"
            self.wrong.append(Violation(said))
        self.committed_at = max(self.committed_at, found.offset)

    # Calls, one after the other

    @property
    def patience(self) -> float:
        """Timeout of a call in seconds."""
        return self.seconds(CALL)

    def bear(self, error: KafkaError, what: str) -> CallerFlow[None]:
        """Wait a moment after an error; raise the error if the producer can't continue."""
        self.judged(error, what)
        again = isinstance(error, KafkaTimeoutError | AbortableTransactionError)
        refused = not again and self.producer.transactions.error is not None
        if refused or self.engine.ended is not None:
            raise error
        yield from pause(PAUSE)

    def initialised(self) -> CallerFlow[bool]:
        """Call `init_transactions`; return whether that succeeded."""
        try:
            yield from self.producer.init_transactions(self.patience)
        except KafkaError as error:
            yield from self.bear(error, "init")
            return False
        return True

    def commit(self) -> CallerFlow[KafkaError | None]:
        """Commit; return the error if the outcome is unknown or the transaction must be aborted."""
        return self._end("commit", self.producer.commit_transaction, AbortableTransactionError)

    def abort(self) -> CallerFlow[KafkaError | None]:
        """Abort the transaction; return the error if the outcome is unknown."""
        return self._end("abort", self.producer.abort_transaction)

    def _end(
        self, what: str, call: Callable[[float], CallerFlow[None]], *final: type[KafkaError]
    ) -> CallerFlow[KafkaError | None]:
        manager = self.producer.transactions
        while True:
            try:
                yield from call(self.patience)
            except KafkaError as error:
                yield from self.bear(error, what)
                goes_on = manager.open or manager.pending is not None
                if isinstance(error, final) or not goes_on:
                    return error
            else:
                return None

    def operate(self) -> None:
        """Run one more transaction."""
        self._wish(commits=self.rng.random() < 0.75)

    def _wish(self, *, commits: bool) -> None:
        self.wanted.append(Made(commits))
        if not self.busy and not self.over:
            self.busy = True
            self.caller.begin(
                f"{self.name}: a transaction", self._work(), self._rest, self._given_up
            )

    def _rest(self, _: None) -> None:
        self.busy = False

    def _given_up(self, error: Exception) -> None:
        self.busy, self.over = False, True
        if not isinstance(error, KafkaError):
            self.judged(error, "a transaction")

    def _work(self) -> CallerFlow[None]:
        while self.wanted and self.engine.ended is None:
            if self.ready:
                made = self.wanted.pop(0)
                self.made.append(made)
                yield from self._make(made)
            else:
                self.ready = yield from self.initialised()

    def _make(self, made: Made) -> CallerFlow[None]:
        try:
            yield from self.producer.begin_transaction()
        except KafkaError as error:
            if not self._rightly_refused(error):
                told = f"{self.world.now}: {self.name} can't begin: {error!r}"
                self.wrong.append(Violation(told))
            raise
        commits = made.commits
        noted = self.history.begin(self.name)
        sent: list[Acknowledged] = []
        try:
            yield from self._fill(made, noted, sent)
        except KafkaError as error:
            yield from self.bear(error, "metadata or offsets")
            commits = False
        if commits:
            made.ending = True
            noted.commits()
            failed = yield from self.commit()
            if failed is None:
                made.fate = Fate.COMMITTED
                for write, batch, index in sent:
                    noted.acknowledged(batch.metadata(index, 0).offset, write)
                noted.ended()
            if not isinstance(failed, AbortableTransactionError):
                return
        if (yield from self.abort()) is None:
            made.fate = Fate.ABORTED
            noted.ended(CallResult.FAIL)

    def _rightly_refused(self, error: KafkaError) -> bool:
        """Return whether the producer may have ended after a successful commit (R-TX-1).

        After a lost response the producer needs a new epoch, which old brokers don't provide, and
        which a late request may fence.
        """
        if isinstance(error, UnsupportedVersionError):
            return self.cluster.versions[InitProducerIdRequest.API_KEY][1] < WITH_BUMPS
        return isinstance(error, FatalTransactionError)

    def _fill(self, made: Made, noted: Operation, sent: list[Acknowledged]) -> CallerFlow[None]:
        there = yield from self.producer.partitions_for(TOPIC, self.patience)
        few = max(self.client.volume, 3)
        with suppress(KafkaError):  # the commit raises the error, too
            for _ in range(self.rng.randint(0, few) if self.probed_at is None else 1):
                partition = self.rng.choice(there)
                value = self.value(self.name)

                def wrote(
                    batch: ProducerBatch,
                    index: int,
                    _: int,
                    place: TopicPartition = partition,
                    value: bytes = value,
                ) -> None:
                    made.writes.append((place, value))
                    sent.append((noted.wrote(place, value.decode()), batch, index))

                yield from self.send(partition.partition, value, wrote)
        habits = ApplicationBehaviour(**{"work": 0.0, **self.client.habits})
        if self.rng.random() < 0.5:
            made.offset = len(self.made) * habits.parts
            for part in reversed(range(habits.parts)):
                yield from self.producer.send_offsets(
                    {INPUT: OffsetAndMetadata(made.offset - part)},
                    ConsumerGroupMetadata(self.group),
                    self.patience,
                )
        else:
            yield from pause(self.rng.uniform(0.0, 0.2))
        if habits.work:
            yield from pause(self.rng.uniform(0.0, habits.work))

    # After the faults

    def served(self) -> None:
        """Raise an error unless all transactions have ended."""
        if self.done and (self.busy or not self.ready):
            raise Violation(f"{self.world.now}: {self.name} waits for brokers that are only slow")

    def probe(self) -> None:
        """Run a transaction that commits."""
        self._wish(commits=True)

    def again(self) -> None:
        """Run another transaction if the last one failed."""
        if not self.busy and not self.finished():
            self.probe()
            self.host.wake()

    def finished(self) -> bool:
        """Return whether the last transaction is committed, and committed records are visible."""
        last = self.made[-1] if self.made else None
        done = not self.busy and last is not None and last.fate is Fate.COMMITTED
        seen = (done or self.over) and all(self._seen(self.cluster, made) for made in self.made)
        return seen and not self._wrong_offset(self.cluster)

    def _seen(self, cluster: SimulatedCluster, made: Made) -> bool:
        """Return whether the committed records are visible: markers follow after the response."""
        if made.fate is not Fate.COMMITTED:
            return True
        return not self._missing(cluster, made)

    def _missing(self, cluster: SimulatedCluster, made: Made) -> list[bytes]:
        return [
            value
            for partition, value in made.writes
            if value not in self._visible(cluster, partition)
            and not (disturbed(cluster, *partition) and value in lost_values(cluster, *partition))
        ]

    def _visible(self, cluster: SimulatedCluster, partition: TopicPartition) -> list[bytes]:
        topic = cluster.topics.get(partition.topic)
        if topic is None or partition.partition >= len(topic.partitions):
            return []
        rows = topic.partitions[partition.partition].log.decided_rows()
        return [row[4] for row in rows if row[4] is not None]

    def verify(self) -> None:
        """Check that committed records are visible once and in order, and aborted ones aren't.

        A transaction with an unknown outcome must be visible completely or not at all.
        """
        mine = self.engine.metadata.cluster_id
        for cluster in (*self.stage.left, self.stage.cluster):
            if cluster.cluster_id == mine and cluster is self.stage.cluster:
                self._verify(cluster)

    def _verify(self, cluster: SimulatedCluster) -> None:
        seen: dict[TopicPartition, list[bytes]] = {}
        for made in self.made:
            for partition, _ in made.writes:
                seen.setdefault(partition, self._visible(cluster, partition))
        for partition, values in seen.items():
            mine = [v for v in values if v.startswith(self.name.encode() + b"/")]
            if len(set(mine)) < len(mine):
                raise Violation(f"{partition}: {self.name} exists twice: {mine}")
            if not disturbed(cluster, *partition) and mine != sorted(
                mine, key=lambda v: int(v.split(b"/")[-1])
            ):
                raise Violation(f"{partition}: {self.name} is out of order: {mine}")
        for number, made in enumerate(self.made):
            there = [v for partition, v in made.writes if v in seen[partition]]
            missing = self._missing(cluster, made)
            aborted = made.fate is Fate.ABORTED or not made.ending
            if aborted and there and not self._was_cut(cluster, made):
                raise Violation(f"{self.name}: transaction {number} was aborted; {there} is seen")
            if made.fate is Fate.COMMITTED and missing:
                raise Violation(
                    f"{self.name}: transaction {number} was committed without {missing}"
                )
            if there and missing:
                raise Violation(f"{self.name}: of transaction {number} {missing} isn't seen")
        if wrong := self._wrong_offset(cluster):
            raise Violation(wrong)

    def _was_cut(self, cluster: SimulatedCluster, made: Made) -> bool:
        """Return whether an election may have removed the transaction's marker."""
        return any(disturbed(cluster, *partition) for partition, _ in made.writes)

    def _wrong_offset(self, cluster: SimulatedCluster) -> str:
        """Describe what is wrong with the group's offset, or return an empty text."""
        sent = [made for made in self.made if made.offset is not None]
        known = [m.offset for m in sent if m.fate is Fate.COMMITTED]
        least = known[-1] if known else None
        allowed = {m.offset for m in sent if m.ending and m.fate is not Fate.ABORTED}
        for shard in cluster.groups.shards():
            offsets = shard.offsets.get(self.group)
            found = offsets.stable.get(INPUT) if offsets is not None else None
            if found is None:
                continue
            late = least is not None and found.offset < least
            wrong = late or found.offset not in allowed
            text = f"{self.group} is at {found.offset}; {least} was committed last"
            return text if wrong else ""
        return f"{self.group} has no offset; {least} was committed" if least is not None else ""
