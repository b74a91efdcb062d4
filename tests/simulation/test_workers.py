"""Workers during faults of groups and clusters, in virtual time.

No record is lost, keys keep their order (R-WK-1), no offset is committed beyond a gap (R-WK-2),
failed records become dead letters (R-WK-3).
"""

from __future__ import annotations

import asyncio
import random
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from functools import partial
from typing import Any

import pytest
from tests.volume import WHOLE, pairs, part

from odradek import (
    ArgumentError,
    AsyncConsumer,
    AsyncProducer,
    AsyncWorkers,
    ClientClosedError,
    ConfigurationError,
    ConsumerRecord,
    KafkaTimeoutError,
    TopicPartition,
    UnknownTopicOrPartitionError,
)
from odradek.clients.workers.work_options import work_function
from odradek.errors import RegistryUnreachableError, WorkFailedError
from odradek.simulation.brokers.broker_faults import max_message_bytes
from odradek.simulation.coordinators.committed_offsets import Committed, StoredGroupOffsets
from odradek.testing import KafkaSimulation

KEYS, LIVES = 12, 40.0 if WHOLE else 25.0
SETTINGS: dict[str, Any] = {
    "group.id": "g",
    "auto.offset.reset": "earliest",
    "enable.auto.commit": False,
    "session.timeout.ms": 6000,
    "heartbeat.interval.ms": 1000,
}


class Books:
    """The processing of records by all members; violations are recorded as they happen."""

    def __init__(self) -> None:
        self.simulation: KafkaSimulation
        self.done: set[tuple[str, int, int]] = set()
        """Partitions and offsets of finished records."""
        self.values: set[tuple[bytes | None, bytes | None]] = set()
        """Keys and values of finished records."""
        self.committed: dict[int, int] = {}
        self.wrong: list[str] = []

    def look(self) -> None:
        """Add dead letters, which count as finished records."""
        for _, _, _, key, value, headers in self.simulation.records("dead", 0):
            told = dict(headers)
            topic, partition, at = (
                told[f"__connect.errors.{name}"].decode()
                for name in ("topic", "partition", "offset")
            )
            self.done.add((topic, int(partition), int(at)))
            self.values.add((key, value))

    def begins(self, record: ConsumerRecord) -> None:
        number = int(record.value or b"")
        self.look()
        before = [n for n in range(number) if (record.key, b"%d" % n) not in self.values]
        if before:
            self.wrong.append(f"{record.key!r}: {number} began before {before} had ended")

    def ends(self, record: ConsumerRecord) -> None:
        self.done.add((record.topic, record.partition, record.offset))
        self.values.add((record.key, record.value))

    def commits(self, tp: TopicPartition, offset: int) -> None:
        self.look()
        self.committed[tp.partition] = offset
        missing = [at for at in range(offset) if (*tp, at) not in self.done]
        if missing:
            self.wrong.append(f"{tp}: {offset} was committed, and {missing} aren't finished")


class Member:
    """One process: a consumer, its workers, and the records they process."""

    def __init__(self, servers: str, books: Books, chance: random.Random, **given: Any) -> None:
        protocol = given.pop("protocol", "classic")
        config = {**SETTINGS, "bootstrap.servers": servers, "group.protocol": protocol}
        config["auto.offset.reset"] = given.pop("reset", "earliest")
        if protocol == "consumer":
            del config["session.timeout.ms"], config["heartbeat.interval.ms"]
        self.books, self.chance, self.dead = books, chance, False
        self.consumer = AsyncConsumer(config)
        self.producer = AsyncProducer({"bootstrap.servers": servers})
        self.at: set[bytes] = set()
        letters = {"producer": self.producer, "dead_letter_topic": "dead"}
        given = {"concurrency": 8, "max_attempts": 4, "drain_timeout": 2.0, **letters, **given}
        self.workers = AsyncWorkers(self.consumer, self.work, **given)
        self.task = asyncio.create_task(self.run())

    async def run(self) -> None:
        async with self.producer, self.consumer:
            await self.workers.run("in")

    async def work(self, record: ConsumerRecord) -> None:
        key = record.key or b""
        self.books.begins(record)
        if key in self.at and not self.dead:
            self.books.wrong.append(f"{key!r} is processed twice at a time in one process")
        self.at.add(key)
        try:
            await asyncio.sleep(self.chance.choice([0.0, 0.01, 0.1, 0.1, 0.5, 4.0]))
            if self.dead:
                raise asyncio.CancelledError
            if self.chance.random() < 0.2:
                raise ValueError("not this time")
        finally:
            self.at.discard(key)
        self.books.ends(record)

    def has_begun(self) -> bool:
        """Return whether the consumer has positions in all partitions."""
        states = self.consumer._engine.subscription.partitions.values()
        return len(states) == 4 and all(s.position is not None for s in states)

    def kill(self) -> None:
        """Kill the process without LeaveGroup or commit; records in progress are never finished."""
        self.dead = True
        self.consumer._host.close(0.0)
        self.producer._host.close(0.0)
        self.task.cancel()

    async def stop(self) -> None:
        self.workers.stop()
        await asyncio.wait([self.task])
        if not self.dead:
            self.task.result()


@pytest.fixture
def books(monkeypatch: pytest.MonkeyPatch) -> Books:
    made, commit = Books(), StoredGroupOffsets.commit

    def checked(self: StoredGroupOffsets, partition: TopicPartition, committed: Committed) -> None:
        made.commits(partition, committed.offset)
        commit(self, partition, committed)

    monkeypatch.setattr(StoredGroupOffsets, "commit", checked)
    return made


@pytest.fixture
def simulation(books: Books) -> Iterator[KafkaSimulation]:
    with KafkaSimulation(seed=1) as made:
        made.create_topic("in", partitions=4)
        made.create_topic("dead", partitions=1)
        books.simulation = made
        yield made
    made.verify()


def troubles(simulation: KafkaSimulation, chance: random.Random) -> list[Callable[[], object]]:
    return [
        lambda: simulation.bounce(chance.randrange(1, 4), after=3.0),
        lambda: simulation.move(after=3.0),
        lambda: simulation.pause(1),
        simulation.heal,
        lambda: simulation.hand_over("in", chance.randrange(4)),
    ]


@pytest.mark.parametrize(("seed", "protocol"), pairs(range(part(24, 2)), ["classic", "consumer"]))
def test_random_members_finish_all_records_in_order_by_key(
    seed: int, protocol: str, books: Books
) -> None:
    """With `latest`, some partitions are empty at first; any owner must read them (R-GR-6)."""
    chance = random.Random(seed)
    reset = "latest" if seed % 2 else "earliest"
    with KafkaSimulation(seed=seed) as simulation:
        simulation.create_topic("in", partitions=4)
        simulation.create_topic("dead", partitions=1)
        books.simulation = simulation
        sent: dict[bytes, int] = defaultdict(int)

        def send() -> None:
            busy = KEYS if reset == "earliest" else 1 + int(KEYS * simulation.now / LIVES)
            key = b"k%d" % chance.randrange(min(KEYS, busy))
            simulation.send("in", b"%d" % sent[key], key=key)
            sent[key] += 1

        def total() -> set[tuple[str, int, int]]:
            numbers = {p: len(simulation.records("in", p)) for p in range(4)}
            return {("in", p, at) for p, n in numbers.items() for at in range(n)}

        async def main() -> None:
            def member() -> Member:
                return Member(
                    simulation.bootstrap_servers,
                    books,
                    chance,
                    protocol=protocol,
                    reset=reset,
                    buffer_records=chance.choice([1, 8, 1000]),
                )

            members = [member()]
            while reset == "latest" and not members[0].has_begun():
                await asyncio.sleep(0.1)
            await asyncio.sleep(0.1)
            end = simulation.every(0.15, send)
            while simulation.now < LIVES:
                await asyncio.sleep(chance.uniform(0.0, 6.0))
                verb = chance.random()
                if verb < 0.3 or not members:
                    members.append(member())
                elif verb < 0.5:
                    members.pop(chance.randrange(len(members))).kill()
                elif verb < 0.55:  # the member resumes without its partitions
                    host: Any = chance.choice(members).consumer._host
                    host.freeze()
                    simulation.after(chance.uniform(2.0, 15.0), partial(host.freeze, False))
                elif verb < 0.6:
                    await members.pop(chance.randrange(len(members))).stop()
                elif verb < 0.9:
                    chance.choice(troubles(simulation, chance))()
            end()
            simulation.heal()
            members.append(member())
            await asyncio.sleep(10.0)
            until = simulation.now + 300.0
            while simulation.now < until and not total() <= books.done:
                await asyncio.sleep(1.0)
                books.look()
            for one in members:
                await one.stop()

        simulation.run(main())
        books.look()
        assert books.wrong == []
        assert total() <= books.done
        assert len(total()) == sum(sent.values())
    simulation.verify()


Beside = Callable[[AsyncWorkers, asyncio.Task[None]], Any]


def one_run(
    simulation: KafkaSimulation,
    work: Callable[[ConsumerRecord], Any],
    timeout: float | None = 3.0,
    consumer: dict[str, Any] | None = None,
    beside: Beside | None = None,
    **given: Any,
) -> AsyncWorkers:
    """Run workers while a test does something; raise the error of the run."""
    servers = {"bootstrap.servers": simulation.bootstrap_servers}
    letters = {**servers, **given.pop("letters", {})}

    async def main() -> AsyncWorkers:
        options: dict[str, Any] = {**SETTINGS, **servers, **(consumer or {})}
        deserializer = options.pop("value_deserializer", None)
        reading = AsyncConsumer(options, value_deserializer=deserializer)
        async with AsyncProducer(letters) as producer, reading:
            if "dead_letter_topic" in given:
                given["producer"] = producer
            workers = AsyncWorkers(reading, work, **given)
            task = asyncio.create_task(workers.run("in", timeout=timeout))
            if beside is not None:
                await beside(workers, task)
            await task
            return workers

    return simulation.run(main())


def sends(simulation: KafkaSimulation, count: int, **fields: Any) -> None:
    simulation.produce("in", [b"%d" % n for n in range(count)], **{"partition": 0, **fields})


def test_undecodable_records_become_dead_letters_unchanged(
    simulation: KafkaSimulation,
) -> None:
    simulation.produce("in", [b"1", b"\xff", None, b"4"], partition=0, key=b"k")
    read: list[Any] = []

    async def work(record: ConsumerRecord) -> None:
        read.append(record.value)

    deserializer = {"value_deserializer": lambda value: int(value.decode())}
    done = one_run(simulation, work, consumer=deserializer, dead_letter_topic="dead")
    assert read == [1, None, 4]
    [(_, _, _, key, value, headers)] = simulation.records("dead", 0)
    told = dict(headers)
    assert (key, value) == (b"k", b"\xff")
    assert told["__connect.errors.stage"] == b"VALUE_CONVERTER"
    assert told["__connect.errors.exception.class.name"] == b"odradek.RecordDeserializationError"
    assert told["__connect.errors.exception.message"].startswith(b"UnicodeDecodeError: 'utf-8'")
    assert told["__connect.errors.class.name"] == b"odradek.AsyncWorkers"
    assert (done.progress().dead, done.progress().retried) == (1, 0)


def test_records_do_not_become_dead_letters_while_the_registry_is_unavailable(
    simulation: KafkaSimulation, books: Books
) -> None:
    sends(simulation, 3)

    def deserializer(value: bytes) -> bytes:
        if value == b"1":
            raise RegistryUnreachableError("nobody answers")
        return value

    async def work(record: ConsumerRecord) -> None:
        books.ends(record)

    with pytest.raises(WorkFailedError, match="The record isn't the cause") as caught:
        one_run(
            simulation,
            work,
            consumer={"value_deserializer": deserializer},
            dead_letter_topic="dead",
            max_attempts=3,
        )
    assert (caught.value.offset, caught.value.attempts) == (1, 3)
    assert (simulation.records("dead", 0), books.committed, books.wrong) == ([], {0: 1}, [])


def test_workers_without_a_dead_letter_topic_stop_at_the_record(
    simulation: KafkaSimulation, books: Books
) -> None:
    sends(simulation, 6, key=b"k")
    broken = True

    async def work(record: ConsumerRecord) -> None:
        if broken and record.value == b"3":
            raise ValueError("no")
        books.ends(record)

    with pytest.raises(WorkFailedError) as caught:
        one_run(simulation, work, max_attempts=2)
    assert isinstance(caught.value.__cause__, ValueError)
    assert books.committed == {0: 3}
    broken = False
    assert one_run(simulation, work).progress().finished == 3
    assert (books.committed, books.wrong) == ({0: 6}, [])


LARGE = bytes(900)
"""With the headers about a failure, the record exceeds `max.request.size`."""


@pytest.mark.parametrize(
    ("fields", "left"),
    [
        ({"value": LARGE, "key": b"k", "headers": [("a", b"b")]}, "value"),
        ({"value": b"v", "key": b"k", "headers": [("a", LARGE)]}, "headers"),
        ({"value": LARGE, "key": LARGE[1:], "headers": [("a", b"b")]}, "value,key"),
        ({"value": LARGE, "key": LARGE[1:], "headers": [("a", LARGE[9:])]}, "value,key,headers"),
    ],
    ids=["value", "headers", "value and key", "all"],
)
@pytest.mark.parametrize("who", ["producer", "topic"])
def test_a_dead_letter_that_is_too_large_omits_and_reports_its_large_parts(
    simulation: KafkaSimulation, books: Books, fields: dict[str, Any], left: str, who: str
) -> None:
    value, producer = fields.pop("value"), {"max.request.size": 1000}
    simulation.produce("in", [value], partition=0, **fields)
    fields["value"] = value
    if who == "topic":
        producer = {}
        max_message_bytes(simulation.cluster, "dead", 1000)

    async def work(record: ConsumerRecord) -> None:
        raise ValueError("no")

    one_run(simulation, work, max_attempts=1, dead_letter_topic="dead", letters=producer)
    [(_, _, _, key, value, headers)] = simulation.records("dead", 0)
    told = dict(headers)
    assert told["odradek.errors.left.out"] == left.encode()
    assert told["__connect.errors.offset"] == b"0"
    assert told["__connect.errors.exception.message"] == b"no"
    assert (key is None) is ("key" in left)
    assert (value is None) is ("value" in left)
    assert ("a" in told) is ("headers" not in left)
    books.look()
    assert (books.committed, books.wrong) == ({0: 1}, [])


def test_a_dead_letter_that_cannot_be_written_is_not_skipped(
    simulation: KafkaSimulation, books: Books
) -> None:
    sends(simulation, 3)

    async def work(record: ConsumerRecord) -> None:
        if record.offset == 1:
            raise ValueError("no")
        books.ends(record)

    with pytest.raises(
        WorkFailedError, match=r"no\. Then writing it to 'dead' failed: RecordTooLargeError"
    ):
        one_run(
            simulation,
            work,
            max_attempts=1,
            dead_letter_topic="dead",
            letters={"max.request.size": 100},
        )
    assert (books.committed, books.wrong) == ({0: 1}, [])


def test_a_missing_dead_letter_topic_raises_before_any_record_is_read(
    simulation: KafkaSimulation, books: Books
) -> None:
    sends(simulation, 1)

    async def work(record: ConsumerRecord) -> None:
        raise AssertionError

    before = simulation.now
    text = r"dead_letter_topic deed doesn't exist \(did you mean dead\?\)\. Create it with: odradek"
    with pytest.raises(UnknownTopicOrPartitionError, match=text):
        one_run(simulation, work, dead_letter_topic="deed")
    assert 9.5 < simulation.now - before < 11.0
    assert books.committed == {}
    with pytest.raises(UnknownTopicOrPartitionError):
        one_run(simulation, work, dead_letter_topic="deed", letters={"max.block.ms": 2000})
    assert simulation.now - before < 14.0


def test_a_dead_letter_topic_may_be_created_during_the_check(
    simulation: KafkaSimulation, books: Books
) -> None:
    sends(simulation, 1)
    simulation.after(4.0, lambda: simulation.cluster.create_topic("late", 1))

    async def work(record: ConsumerRecord) -> None:
        books.ends(record)

    assert one_run(simulation, work, dead_letter_topic="late").progress().finished == 1


def test_brokers_that_create_topics_create_the_dead_letter_topic(
    simulation: KafkaSimulation, books: Books
) -> None:
    simulation.cluster.auto_create = True
    sends(simulation, 1)

    async def work(record: ConsumerRecord) -> None:
        books.ends(record)

    one_run(simulation, work, dead_letter_topic="made")
    assert "made" in simulation.cluster.topics


def test_workers_wait_for_an_unreachable_cluster_of_dead_letters(
    simulation: KafkaSimulation, books: Books
) -> None:
    sends(simulation, 1)
    other = simulation.new_cluster("other", brokers=1)
    for broker in list(other.brokers):
        other.crash(broker)

    async def work(record: ConsumerRecord) -> None:
        books.ends(record)

    letters = {"bootstrap.servers": other.bootstrap_servers}
    done = one_run(simulation, work, dead_letter_topic="dead", letters=letters)
    assert done.progress().finished == 1


def test_a_stop_ends_the_check_for_a_dead_letter_topic(simulation: KafkaSimulation) -> None:
    async def work(record: ConsumerRecord) -> None: ...

    async def end(workers: AsyncWorkers, task: asyncio.Task[None]) -> None:
        await asyncio.sleep(2.5)
        before = simulation.now
        workers.stop()
        await task
        assert simulation.now <= before + 1.5

    one_run(simulation, work, None, beside=end, dead_letter_topic="deed")


def test_a_rebalance_waits_for_records_in_progress(
    simulation: KafkaSimulation, books: Books
) -> None:
    for partition in range(4):
        sends(simulation, 8, partition=partition)
    times: Counter[tuple[int, int]] = Counter()
    running: list[AsyncWorkers] = []

    async def work(record: ConsumerRecord) -> None:
        times[record.partition, record.offset] += 1
        await asyncio.sleep(3.0)
        books.ends(record)

    async def member() -> None:
        config = {**SETTINGS, "bootstrap.servers": simulation.bootstrap_servers}
        async with AsyncConsumer(config) as consumer:
            running.append(AsyncWorkers(consumer, work, concurrency=4, commit_interval=1000.0))
            await running[-1].run("in", timeout=10.0)

    async def main() -> None:
        first = asyncio.create_task(member())
        await asyncio.sleep(8.0)
        await asyncio.gather(first, member())

    simulation.run(main())
    assert set(times.values()) == {1}
    assert len(times) == 32
    assert all(workers.progress().finished for workers in running)
    assert (books.committed, books.wrong) == (dict.fromkeys(range(4), 8), [])


def test_slow_processing_keeps_the_membership_and_needs_little_memory(
    simulation: KafkaSimulation, books: Books
) -> None:
    sends(simulation, 40)
    most = 0

    async def work(record: ConsumerRecord) -> None:
        await asyncio.sleep(30.0)
        books.ends(record)

    async def watch(workers: AsyncWorkers, task: asyncio.Task[None]) -> None:
        nonlocal most
        while not task.done():
            progress = workers.progress()
            most = max(most, progress.waiting + progress.in_work)
            await asyncio.sleep(1.0)

    done = one_run(
        simulation,
        work,
        consumer={"max.poll.interval.ms": 10_000, "max.poll.records": 5},
        beside=watch,
        concurrency=4,
        buffer_records=8 * 4,  # each of four partitions has a share
        drain_timeout=5.0,
    )
    assert done.progress().finished == 40  # no record is processed twice
    assert (books.committed, books.wrong) == ({0: 40}, [])
    assert 8 <= most <= 8 + 5


def test_large_records_of_many_partitions_take_no_more_than_the_buffer_and_a_poll(
    simulation: KafkaSimulation, books: Books
) -> None:
    for partition in range(4):
        simulation.produce("in", [bytes(10_000)] * 6, partition=partition)
    most = 0

    async def work(record: ConsumerRecord) -> None:
        nonlocal most
        most = max(most, running[0].progress().buffered_bytes)
        await asyncio.sleep(1.0)
        books.ends(record)

    async def watch(workers: AsyncWorkers, task: asyncio.Task[None]) -> None:
        running.append(workers)

    running: list[AsyncWorkers] = []
    few = {"max.poll.records": 2}
    one_run(simulation, work, consumer=few, beside=watch, concurrency=2, buffer_bytes=25_000)
    assert (books.committed, books.wrong) == (dict.fromkeys(range(4), 6), [])
    assert 25_000 <= most <= 25_000 + 2 * 10_300


@pytest.mark.parametrize("how", ["stop", "cancel"])
def test_the_end_of_a_run_finishes_and_commits_records_in_progress(
    simulation: KafkaSimulation, books: Books, how: str
) -> None:
    sends(simulation, 20)

    async def work(record: ConsumerRecord) -> None:
        await asyncio.sleep(2.0)
        books.ends(record)

    async def end(workers: AsyncWorkers, task: asyncio.Task[None]) -> None:
        while not workers.progress().finished:
            await asyncio.sleep(0.1)
        workers.stop() if how == "stop" else task.cancel()
        await asyncio.wait([task])

    with pytest.raises(asyncio.CancelledError) if how == "cancel" else nullcontext():
        one_run(simulation, work, None, beside=end, concurrency=5)
    assert (books.committed, len(books.done), books.wrong) == ({0: 10}, 10, [])
    assert one_run(simulation, work).progress().finished == 10


def test_a_consumer_that_another_task_closes_ends_the_run_immediately(
    simulation: KafkaSimulation, books: Books
) -> None:
    """close() doesn't wait for records in progress, but the run does."""
    sends(simulation, 3)

    async def work(record: ConsumerRecord) -> None:
        await asyncio.sleep(1.0)

    async def end(workers: AsyncWorkers, task: asyncio.Task[None]) -> None:
        while not workers.progress().in_work:
            await asyncio.sleep(0.1)
        before = simulation.now
        await workers._run._consumer.close()
        assert simulation.now < before + 0.5

    with pytest.raises(ClientClosedError, match="this AsyncConsumer is closed"):
        one_run(simulation, work, None, beside=end)
    assert books.committed == {0: 0}


def test_processing_that_hangs_is_cancelled_at_the_end_of_the_run_and_repeated(
    simulation: KafkaSimulation, books: Books
) -> None:
    sends(simulation, 3)
    ended: list[bytes | None] = []

    async def work(record: ConsumerRecord) -> None:
        try:
            await asyncio.sleep(1000.0 if record.value == b"1" else 0.0)
            books.ends(record)
        except asyncio.CancelledError:
            ended.append(record.value)
            raise

    async def end(workers: AsyncWorkers, task: asyncio.Task[None]) -> None:
        await asyncio.sleep(100.0)
        before = simulation.now
        workers.stop()
        await task
        assert simulation.now - before < 4.5

    one_run(simulation, work, None, beside=end, drain_timeout=4.0)
    assert (ended, books.committed, books.wrong) == ([b"1"], {0: 1}, [])


def test_workers_that_start_at_the_end_of_a_topic_lose_nothing_in_a_crash(
    simulation: KafkaSimulation, books: Books
) -> None:
    sends(simulation, 5)
    books.done |= {("in", 0, at) for at in range(5)}  # written before the consumer's start
    begun = False

    async def work(record: ConsumerRecord) -> None:
        nonlocal begun
        begun = True
        await asyncio.sleep(1000.0)

    async def die(workers: AsyncWorkers, task: asyncio.Task[None]) -> None:
        await asyncio.sleep(5.0)
        simulation.send("in", b"new", partition=0)
        while not begun:
            await asyncio.sleep(0.01)
        await asyncio.sleep(0.2)
        for host in simulation.world.hosts.values():
            if host.name.startswith("consumer"):
                host.close(0.0)
        task.cancel()

    latest = {"auto.offset.reset": "latest"}
    with pytest.raises(asyncio.CancelledError):
        one_run(simulation, work, None, consumer=latest, beside=die, drain_timeout=1.0)
    assert (books.committed, books.wrong) == ({0: 5, 1: 0, 2: 0, 3: 0}, [])


@pytest.mark.parametrize("how", ["idle", "stop"])
def test_a_run_ends_in_time_if_every_broker_is_dead(
    simulation: KafkaSimulation, books: Books, how: str
) -> None:
    sends(simulation, 5)

    async def work(record: ConsumerRecord) -> None:
        for broker in simulation.brokers:
            simulation.crash(broker)
        books.ends(record)

    async def end(workers: AsyncWorkers, task: asyncio.Task[None]) -> None:
        while not workers.progress().finished:
            await asyncio.sleep(0.1)
        before = simulation.now
        if how == "stop":
            workers.stop()
        await asyncio.wait([task])
        assert simulation.now - before < 20.5 + (3.0 if how == "idle" else 0.0)

    with pytest.raises(KafkaTimeoutError):  # the coordinator doesn't know the finished records
        one_run(simulation, work, beside=end)
    assert books.wrong == []


def test_the_offset_after_a_transaction_marker_is_committed_once_all_records_are_finished(
    simulation: KafkaSimulation, books: Books
) -> None:
    producer = simulation.producer(transactional_id="tx")
    producer.init_transactions()
    with producer.transaction():
        producer.send("in", b"1", partition=0)

    async def work(record: ConsumerRecord) -> None:
        books.ends(record)
        books.done.add(("in", 0, record.offset + 1))  # the transaction marker

    one_run(simulation, work)
    assert (books.committed, books.wrong) == ({0: 2}, [])


@pytest.mark.parametrize("raised", [SystemExit, asyncio.CancelledError])
def test_errors_unrelated_to_the_record_do_not_count_as_attempts(
    simulation: KafkaSimulation, books: Books, raised: type[BaseException]
) -> None:
    sends(simulation, 1)
    times = 0

    async def work(record: ConsumerRecord) -> None:
        nonlocal times
        times += 1
        if times == 1:
            raise raised
        books.ends(record)

    if raised is SystemExit:
        with pytest.raises(SystemExit):
            one_run(simulation, work, max_attempts=2, dead_letter_topic="dead")
    else:  # a task's own error is retried
        one_run(simulation, work, max_attempts=2, dead_letter_topic="dead")
    assert simulation.records("dead", 0) == []
    assert books.committed == ({0: 1} if raised is asyncio.CancelledError else {0: 0})


def test_invalid_arguments_of_workers_are_refused(simulation: KafkaSimulation) -> None:
    async def work(record: ConsumerRecord) -> None: ...

    with pytest.raises(ConfigurationError, match="dead_letter_topic 'in' is also"):
        one_run(simulation, work, dead_letter_topic="in")
    with pytest.raises(ConfigurationError, match=r"enable\.auto\.commit=false"):
        one_run(simulation, work, consumer={"enable.auto.commit": True})
    with pytest.raises(ConfigurationError, match=r"drain_timeout must be at most 150 s"):
        one_run(simulation, work, drain_timeout=200.0)
    with pytest.raises(ArgumentError, match="work must be an async function"):
        one_run(simulation, lambda record: None)
    with pytest.raises(ArgumentError, match="for an async function use AsyncWorkers"):
        work_function(work, awaited=False)
