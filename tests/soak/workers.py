"""The programs of a soak: sources, members of chains, readers of a group, admin clients.

In: client settings, names, a history, a way of running (`ways`). Out: operations in the history;
the exception that ended a program (`failure`). A worker is a thread, or a task of an event loop.
When `stopping` is set, it completes its operations and ends.
"""

from __future__ import annotations

import random
import threading
import time
from collections import Counter
from collections.abc import Mapping
from concurrent.futures import Future
from contextlib import suppress
from typing import Any

from tests.soak.chain import Chain, Tally
from tests.soak.ways import AnyAdmin, AnyConsumer, AnyProducer, Delivery, Way, of, sent

from odradek.clients.admin.admin_arguments import NewTopic
from odradek.common.errors import KafkaError
from odradek.common.types import TopicPartition
from odradek.errors import TopicAlreadyExistsError, UnknownTopicOrPartitionError
from odradek.simulation.checkers.history import CallKind, CallResult, History, Operation

Config = Mapping[str, Any]
TICK = 0.02
CALLS_EVERY = 0.5
CALL_TIMEOUT = 20.0
LATE = 5.0
"""Seconds by which a busy machine may delay the end of a call of an admin client."""
PATIENCE = 300.0
"""Seconds after which a worker counts as hanging; several of its calls may time out first."""


def in_group(config: Config, group: str, protocol: str) -> dict[str, Any]:
    """Return the settings that members of chains and readers share."""
    return {
        **config,
        "group.id": group,
        "group.protocol": protocol,
        "auto.offset.reset": "earliest",
        "isolation.level": "read_committed",
        "max.poll.interval.ms": 60_000,
    }


class Worker:
    """One program in a thread or in an event loop."""

    def __init__(self, name: str, way: Way) -> None:
        self.name = way.prefix + name
        self.way = way
        self.failure: BaseException | None = None
        self.stopping = threading.Event()
        self.calm = threading.Event()
        """When set, the worker causes no faults of its own, and only processes what remains."""
        self._end: Future[None] | None = None

    def start(self) -> None:
        """Start the program."""
        self._end = self.way.start(self.name, self._run)

    def join(self, timeout: float = PATIENCE) -> None:
        """Wait for the program's end; a timeout is its failure."""
        try:
            if self._end is not None:
                self._end.result(timeout)
        except TimeoutError:
            self.failure = self.failure or TimeoutError(f"{self.name} doesn't end")

    async def _run(self) -> None:
        try:
            await self.work()
        except BaseException as error:  # the soak's report shows it
            self.failure = error

    async def work(self) -> None:
        """Run until `stopping` is set."""
        raise NotImplementedError

    def needs(self) -> int | None:
        """Return the broker that the worker depends on now: a leader or a coordinator."""
        raise NotImplementedError


class Source(Worker):
    """An idempotent producer that writes numbered records at a constant rate."""

    def __init__(
        self, config: Config, history: History, way: Way, topic: str, partitions: int, rate: float
    ) -> None:
        super().__init__("source", way)
        self.sent = self.acknowledged = 0
        self.throttled = 0
        """Number of answers with a throttle time."""
        self.longest_silence = 0.0
        """The longest time between two acknowledgements, in seconds."""
        self.errors: Counter[str] = Counter()
        self._config, self._history, self._rate = config, history, rate
        self._topic, self._partitions = topic, partitions
        self._open: list[tuple[Operation, Delivery]] = []
        self._settled_at = 0.0
        self._producer: AnyProducer | None = None

    async def work(self) -> None:
        producer = self._producer = self.way.producer(
            {**self._config, "linger.ms": 5, "delivery.timeout.ms": int(PATIENCE * 1000)}
        )
        begun = self._settled_at = time.monotonic()
        while not await self.way.pause(TICK, self.stopping):
            while self.sent < (time.monotonic() - begun) * self._rate and not self._behind():
                await self._send(producer)
            self._settle()
        with suppress(KafkaError):
            await of(producer.flush(PATIENCE))
        self._settle()
        self.throttled = int(producer.metrics().value("throttle-total"))
        await of(producer.close())
        if self._open:
            raise TimeoutError(f"{len(self._open)} records have no outcome")

    def needs(self) -> int | None:
        snapshot = None if self._producer is None else self._producer._engine.metadata.snapshot
        leader = None if snapshot is None else snapshot.leader(self._topic, 0)
        return None if leader is None else leader.id

    def _behind(self) -> bool:
        """Return whether too many records are unacknowledged to send more during an outage."""
        return len(self._open) > self._rate * 10

    async def _send(self, producer: AnyProducer) -> None:
        partition = TopicPartition(self._topic, self.sent % self._partitions)
        value = f"{self.name}/{self.sent}"
        self.sent += 1
        made = self._history.sent(self.name, partition, value)
        try:
            future = await sent(producer, self._topic, value, partition.partition)
        except KafkaError as error:
            self.errors[type(error).__name__] += 1
            return
        self._open.append((made, future))

    def _settle(self) -> None:
        left = []
        for made, future in self._open:
            if not future.done():
                left.append((made, future))
                continue
            try:
                offset = future.result().offset
            except KafkaError as error:  # the record may have been written
                self.errors[type(error).__name__] += 1
                continue
            made.acknowledged(offset)
            self.acknowledged += 1
            now = time.monotonic()
            self.longest_silence = max(self.longest_silence, now - self._settled_at)
            self._settled_at = now
        self._open = left


class Member(Worker):
    """A member of a chain that sometimes leaves its group, or replaces its producer."""

    def __init__(
        self,
        config: Config,
        history: History,
        way: Way,
        protocol: str,
        number: int,
        tally: Tally,
        *,
        source: str,
        disorder: float,
    ) -> None:
        super().__init__(f"chain-{protocol}-{number}", way)
        group = f"chain-{protocol}"
        settings = {**in_group(config, group, protocol), "enable.auto.commit": False}
        if protocol == "classic":
            settings["session.timeout.ms"] = 10_000

        writes = {
            **config,
            "transactional.id": self.name,
            "transaction.timeout.ms": 20_000,
            "max.block.ms": 30_000,
        }
        self.chain = Chain(
            self.name,
            group,
            history,
            lambda: way.consumer(self.name, settings),
            lambda: way.producer(writes),
            source=source,
            target=f"out-{protocol}",
            tally=tally,
        )
        self._disorder = disorder
        self._rng = random.Random(self.name)

    async def work(self) -> None:
        change = time.monotonic() + self._pause()
        while not self.stopping.is_set():
            due = time.monotonic() > change and not self.calm.is_set()
            leave = due and self._rng.random() < 0.5
            had_zombie = self.chain.zombie is not None
            regret = not leave and self._rng.random() < 0.02
            await self.chain.step(0.3, leave=leave and not had_zombie, regret=regret)
            if had_zombie:
                await self.chain.wake_zombie()
            if due:
                change = time.monotonic() + self._pause()
                if not leave:
                    await self.chain.leave_group()
                    await self.way.pause(self._rng.uniform(0.0, 3.0), self.stopping)
        await self.chain.close()

    def needs(self) -> int | None:
        producer = self.chain.producer
        manager = None if producer is None else producer._engine.transactions
        return None if manager is None else manager.requests.coordinator.broker

    def _pause(self) -> float:
        return self._rng.expovariate(1 / self._disorder)


class GroupReader(Worker):
    """A member of a group that only reads; it commits automatically, and joins and leaves."""

    def __init__(
        self,
        config: Config,
        history: History,
        way: Way,
        protocol: str,
        number: int,
        *,
        topic: str,
        disorder: float,
    ) -> None:
        super().__init__(f"reader-{protocol}-{number}", way)
        self.protocol = protocol
        self.seen: dict[TopicPartition, set[int]] = {}
        self.count = 0
        """Number of records read, including records that were read again."""
        self.lost = 0
        """How often the reader lost its partitions; uncommitted records are read again then."""
        self.had: list[TopicPartition] = []
        """The reader's assignment when `stopping` was set, before other members left."""
        self.errors: Counter[str] = Counter()
        self.joined = 0
        self._settings = in_group(config, f"readers-{protocol}", protocol)
        self._settings["auto.commit.interval.ms"] = 1000
        if protocol == "classic":
            self._settings["partition.assignment.strategy"] = "cooperative-sticky"
        self._history, self._topic, self._disorder = history, topic, disorder
        self._rng = random.Random(self.name)
        self._consumer: AnyConsumer | None = None

    def needs(self) -> int | None:
        group = None if self._consumer is None else self._consumer._engine.group
        return None if group is None else group.coordinator.broker

    async def work(self) -> None:
        while not self.stopping.is_set():
            end = time.monotonic() + self._rng.expovariate(1 / self._disorder)
            consumer = self._consumer = self.way.consumer(self.name, self._settings)
            self.joined += 1
            self._history.note(CallKind.SUBSCRIBE, self.name, self.joined)
            subscribed = consumer.subscribe(
                [self._topic],
                on_assigned=self._assigned,
                on_revoked=self._revoked,
                on_lost=self._lost,
            )
            await of(subscribed)
            while not self.stopping.is_set() and (time.monotonic() < end or self.calm.is_set()):
                await self._poll(consumer)
                assigned = consumer.assignment()
                if not self.stopping.is_set():
                    self.had = assigned
            with suppress(KafkaError):
                await of(consumer.close(10.0))
            await self.way.pause(self._rng.uniform(0.0, 3.0), self.stopping)

    async def _poll(self, consumer: AnyConsumer) -> None:
        poll = self._history.invoke(CallKind.POLL, self.name, self.joined)
        try:
            records = await of(consumer.poll(0.3))
        except KafkaError as error:
            poll.ended(CallResult.FAIL)
            self.errors[type(error).__name__] += 1
            return
        for record in records:
            partition = TopicPartition(record.topic, record.partition)
            poll.saw(partition, record.offset, record.value)
            self.count += 1
            self.seen.setdefault(partition, set()).add(record.offset)
        poll.ended()

    def _assigned(self, _: object, partitions: list[TopicPartition]) -> None:
        self._history.note(CallKind.ASSIGNED, self.name, self.joined, partitions)

    def _revoked(self, _: object, partitions: list[TopicPartition]) -> None:
        self._history.note(CallKind.REVOKED, self.name, self.joined, partitions)

    def _lost(self, consumer: object, partitions: list[TopicPartition]) -> None:
        self.lost += 1
        self._revoked(consumer, partitions)


class Administrator(Worker):
    """An admin client that makes one call after the other, each within its timeout."""

    def __init__(self, config: Config, way: Way, topics: list[str], groups: list[str]) -> None:
        super().__init__("admin", way)
        self.answered = 0
        self.late: list[str] = []
        """Calls that took longer than their timeout."""
        self.wrong: list[str] = []
        """Answers that lack existing topics."""
        self.errors: Counter[str] = Counter()
        self._config, self._topics, self._groups = config, topics, groups
        self._scratch = f"{self.name}-scratch"

    def needs(self) -> int | None:
        return None

    async def work(self) -> None:
        admin = self.way.admin({**self._config, "client.id": self.name})
        steps = (self._look, self._offsets, self._create, self._delete)
        turn = 0
        while not await self.way.pause(CALLS_EVERY, self.stopping):
            step = steps[turn % len(steps)]
            turn += 1
            begun = time.monotonic()
            try:
                await step(admin)
            except KafkaError as error:
                self.errors[type(error).__name__] += 1
            else:
                self.answered += 1
            if (took := time.monotonic() - begun) > CALL_TIMEOUT * 2 + LATE:
                self.late.append(f"{self.name}: {step.__name__} took {took:.1f} s")
        await of(admin.close())

    async def _look(self, admin: AnyAdmin) -> None:
        missing = {*self._topics} - {*(await of(admin.list_topics(CALL_TIMEOUT)))}
        if missing:
            self.wrong.append(f"{self.name}: list_topics lacks {sorted(missing)}")
        await of(admin.describe_consumer_groups(self._groups, CALL_TIMEOUT))

    async def _offsets(self, admin: AnyAdmin) -> None:
        places: dict[TopicPartition, Any] = {TopicPartition(t, 0): "LATEST" for t in self._topics}
        await of(admin.list_offsets(places, CALL_TIMEOUT))
        await of(admin.list_group_offsets(self._groups, CALL_TIMEOUT))

    async def _create(self, admin: AnyAdmin) -> None:
        with suppress(TopicAlreadyExistsError):  # an earlier attempt may have created it
            await of(admin.create_topics([NewTopic(self._scratch, 2)], CALL_TIMEOUT))

    async def _delete(self, admin: AnyAdmin) -> None:
        with suppress(UnknownTopicOrPartitionError):
            await of(admin.delete_topics([self._scratch], CALL_TIMEOUT))
