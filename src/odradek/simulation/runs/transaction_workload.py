"""Clients of a schedule that write in transactions, with offsets of a group, and their books.

In: a client of a schedule, a stage. Out: calls on a transactional producer's engine as the facade
makes them, one after the other; at the end what was committed, aborted or left in doubt, held
against what readers with read_committed see, and against the group's offsets (so each transaction
with offsets is one step of a read-process-write chain). Must not: cause faults.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from enum import Enum
from typing import Any

from odradek.clients.consumer.records import ConsumerGroupMetadata, OffsetAndMetadata
from odradek.clients.producer.producer_engine import ProducerEngine
from odradek.clients.producer.transaction_manager import TransactionManager
from odradek.common.config import Config
from odradek.common.errors import AbortableTransactionError, KafkaError, KafkaTimeoutError
from odradek.common.types import TopicPartition
from odradek.network.flow import Completion, Flow
from odradek.record import estimate_record_size
from odradek.simulation.brokers.cluster import SimulatedCluster
from odradek.simulation.brokers.disturbances import disturbed, lost_values
from odradek.simulation.checkers.invariants import Violation
from odradek.simulation.runs.workload import TOPIC, Driver

CALL = 5.0
"""Seconds of a call; one that ends a transaction goes on, and is made again."""
PAUSE = 0.05
INPUT = TopicPartition(TOPIC, 0)
"""Whose offsets are committed."""


class Fate(Enum):
    """What became of a transaction, as its producer knows."""

    UNKNOWN = "unknown"
    COMMITTED = "committed"
    ABORTED = "aborted"


@dataclass(slots=True)
class Made:
    """One transaction."""

    commits: bool
    writes: list[tuple[TopicPartition, bytes]] = field(default_factory=list)
    offset: int | None = None
    """What it commits for the group."""
    ending: bool = False
    """Its commit was asked for: before that it can't be committed."""
    fate: Fate = Fate.UNKNOWN


class TransactionalDriver(Driver):
    """One transaction after the other, each as an operation."""

    engine: ProducerEngine

    def build(self, config: Config) -> ProducerEngine:
        """The producer's engine."""
        self.serial = 0
        self.made: list[Made] = []
        self.wanted: list[Made] = []
        self.busy = False
        self.ready = False
        self.over = False
        """It was told that it can't go on."""
        self.group = f"group of {self.name}"
        return ProducerEngine(config, self.host.rng(), self.host.lock)

    @property
    def manager(self) -> TransactionManager:
        """The engine's transactions."""
        found = self.engine.transactions
        if found is None:
            raise AssertionError(f"{self.name} has no transactional.id")
        return found

    # Calls, one after the other

    def do(
        self,
        what: str,
        flow: Callable[[float], Flow[None]],
        then: Callable[[], None],
        failed: Callable[[KafkaError], None],
    ) -> None:
        deadline = self.world.now + self.patience
        completion: Completion[Any] = self.engine.start(flow(deadline))
        self.calls.begin(completion, f"{self.name}: {what}", deadline)

        def ended(_: Completion[Any]) -> None:
            self.after(0.0, go_on)

        def go_on() -> None:
            error = completion.error
            if self.engine.ended is not None or self.over:
                self.busy = False
                self.given_up()
                return
            if error is None:
                then()
                return
            self.judged(error, what)
            if not isinstance(error, KafkaError):
                return
            retriable = isinstance(error, KafkaTimeoutError | AbortableTransactionError)
            if not retriable and self.manager.error is not None:
                self.over = True
                self.busy = False
                self.given_up()
            else:
                self.after(PAUSE, lambda: failed(error))

        completion.when_done(ended)
        self.host.wake()

    def after(self, seconds: float, action: Callable[[], None]) -> None:
        """The application goes on so much later."""
        self.world.after(seconds, action)

    def given_up(self) -> None:
        """This producer can't go on."""

    @property
    def patience(self) -> float:
        """Seconds of a call."""
        return 60.0 if self.patient else CALL

    def operate(self) -> None:
        """Make one transaction more."""
        self._wish(commits=self.rng.random() < 0.75)

    def _wish(self, *, commits: bool) -> None:
        self.wanted.append(Made(commits))
        if not self.busy and not self.over:
            self.busy = True
            self._next()

    def _next(self) -> None:
        if self.over or self.engine.ended is not None or not self.wanted:
            self.busy = False
        elif not self.ready:
            self.do("init", self.manager.initialize, self._initialised, lambda _: self._next())
        else:
            made = self.wanted.pop(0)
            self.made.append(made)
            self.do(
                "begin", lambda _: self.manager.begin(), lambda: self._fill(made), self._impossible
            )

    def _initialised(self) -> None:
        self.ready = True
        self._next()

    def _impossible(self, error: KafkaError) -> None:
        self.wrong.append(Violation(f"{self.world.now}: {self.name} can't begin: {error!r}"))

    def _fill(self, made: Made) -> None:
        self.do(
            "metadata",
            lambda d: self._know(d),
            lambda: self._write(made),
            lambda _: self._abort(made),
        )

    def _know(self, deadline: float) -> Flow[None]:
        yield from self.engine.topic(TOPIC, deadline)

    def _write(self, made: Made) -> None:
        snapshot = self.engine.metadata.snapshot
        topic = snapshot.topic(TOPIC) if snapshot is not None else None
        count = len(topic.partitions) if topic is not None else 0
        few = max(self.client.volume, 3)
        for _ in range(self.rng.randint(0, few) if self.probed_at is None else 1):
            partition = TopicPartition(TOPIC, self.rng.randrange(count)) if count else INPUT
            value = b"%s/%d" % (self.name.encode(), self.serial)
            size = estimate_record_size(None, value, ())
            now = int(self.world.wall_clock() * 1000)
            accumulator = self.engine.accumulator
            try:
                if accumulator.ended is not None:
                    break
                place = accumulator.append(partition, (None, value, (), now), size, self.world.now)
            except KafkaError:
                break
            if place is None:
                break
            self.serial += 1
            made.writes.append((partition, value))
        self.host.wake()
        if self.rng.random() < 0.5:
            self._offsets(made)
        else:
            self.world.after(self.rng.uniform(0.0, 0.2), lambda: self._end(made))

    def _offsets(self, made: Made) -> None:
        made.offset = len(self.made)
        self.do(
            "offsets",
            lambda d: self.manager.send_offsets(
                {INPUT: OffsetAndMetadata(len(self.made))}, ConsumerGroupMetadata(self.group), d
            ),
            lambda: self._end(made),
            lambda _: self._abort(made),
        )

    def _end(self, made: Made) -> None:
        if made.commits:
            self._commit(made)
        else:
            self._abort(made)

    def _commit(self, made: Made) -> None:
        def failed(error: KafkaError) -> None:
            if isinstance(error, AbortableTransactionError):
                self._abort(made)
            elif self.manager.open or self.manager.pending is not None:
                self._commit(made)  # it goes on: this waits for its end
            else:
                self._settled(made, Fate.UNKNOWN)

        made.ending = True
        self.do("commit", self.manager.commit, lambda: self._settled(made, Fate.COMMITTED), failed)

    def _abort(self, made: Made) -> None:
        def failed(error: KafkaError) -> None:
            if self.manager.open or self.manager.pending is not None:
                self._abort(made)
            else:
                self._settled(made, Fate.UNKNOWN)

        self.do("abort", self.manager.abort, lambda: self._settled(made, Fate.ABORTED), failed)

    def _settled(self, made: Made, fate: Fate) -> None:
        made.fate = fate
        self._next()

    # After the faults

    def served(self) -> None:
        """All transactions have ended."""
        if self.done and (self.busy or not self.ready):
            raise Violation(f"{self.world.now}: {self.name} waits for brokers that are only slow")

    def probe(self) -> None:
        """One transaction that commits."""
        self._wish(commits=True)

    def again(self) -> None:
        """It goes on by itself."""
        if not self.busy and not self.finished():
            self.probe()
            self.host.wake()

    def finished(self) -> bool:
        """The last one is committed and seen, or none can be any more."""
        if self.over:
            return True
        last = self.made[-1] if self.made else None
        done = not self.busy and last is not None and last.fate is Fate.COMMITTED
        seen = done and all(self._seen(self.cluster, made) for made in self.made)
        return seen and not self._wrong_offset(self.cluster)

    def _seen(self, cluster: SimulatedCluster, made: Made) -> bool:
        """Readers have what was committed: markers come a moment after the answer."""
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
        """Committed is seen once and in order, aborted isn't, and what nobody knows is whole."""
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
                raise Violation(f"{partition}: {self.name} is there twice: {mine}")
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
        """An election took the marker away."""
        return any(disturbed(cluster, *partition) for partition, _ in made.writes)

    def _wrong_offset(self, cluster: SimulatedCluster) -> str:
        """What is wrong with the group's offset, if something is."""
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
