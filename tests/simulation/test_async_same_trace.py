"""A program produces the same trace with the sync and the asyncio clients, for each seed."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from contextlib import AsyncExitStack
from typing import Any

import pytest
from tests.simulation.scene import Stage
from tests.volume import pairs

import odradek
from odradek import NewTopic, TopicPartition
from odradek.api.base import on_host
from odradek.simulation import assert_same
from odradek.simulation.world.link import Mode
from odradek.testing import VirtualLoop


class Program:
    """Clients and helpers of a program, either sync or awaited."""

    def __init__(self, *, awaited: bool, mode: Mode, seed: int) -> None:
        self.stage = Stage(seed, partitions=0)
        self.world, self.cluster = self.stage.world, self.stage.cluster
        self.seen: list[Any] = []
        self._awaited = awaited
        self._mode = mode

    def make(self, kind: str, name: str = "", **options: Any) -> Any:
        """Create a client of this kind: Producer, Consumer or Admin."""
        host = self.world.host(name or kind.lower(), mode=self._mode, background=True)
        facade = getattr(odradek, f"Async{kind}" if self._awaited else kind)
        return on_host(host, facade, self.stage.settings(**options))

    async def of(self, given: Any) -> Any:
        """Return the result of a call of a sync or an asyncio client."""
        return await given if self._awaited else given

    async def outcome(self, future: Any) -> Any:
        """Return the result or the error of a record."""
        return await future if self._awaited else future.result()

    async def pause(self, seconds: float) -> None:
        """Let virtual time pass."""
        if self._awaited:
            await asyncio.sleep(seconds)
        else:
            self.world.advance(seconds)

    def run(self, main: Callable[[Program], Coroutine[Any, Any, None]]) -> list[str]:
        """Run the program to its end and return its trace."""
        if self._awaited:
            with asyncio.Runner(loop_factory=lambda: VirtualLoop(self.world)) as runner:
                runner.run(main(self))
        else:
            with pytest.raises(StopIteration):
                main(self).send(None)
        assert self.world.hot_loops == []
        traces = [line for host in self.world.hosts.values() for line in host.trace.lines()]
        return [*traces, *map(str, self.seen), f"ends at {self.world.now!r}"]


async def group_through_trouble(program: Program) -> None:
    """Run a producer and a group member while brokers crash, return and move."""
    of, cluster, world = program.of, program.cluster, program.world
    producer, admin = program.make("Producer", linger_ms=5), program.make("Admin")
    consumer = program.make("Consumer", group_id="g", auto_offset_reset="earliest")
    await of(admin.create_topics([NewTopic("t", 3)]))
    world.after(1.0, lambda: cluster.crash(1))
    world.after(4.0, lambda: cluster.restart(1))
    world.after(9.0, cluster.move)
    await of(consumer.subscribe(["t"]))
    sent = 0
    while world.now < 16:
        for _ in range(3):
            future = await of(producer.send("t", b"%d" % sent, key=b"%d" % sent))
            sent += 1
        program.seen.append((await program.outcome(future)).offset)
        program.seen += [(r.partition, r.offset) for r in await of(consumer.poll(0.5))]
        await of(consumer.commit())
        await program.pause(0.1)
    await of(producer.flush())
    partitions = [TopicPartition("t", p) for p in range(3)]
    program.seen.append(await of(consumer.end_offsets(partitions)))
    program.seen.append(await of(consumer.committed(partitions)))
    for client in (consumer, producer, admin):
        await of(client.close())


async def transactions(program: Program) -> None:
    """Read, process and write in transactions whose coordinator crashes."""
    of, cluster = program.of, program.cluster
    cluster.create_topic("in", 1)
    cluster.create_topic("out", 2)
    source = program.make("Producer", "source")
    for number in range(30):
        await of(source.send("in", b"%d" % number))
    await of(source.flush())
    producer = program.make("Producer", transactional_id="tx")
    consumer = program.make("Consumer", group_id="g", auto_offset_reset="earliest")
    await of(producer.init_transactions())
    await of(consumer.subscribe(["in"]))
    read = 0
    while read < 30:
        records = await of(consumer.poll(1.0, max_records=7))
        if not records:
            continue
        await of(producer.begin_transaction())
        for record in records:
            await of(producer.send("out", record.value, partition=record.offset % 2))
        if 10 < read < 20:
            cluster.bounce(1, after=2.0)
        await of(producer.send_offsets_to_transaction(records, consumer.group_metadata()))
        await of(producer.commit_transaction())
        read += len(records)
        program.seen.append((program.world.now, read))
    for client in (source, consumer, producer):
        await of(client.close())


async def assigned(program: Program) -> None:
    """Send and poll Arrow data, seek, and request offsets, finally from silent brokers."""
    import pyarrow as pa

    of, cluster = program.of, program.cluster
    cluster.create_topic("t", 2)
    producer, consumer = program.make("Producer"), program.make("Consumer")
    table = pa.table({"value": [b"%d" % n for n in range(100)], "partition": [0, 1] * 50})
    await program.outcome(await of(producer.send_arrow("t", table)))
    texts = [b"%d" % n for n in range(100)]
    await program.outcome(await of(producer.send_many("t", texts, partitions=[1, 0] * 50)))
    partitions = [TopicPartition("t", p) for p in range(2)]
    consumer.assign(partitions)
    consumer.seek_to_beginning()
    while (batch := await of(consumer.poll_arrow(1.0))) is not None:
        program.seen.append(batch.num_rows)
    consumer.seek(partitions[0], 40)
    program.seen.append(await of(consumer.position(partitions[0])))
    program.seen.append(await of(consumer.offsets_for_times(dict.fromkeys(partitions, 0))))
    program.seen.append([record.offset for record in await of(consumer.poll(2.0))])
    program.seen.append(await of(consumer.cluster_id()))
    for broker in cluster.brokers:
        cluster.go_silent(broker)
    with pytest.raises(odradek.KafkaTimeoutError) as raised:
        await of(consumer.end_offsets(partitions, timeout=7.0))
    program.seen.append(raised.value)
    await of(consumer.close())
    await of(producer.close(3.0))


PROGRAMS: list[Callable[[Program], Coroutine[Any, Any, None]]] = [
    group_through_trouble,
    transactions,
    assigned,
]


@pytest.mark.parametrize(("program", "seed"), pairs(PROGRAMS, [1, 2]))
def test_sync_and_asyncio_clients_produce_the_same_trace(
    program: Callable[[Program], Coroutine[Any, Any, None]], seed: int
) -> None:
    modes: list[tuple[bool, Mode]] = [(True, "bytes"), (True, "bytes"), (True, "messages")]
    first = Program(awaited=False, mode="bytes", seed=seed).run(program)
    assert len(first) > 50
    for awaited, mode in modes:
        other = Program(awaited=awaited, mode=mode, seed=seed).run(program)
        assert_same(first, other, ("sync, in bytes", f"asyncio, in {mode}"))


def test_concurrent_programs_produce_the_same_trace_each_time() -> None:
    async def main(program: Program) -> None:
        of, cluster = program.of, program.cluster
        cluster.create_topic("t", 6)

        async def send(producer: Any, first: int) -> None:
            for number in range(first, first + 10):
                await producer.send_and_wait("t", b"%d" % number)

        async def read(name: str) -> None:
            consumer = program.make("Consumer", name, group_id="g", auto_offset_reset="earliest")
            async with consumer:
                await consumer.subscribe(["t"])
                async for record in consumer.records(timeout=10.0):
                    program.seen.append((program.world.now, name, record.value))

        program.world.after(0.5, lambda: cluster.bounce(2, after=3.0))
        async with AsyncExitStack() as stack, asyncio.TaskGroup() as group:
            producer = await stack.enter_async_context(program.make("Producer"))
            sends: list[Awaitable[None]] = [send(producer, 10 * i) for i in range(20)]
            for name in ("a", "b", "c"):
                group.create_task(read(name))
            await asyncio.gather(*sends)
        await of(asyncio.to_thread(program.seen.append, "through"))

    runs = [Program(awaited=True, mode="bytes", seed=3).run(main) for _ in range(2)]
    assert_same(runs[0], runs[1])
    values = {line.partition("b'")[2] for line in runs[0] if "b'" in line}
    assert len(values) >= 200
