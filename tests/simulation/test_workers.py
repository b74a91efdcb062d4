"""Workers through what groups and clusters do to them: nothing lost, order by key (R-WK-1), no
offset beyond a gap (R-WK-2), dead letters (R-WK-3). Their loop is what ships, in virtual time.
"""

from __future__ import annotations

import asyncio
import random
from collections import defaultdict
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from tests.volume import part

from odradek import (
    AsyncConsumer,
    AsyncProducer,
    AsyncWorkers,
    ConsumerRecord,
    TopicPartition,
)
from odradek.simulation.coordinators.committed_offsets import Committed, StoredGroupOffsets
from odradek.testing import KafkaSimulation

KEYS, LIVES = 12, 40.0
SETTINGS: dict[str, Any] = {
    "group.id": "g",
    "auto.offset.reset": "earliest",
    "enable.auto.commit": False,
    "session.timeout.ms": 6000,
    "heartbeat.interval.ms": 1000,
}


class Books:
    """Each record's work, wherever it was done; what must hold is looked at as it happens."""

    def __init__(self) -> None:
        self.simulation: KafkaSimulation
        self.done: set[tuple[str, int, int]] = set()
        """Partitions and offsets of what is finished."""
        self.values: set[tuple[bytes | None, bytes | None]] = set()
        """Keys and values of the same."""
        self.wrong: list[str] = []

    def look(self) -> None:
        """Dead letters are finished records, too."""
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
        missing = [at for at in range(offset) if (*tp, at) not in self.done]
        if missing:
            self.wrong.append(f"{tp}: {offset} was committed, and {missing} aren't finished")


class Member:
    """One process: a consumer, its workers, and what they work."""

    def __init__(self, servers: str, books: Books, chance: random.Random, **given: Any) -> None:
        protocol = given.pop("protocol", "classic")
        config = {**SETTINGS, "bootstrap.servers": servers, "group.protocol": protocol}
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
            self.books.wrong.append(f"{key!r} is in work twice in one process")
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

    def kill(self) -> None:
        """No goodbye, no commit; what it is at is never finished."""
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


def simulated(seed: int) -> Iterator[KafkaSimulation]:
    with KafkaSimulation(seed=seed) as made:
        made.create_topic("in", partitions=4)
        made.create_topic("dead", partitions=1)
        yield made
    made.verify()


@pytest.fixture
def simulation() -> Iterator[KafkaSimulation]:
    yield from simulated(1)


def troubles(simulation: KafkaSimulation, chance: random.Random) -> list[Callable[[], object]]:
    return [
        lambda: simulation.bounce(chance.randrange(1, 4), after=3.0),
        lambda: simulation.move(after=3.0),
        lambda: simulation.pause(1),
        simulation.heal,
        lambda: simulation.hand_over("in", chance.randrange(4)),
    ]


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
@pytest.mark.parametrize("seed", range(part(40)))
def test_random_members_finish_all_in_order_by_key(seed: int, protocol: str, books: Books) -> None:
    chance = random.Random(seed)
    with KafkaSimulation(seed=seed) as simulation:
        simulation.create_topic("in", partitions=4)
        simulation.create_topic("dead", partitions=1)
        books.simulation = simulation
        sent: dict[bytes, int] = defaultdict(int)

        def send() -> None:
            key = b"k%d" % chance.randrange(KEYS)
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
                    buffer_records=chance.choice([1, 8, 1000]),
                )

            members = [member()]
            end = simulation.every(0.15, send)
            while simulation.now < LIVES:
                await asyncio.sleep(chance.uniform(0.0, 6.0))
                verb = chance.random()
                if verb < 0.3 or not members:
                    members.append(member())
                elif verb < 0.5:
                    members.pop(chance.randrange(len(members))).kill()
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
