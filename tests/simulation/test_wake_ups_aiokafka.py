"""R-HO-6 with aiokafka's API: tasks wait for records, and other tasks make them available."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Coroutine
from types import SimpleNamespace
from typing import Any, NamedTuple

import pytest
from tests.volume import some

from odradek.compat.aiokafka import AIOKafkaConsumer, TopicPartition
from odradek.compat.aiokafka.consumer import consumer, rebalance_task, subscriptions, wrapped_state
from odradek.compat.aiokafka.errors import OffsetOutOfRangeError
from odradek.testing import KafkaSimulation

P0, P1, P2 = (TopicPartition("t", number) for number in range(3))
RECORDS = 10
"""Initial records in each of the three partitions."""
HELD, WAIT = 20.0, 0.5
"""Default seconds for which brokers hold a fetch without records.

A held fetch doesn't contain partitions that were read to their end later, so their new records
may wait for the next fetch.
"""
TIMEOUT = 8.0
SOON, JOINED = 0.3, 4.0
"""Seconds from an enabling call to the records; with a join of a group."""

Program = Coroutine[Any, Any, Any]
Call = Callable[["Bench"], Program]


class Bench:
    """A consumer in a simulation."""

    def __init__(self, simulation: KafkaSimulation, **settings: Any) -> None:
        self.simulation = simulation
        servers = simulation.bootstrap_servers
        given: dict[str, Any] = {"auto_offset_reset": "earliest"}
        given |= {"fetch_max_wait_ms": int(1000 * HELD), **settings}
        self.consumer = AIOKafkaConsumer(bootstrap_servers=servers, **given)

    async def drained(self) -> None:
        """Read to the end of the assignment: brokers hold the next fetch."""
        while await self.consumer.getmany(timeout_ms=500):
            pass

    async def took(self, waiting: Call, act: Call) -> tuple[Any, float]:
        """Return the result of `waiting`, and the seconds from `act` to it."""

        async def later() -> None:
            await asyncio.sleep(1.0)
            await act(self)

        at = self.simulation.now + 1.0
        enabling = asyncio.create_task(later())
        async with asyncio.timeout(TIMEOUT):
            found = await waiting(self)
        await enabling
        return found, self.simulation.now - at


@pytest.fixture
def simulation(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Create a cluster in virtual time, which the package's own clocks use as well."""
    with KafkaSimulation(brokers=1) as made:
        made.create_topic("t", partitions=3)
        for partition in range(3):
            made.produce("t", [b"%d" % n for n in range(RECORDS)], partition=partition)
        monkeypatch.setattr(wrapped_state, "time", SimpleNamespace(time=lambda: made.now))
        for module in (rebalance_task, consumer, wrapped_state, subscriptions):
            monkeypatch.setattr(module, "monotonic", lambda: made.now)
        yield made


# Calls that wait


def first(found: dict[Any, list[Any]]) -> Any:
    return next(((r.partition, r.offset) for run in found.values() for r in run), None)


async def getone(bench: Bench) -> Any:
    record = await bench.consumer.getone()
    return record.partition, record.offset


async def getone_of_two(bench: Bench) -> Any:
    record = await bench.consumer.getone(P0, P1)
    return record.partition, record.offset


async def getmany(bench: Bench) -> Any:
    return first(await bench.consumer.getmany(timeout_ms=1000 * TIMEOUT))


async def getmany_of_two(bench: Bench) -> Any:
    return first(await bench.consumer.getmany(P0, P1, timeout_ms=1000 * TIMEOUT))


async def iteration(bench: Bench) -> Any:
    record = await anext(bench.consumer)
    return record.partition, record.offset


WAITING = (getone, getone_of_two, getmany, getmany_of_two, iteration)


# Calls that make records available


class Enabling(NamedTuple):
    """A call that makes records available."""

    name: str
    begin: Call
    call: Call
    first: tuple[int, int]
    grouped: bool = False
    within: float = SOON


async def at_the_end(bench: Bench) -> None:
    bench.consumer.assign([P0])
    await bench.consumer.start()
    await bench.drained()


async def paused(bench: Bench) -> None:
    bench.consumer.assign([P0])
    await bench.consumer.start()
    bench.consumer.pause(P0)


async def paused_amid(bench: Bench) -> None:
    bench.consumer.assign([P0])
    await bench.consumer.start()
    assert len(await bench.consumer.getmany(timeout_ms=5000, max_records=4)) == 1
    bench.consumer.pause(P0)


async def committed(bench: Bench) -> None:
    await at_the_end(bench)
    await bench.consumer.commit({P0: 6})


async def subscribed_paused(bench: Bench) -> None:
    bench.consumer.subscribe(["t"])
    await bench.consumer.start()
    bench.consumer.pause(*bench.consumer.assignment())


async def resume(bench: Bench) -> None:
    bench.consumer.resume(P0)


async def seek(bench: Bench) -> None:
    bench.consumer.seek(P0, 3)


async def seek_to_beginning(bench: Bench) -> None:
    await bench.consumer.seek_to_beginning(P0)


async def seek_to_end(bench: Bench) -> None:
    await bench.consumer.seek_to_end(P0)
    bench.simulation.send("t", b"new", partition=0)


async def seek_to_committed(bench: Bench) -> None:
    await bench.consumer.seek_to_committed(P0)


async def assign(bench: Bench) -> None:
    bench.consumer.assign([P1])


async def subscribe(bench: Bench) -> None:
    bench.consumer.unsubscribe()
    bench.consumer.subscribe(["t"])


ENABLING = (
    Enabling("resume", paused, resume, (0, 0)),
    Enabling("resume of what was fetched", paused_amid, resume, (0, 4)),
    Enabling("seek", at_the_end, seek, (0, 3)),
    Enabling("seek_to_beginning", at_the_end, seek_to_beginning, (0, 0)),
    Enabling("seek_to_end", at_the_end, seek_to_end, (0, RECORDS)),
    Enabling("assign", at_the_end, assign, (1, 0)),
    Enabling("assign while all is paused", paused, assign, (1, 0)),
    Enabling("seek_to_committed", committed, seek_to_committed, (0, 6), grouped=True),
    Enabling("subscribe", paused, subscribe, (0, 0), grouped=True, within=JOINED),
    Enabling("resume of a member", subscribed_paused, resume, (0, 0), grouped=True),
)


@pytest.mark.parametrize("enabling", ENABLING, ids=lambda e: e.name.replace(" ", "-"))
@pytest.mark.parametrize("waiting", WAITING, ids=lambda w: w.__name__)
def test_a_call_that_makes_records_available_wakes_the_reader(
    simulation: KafkaSimulation, waiting: Call, enabling: Enabling
) -> None:
    async def program() -> None:
        grouped = {"group_id": "g", "enable_auto_commit": False} if enabling.grouped else {}
        bench = Bench(simulation, **grouped)
        await enabling.begin(bench)
        found, took = await bench.took(waiting, enabling.call)
        assert found == enabling.first
        assert took < enabling.within
        await bench.consumer.stop()

    simulation.run(program())


# One task for each partition


async def records_of(bench: Bench, how: str, partition: TopicPartition, count: int) -> list[int]:
    """Return the offsets that a task of this partition gets."""
    offsets: list[int] = []
    while len(offsets) < count:
        if how == "getone":
            offsets.append((await bench.consumer.getone(partition)).offset)
        else:
            found = await bench.consumer.getmany(partition, timeout_ms=3000, max_records=3)
            assert found.keys() <= {partition}
            offsets += [record.offset for run in found.values() for record in run]
    return offsets


@pytest.mark.parametrize("how", ["getone", "getmany"])
@pytest.mark.parametrize("grouped", [False, True])
def test_a_task_does_not_wait_for_the_task_of_an_idle_partition(
    simulation: KafkaSimulation, how: str, grouped: bool
) -> None:
    async def program() -> None:
        group = {"group_id": "g"} if grouped else {}
        bench = Bench(simulation, fetch_max_wait_ms=int(1000 * WAIT), **group)
        if grouped:
            bench.consumer.subscribe(["t"])
        else:
            bench.consumer.assign([P0, P1, P2])
        await bench.consumer.start()
        await records_of(bench, how, P0, RECORDS)
        silent = asyncio.create_task(records_of(bench, how, P0, 1))
        await asyncio.sleep(1.0)
        begin = simulation.now
        tasks = [records_of(bench, how, p, RECORDS) for p in (P1, P2)]
        assert await asyncio.gather(*tasks) == [list(range(RECORDS))] * 2
        assert simulation.now - begin < SOON
        for partition in (P1, P2, P0):  # all three tasks wait now
            reader = silent
            if partition is not P0:
                reader = asyncio.create_task(records_of(bench, how, partition, 1))
                await asyncio.sleep(0.5)
            begin = simulation.now
            simulation.send("t", b"more", partition=partition.partition)
            assert await reader == [RECORDS]
            assert simulation.now - begin < WAIT + SOON
        await bench.consumer.stop()

    simulation.run(program())


def test_partitions_without_a_waiting_task_leave_memory_for_other_partitions(
    simulation: KafkaSimulation,
) -> None:
    """P0 has more records than the buffer can hold, and its task is busy."""
    simulation.produce("t", [bytes(10_000)] * 100, partition=0)

    async def program() -> None:
        bench = Bench(simulation, fetch_max_bytes=100_000, max_partition_fetch_bytes=50_000)
        bench.consumer.assign([P0, P1])
        await bench.consumer.start()
        await records_of(bench, "getone", P1, RECORDS)
        await asyncio.sleep(2.0)  # no task waits, so the buffer is filled with P0
        for n in range(3):
            reader = asyncio.create_task(records_of(bench, "getone", P1, 1))
            await asyncio.sleep(0.5)
            begin = simulation.now
            simulation.send("t", b"more", partition=1)
            assert await reader == [RECORDS + n]
            assert simulation.now - begin < SOON
            assert await records_of(bench, "getmany", P0, 30) is not None
        await bench.consumer.stop()

    simulation.run(program())


def test_another_task_continues_after_a_wait_is_cancelled(simulation: KafkaSimulation) -> None:
    """The cancelled task was polling the wrapped consumer; another waiting task must poll now."""

    async def program() -> None:
        bench = Bench(simulation)
        bench.consumer.assign([P0, P1])
        await bench.consumer.start()
        await bench.drained()
        readers = [
            asyncio.create_task(records_of(bench, "getone", partition, 1))
            for partition in (P0, P1, P1)
        ]
        await asyncio.sleep(0.5)
        readers[0].cancel()
        readers[1].cancel()
        await asyncio.sleep(0.5)
        begin = simulation.now
        simulation.send("t", b"more", partition=1)
        assert await readers[2] == [RECORDS]
        assert simulation.now - begin < SOON
        simulation.send("t", b"more", partition=0)
        assert (await bench.consumer.getone(P0)).offset == RECORDS
        await bench.consumer.stop()

    simulation.run(program())


def test_an_error_is_raised_in_the_task_of_its_partition(simulation: KafkaSimulation) -> None:
    async def program() -> None:
        bench = Bench(simulation, auto_offset_reset="none")
        bench.consumer.assign([P0, P1])
        await bench.consumer.start()
        bench.consumer.seek(P0, 0)
        bench.consumer.seek(P1, 1000)
        assert await records_of(bench, "getone", P0, RECORDS) == list(range(RECORDS))
        quiet = asyncio.create_task(bench.consumer.getone(P0))
        await asyncio.sleep(2.0)
        with pytest.raises(OffsetOutOfRangeError):
            await bench.consumer.getone(P1)
        simulation.send("t", b"more", partition=0)
        assert (await quiet).offset == RECORDS
        await bench.consumer.stop()

    simulation.run(program())


@pytest.mark.parametrize("how", ["getone", "getmany"])
def test_a_record_in_progress_is_not_committed_when_other_tasks_poll(
    simulation: KafkaSimulation, how: str
) -> None:
    """Auto-commit covers the records that each task has processed, except its current record."""

    async def program() -> None:
        bench = Bench(simulation, group_id="g", auto_commit_interval_ms=200)
        bench.consumer.assign([P0, P1])
        await bench.consumer.start()
        assert await records_of(bench, "getone", P0, 1) == [0]  # this task processes the record now
        await records_of(bench, how, P1, 6)
        waits = asyncio.create_task(records_of(bench, how, P1, 100))
        await asyncio.sleep(2.0)
        assert [await bench.consumer.committed(p) for p in (P0, P1)] == [0, RECORDS]
        assert await records_of(bench, "getone", P0, 1) == [1]  # the first record is processed
        await asyncio.sleep(2.0)
        assert await bench.consumer.committed(P0) == 1
        waits.cancel()
        await bench.consumer.stop()

    simulation.run(program())


def test_stop_ends_all_waits(simulation: KafkaSimulation) -> None:
    async def program() -> None:
        bench = Bench(simulation)
        bench.consumer.assign([P0, P1, P2])
        await bench.consumer.start()
        await bench.drained()
        readers = [
            asyncio.create_task(records_of(bench, "getone", partition, 1))
            for partition in (P0, P1, P2)
        ]
        await asyncio.sleep(0.5)
        await bench.consumer.stop()
        outcomes = await asyncio.gather(*readers, return_exceptions=True)
        assert [type(outcome).__name__ for outcome in outcomes] == ["ConsumerStoppedError"] * 3

    simulation.run(program())


@pytest.mark.parametrize("seed", some(range(8), 3))
def test_each_record_is_returned_once_while_tasks_start_and_end(
    simulation: KafkaSimulation, seed: int
) -> None:
    """Tasks read some partitions or all, are cancelled, and pause and resume; others write."""
    rng, seen = random.Random(seed), [list[int]() for _ in range(3)]

    async def program() -> None:
        small = {"fetch_max_bytes": 4000, "max_partition_fetch_bytes": 1000}
        bench = Bench(simulation, fetch_max_wait_ms=int(1000 * WAIT), **small)
        bench.consumer.assign([P0, P1, P2])
        await bench.consumer.start()

        async def read(*some: TopicPartition) -> None:
            while True:
                if rng.random() < 0.5:
                    found = [[await bench.consumer.getone(*some)]]
                else:
                    many = await bench.consumer.getmany(*some, timeout_ms=200, max_records=3)
                    found = [*many.values()]
                for record in (record for run in found for record in run):
                    assert not some or TopicPartition("t", record.partition) in some
                    seen[record.partition].append(record.offset)
                if rng.random() < 0.2:
                    await asyncio.sleep(rng.random() / 10)

        def reader() -> asyncio.Task[None]:
            return asyncio.create_task(read(*rng.sample([P0, P1, P2], rng.randint(0, 2))))

        written, readers = [RECORDS] * 3, [reader() for _ in range(3)]
        for _ in range(60):
            await asyncio.sleep(rng.random() / 5)
            partition = rng.randrange(3)
            for _ in range(rng.randint(1, 20)):
                simulation.send("t", bytes(100), partition=partition)
                written[partition] += 1
            if rng.random() < 0.5:
                readers.pop(rng.randrange(len(readers))).cancel()
                readers.append(reader())
            turn = rng.choice([bench.consumer.pause, bench.consumer.resume])
            turn(TopicPartition("t", rng.randrange(3)))
        bench.consumer.resume(P0, P1, P2)
        readers += [asyncio.create_task(read(p)) for p in (P0, P1, P2)]
        async with asyncio.timeout(10.0):
            while sum(map(len, seen)) < sum(written):
                await asyncio.sleep(0.01)
        assert seen == [list(range(count)) for count in written]
        for task in readers:
            task.cancel()
        await asyncio.wait(readers)
        await bench.consumer.stop()

    simulation.run(program())
