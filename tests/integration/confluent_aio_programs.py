"""Small asyncio programs for confluent-kafka, also run with another library.

In: the library's module, its `aio` module, a cluster, a function that records values. Out: what a
program observes, as plain values. Must not: record anything that depends on timing.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from functools import partial
from importlib import import_module
from typing import Any

from tests.integration.confluent_programs import PATIENCE, numbers, places, seen, written

from odradek.testing import FakeCluster

Note = Callable[..., None]
AioProgram = Callable[[Any, Any, FakeCluster, Note], Coroutine[Any, Any, None]]


async def trying(note: Note, what: str, call: Callable[[], Awaitable[Any]]) -> None:
    """Await a call and note its result or error."""
    try:
        found = await call()
    except Exception as error:
        note(
            what,
            type(error).__name__,
            *(a.name() for a in error.args if hasattr(a, "txn_requires_abort")),
        )
    else:
        note(what, found if isinstance(found, int | str | None) else type(found).__name__)


def settings(cluster: FakeCluster, **more: Any) -> dict[str, Any]:
    names = {name.replace("__", "."): value for name, value in more.items()}
    return {"bootstrap.servers": cluster.bootstrap_servers, **names}


def consumer(aio: Any, cluster: FakeCluster, **more: Any) -> Any:
    group = {"group__id": "board", "auto__offset__reset": "earliest", "enable__auto__commit": False}
    return aio.AIOConsumer(settings(cluster, **{**group, **more}), max_workers=2)


async def read(client: Any, count: int) -> list[Any]:
    found: list[Any] = []
    async with asyncio.timeout(PATIENCE):
        while len(found) < count:
            message = await client.poll(0.5)
            if message is not None:
                found.append(message)
    return found


async def deliveries(library: Any, aio: Any, cluster: FakeCluster, note: Note) -> None:
    async with aio.AIOProducer(settings(cluster), buffer_timeout=0.1) as producer:
        futures = [
            await producer.produce("flights", f"value {n}", key="k", partition=0) for n in range(5)
        ]
        note(all(isinstance(future, asyncio.Future) for future in futures))
        for message in await asyncio.gather(*futures):
            note(seen(message))
        await producer.produce("flights", "unawaited")
        note(await producer.flush(PATIENCE), len(producer))
        note(await producer.poll(0), await producer.cluster_id(PATIENCE))
        found = await producer.list_topics("flights", timeout=PATIENCE)
        note(sorted(found.topics["flights"].partitions), str(found))
    note(len(producer), len(cluster.records("flights", 0)) >= 5)


async def deliveries_that_fail(library: Any, aio: Any, cluster: FakeCluster, note: Note) -> None:
    producer = aio.AIOProducer(settings(cluster), buffer_timeout=0.1)
    for name in ("INVALID_RECORD", "MESSAGE_TOO_LARGE"):
        cluster.refuse("Produce", name, 1)
        future = await producer.produce("counts", name)
        await producer.flush(PATIENCE)
        await trying(note, name, partial(asyncio.wait_for, future, PATIENCE))
    await producer.close()


async def transactions(library: Any, aio: Any, cluster: FakeCluster, note: Note) -> None:
    producer = aio.AIOProducer(settings(cluster, transactional__id="clerk"), buffer_timeout=0.1)
    await trying(note, "too early", producer.begin_transaction)
    note(await producer.init_transactions(PATIENCE))
    for number in range(2):
        note(await producer.begin_transaction())
        await producer.produce("counts", f"committed {number}")
        note(await producer.commit_transaction(PATIENCE))
    await trying(note, "outside", lambda: producer.commit_transaction(1))
    await producer.close()
    reader = consumer(aio, cluster)
    await reader.subscribe(["counts"])
    note([m.value() for m in await read(reader, 2)])
    await reader.close()


async def a_group(library: Any, aio: Any, cluster: FakeCluster, note: Note) -> None:
    await asyncio.to_thread(written, library, cluster, 6, key="k")
    revoked: list[Any] = []

    async def on_assign(client: Any, partitions: Any) -> None:
        note("assign", client is reader, numbers(partitions))
        for partition in partitions:
            partition.offset = 2 if partition.partition == 0 else library.OFFSET_END
        await client.assign(partitions)

    async def on_revoke(_: Any, partitions: Any) -> None:
        revoked.append(numbers(partitions))

    reader = consumer(aio, cluster)
    await reader.subscribe(["flights"], on_assign=on_assign, on_revoke=on_revoke)
    for message in await read(reader, 2):
        note(seen(message))
    note([m.offset() for m in await reader.consume(5, 1)])
    note(numbers(await reader.assignment()))
    every = await reader.assignment()
    note([p for p in places(await reader.position(every)) if p[1] == 0])
    note([p for p in places(await reader.commit(asynchronous=False)) if p[1] == 0])
    note([p for p in places(await reader.committed(every, PATIENCE)) if p[1] == 0])
    await trying(note, "nothing new", lambda: reader.commit(asynchronous=False))
    await reader.seek(library.TopicPartition("flights", 0, 4))
    note([m.offset() for m in await read(reader, 2)])
    note(await reader.get_watermark_offsets(library.TopicPartition("flights", 0), PATIENCE))
    note(await reader.pause(every), await reader.resume(every))
    await reader.close()
    note(revoked)
    for name in ("assignment", "poll", "commit"):
        await trying(note, name, getattr(reader, name))


async def commits_are_reported(library: Any, aio: Any, cluster: FakeCluster, note: Note) -> None:
    await asyncio.to_thread(written, library, cluster, 3)
    told: list[Any] = []

    async def on_commit(error: Any, partitions: Any) -> None:
        told.append((error and error.name(), [p for p in places(partitions) if p[2] >= 0]))

    reader = consumer(aio, cluster, on_commit=on_commit)
    await reader.subscribe(["flights"])
    messages = await read(reader, 3)
    note(await reader.commit(messages[1]))
    for _ in range(100):
        if told:
            break
        await reader.poll(0.1)
    note(told)
    await reader.close()


async def manual_assignment(library: Any, aio: Any, cluster: FakeCluster, note: Note) -> None:
    await asyncio.to_thread(written, library, cluster, 5)
    reader, at = consumer(aio, cluster, enable__partition__eof=True), library.TopicPartition
    await reader.assign([at("flights", 0, 3)])
    note([seen(m) for m in await read(reader, 3)])
    await reader.commit(offsets=[at("flights", 0, 1)], asynchronous=False)
    await reader.assign([at("flights", 0, library.OFFSET_STORED)])
    note([m.offset() for m in await read(reader, 4)])
    await reader.unassign()
    note(await reader.assignment(), await reader.poll(0.1))
    found = await reader.offsets_for_times([at("flights", 0, 0)], PATIENCE)
    note(places(found))
    await reader.close()


async def serializers(library: Any, aio: Any, cluster: FakeCluster, note: Note) -> None:
    of = import_module(f"{library.__name__}.serialization")

    async def slowly(value: Any, context: Any) -> Any:
        await asyncio.sleep(0)
        return (value, context.topic)

    producer = await aio.AsyncSerializingProducer(
        settings(
            cluster,
            key__serializer=of.IntegerSerializer(),
            value__serializer=of.StringSerializer(),
        ),
        buffer_timeout=0.1,
    )
    future = await producer.produce("counts", key=7, value="sieben")
    await producer.flush(PATIENCE)
    note(seen(await future))
    await trying(note, "wrong", lambda: producer.produce("counts", key="seven"))
    await producer.close()
    reader = await aio.AsyncDeserializingConsumer(
        settings(
            cluster,
            group__id="board",
            auto__offset__reset="earliest",
            key__deserializer=of.IntegerDeserializer(),
            value__deserializer=slowly,
        )
    )
    await reader.subscribe(["counts"])
    note([(m.key(), m.value()) for m in await read(reader, 1)])
    await reader.close()


AIO_PROGRAMS: tuple[AioProgram, ...] = (
    *(deliveries, deliveries_that_fail, transactions, a_group, commits_are_reported),
    *(manual_assignment, serializers),
)
