"""Small typical programs for aiokafka; each notes what it observes.

Each gets a `Scene` with a library (aiokafka itself, or the module that replaces it), a cluster and
its own topics. The notes must be the same with both libraries.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable
from typing import Any

from tests.integration.aiokafka_scene import AT, PATIENCE, Scene

Program = Callable[[Scene], Awaitable[None]]


# Producers


async def sends_one_by_one(scene: Scene) -> None:
    topic, say = scene.topic(3), scene.say
    producer = scene.producer(client_id="one-by-one")
    await producer.start()
    try:
        say(await producer.send_and_wait(topic, b"v", partition=1, timestamp_ms=AT))
        say(await producer.send_and_wait(topic, b"v", b"k", timestamp_ms=AT))
        say(await producer.send_and_wait(topic, key=b"k", partition=0, timestamp_ms=AT))
        headers = [("a", b"1"), ("b", b""), ("größe", b"3")]
        say(await producer.send_and_wait(topic, b"", None, 2, AT, headers))
        found = await producer.send_and_wait(topic, bytearray(b"x"), partition=2)
        say(found.offset, found.timestamp > AT, found.timestamp_type)
        say(sorted(await producer.partitions_for(topic)))
    finally:
        await producer.stop()
        await producer.stop()
    for rows in await scene.written(topic, 5, 3):
        say([(r[0], r[3], r[4], tuple(r[5])) for r in rows])


async def gathers_futures(scene: Scene) -> None:
    topic, say = scene.topic(), scene.say
    async with scene.producer(linger_ms=20, max_batch_size=600) as producer:
        futures = [await producer.send(topic, b"%d" % n, timestamp_ms=AT) for n in range(200)]
        say(all(isinstance(future, asyncio.Future) for future in futures))
        say([found.offset for found in await asyncio.gather(*futures)])
        say(all(future.done() for future in futures), futures[7].result().offset)
        future = await producer.send(topic, b"last", timestamp_ms=AT)
        called: list[int] = []
        future.add_done_callback(lambda done: called.append(done.result().offset))
        await producer.flush()
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        say(future.done(), called)
        given_up = await producer.send(topic, b"sent anyway")
        say(given_up.cancel())
        await producer.flush()
    say(sum(map(len, await scene.written(topic, 202))))


async def sends_invalid_arguments(scene: Scene) -> None:
    topic, tried = scene.topic(2), scene.tried
    producer = scene.producer(max_request_size=2000, request_timeout_ms=600)
    await producer.start()
    send = producer.send_and_wait
    await tried("neither", lambda: send(topic))
    await tried("text", lambda: send(topic, "text"))
    await tried("number", lambda: send(topic, 7))
    await tried("key", lambda: send(topic, b"v", "key"))
    await tried("large", lambda: send(topic, b"x" * 3000))
    await tried("partition 2", lambda: send(topic, b"v", partition=2))
    await tried("partition -1", lambda: send(topic, b"v", partition=-1))
    await tried("no topic", lambda: send("there-is-none", b"v"))
    await tried("partitions", lambda: producer.partitions_for("there-is-none"))
    await tried("begin", producer.begin_transaction)
    await tried("commit", producer.commit_transaction)
    await tried("abort", producer.abort_transaction)
    await tried("offsets", lambda: producer.send_offsets_to_transaction({}, "g"))
    await tried("well", lambda: send(topic, b"v", partition=0, timestamp_ms=AT))
    await producer.stop()
    await tried("stopped", lambda: send(topic, b"v", partition=0))


async def serializes(scene: Scene) -> None:
    topic, say = scene.topic(4), scene.say

    def chosen(key: bytes, everywhere: list[int], available: list[int]) -> int:
        say("asked", key, everywhere, sorted(available))
        return everywhere[-1]

    async with scene.producer(
        key_serializer=str.encode,
        value_serializer=lambda v: repr(v).encode(),
        partitioner=chosen,
    ) as producer:
        found = await producer.send_and_wait(topic, {"a": 1}, "k", timestamp_ms=AT)
        say(found)
        await scene.tried("key", lambda: producer.send(topic, 1, 2))
    say([(r[3], r[4]) for r in (await scene.written(topic, 1, 4))[3]])

    def fails(*_: object) -> int:
        raise ZeroDivisionError

    async with scene.producer(partitioner=fails) as producer:
        await scene.tried("partitioner", lambda: producer.send(topic, b"v", b"k"))


async def fills_batches(scene: Scene) -> None:
    topic, say = scene.topic(2), scene.say
    async with scene.producer(max_batch_size=500, request_timeout_ms=2000) as producer:
        batch = producer.create_batch()
        count = 0
        while batch.append(key=None, value=b"x" * 40, timestamp=AT) is not None:
            count += 1
        say(count, batch.record_count(), batch.size(), batch.closed())
        future = await producer.send_batch(batch, topic, partition=1)
        say(await future)
        batch = producer.create_batch()
        made = batch.append(key=b"k", value=b"v", timestamp=AT, headers=[("h", b"1")])
        say(made.offset, made.size, made.timestamp)
        batch.close()
        say(batch.append(key=b"k", value=b"v", timestamp=AT))
        say(await (await producer.send_batch(batch, topic, partition=1)))
        await scene.tried("partition", lambda: producer.send_batch(batch, topic, partition=9))
    rows = (await scene.written(topic, count + 1, 2))[1]
    say([(r[0], r[3], r[4], tuple(r[5])) for r in rows])


async def acknowledges(scene: Scene) -> None:
    topic, say = scene.topic(), scene.say
    for acks in (0, 1, -1, "all"):
        async with scene.producer(acks=acks) as producer:
            say(acks, await producer.send_and_wait(topic, b"v", timestamp_ms=AT))
            await producer.flush()
    await scene.written(topic, 4)


async def gets_produce_errors(scene: Scene) -> None:
    topic, cluster = scene.topic(), scene.cluster
    async with scene.producer() as producer:
        await producer.send_and_wait(topic, b"v")
        for name in ("TOPIC_AUTHORIZATION_FAILED", "MESSAGE_TOO_LARGE", "INVALID_TIMESTAMP"):
            cluster.refuse("Produce", name, None)
            await scene.tried(name, lambda: producer.send_and_wait(topic, b"v"))
            cluster.heal()
        for name in ("NOT_LEADER_OR_FOLLOWER", "NOT_ENOUGH_REPLICAS"):
            cluster.refuse("Produce", name, 1)
            found = await producer.send_and_wait(topic, b"v")
            scene.say(name, found.offset)
            cluster.heal()


async def compresses(scene: Scene) -> None:
    topic, say = scene.topic(), scene.say
    for kind in ("gzip", "lz4", "snappy", "zstd", None):
        async with scene.producer(compression_type=kind, enable_idempotence=True) as producer:
            say(kind, (await producer.send_and_wait(topic, b"x" * 500, timestamp_ms=AT)).offset)
    consumer = scene.consumer(topic)
    async with consumer:
        say(await scene.values(consumer, 5) == [b"x" * 500] * 5)


# Transactions


async def commits_and_aborts(scene: Scene) -> None:
    topic, say = scene.topic(), scene.say
    producer = scene.producer(transactional_id=f"txn-{scene.number}")
    await producer.start()
    async with producer.transaction():
        say((await producer.send_and_wait(topic, b"1", timestamp_ms=AT)).offset)
        await producer.send(topic, b"2")
    try:
        async with producer.transaction():
            await producer.send(topic, b"never")
            raise ZeroDivisionError
    except ZeroDivisionError:
        say("aborted")
    await producer.begin_transaction()
    await producer.send_and_wait(topic, b"3")
    await producer.commit_transaction()
    await producer.begin_transaction()
    await producer.send_and_wait(topic, b"never")
    await producer.abort_transaction()
    await producer.begin_transaction()
    await producer.commit_transaction()
    await producer.stop()
    async with scene.consumer(topic, isolation_level="read_committed") as consumer:
        say(await scene.values(consumer, 3))
        say(await consumer.getmany(timeout_ms=200))


async def misuses_transactions(scene: Scene) -> None:
    topic, tried = scene.topic(), scene.tried
    async with scene.producer(transactional_id=f"txn-{scene.number}") as producer:
        await tried("commit", producer.commit_transaction)
        await tried("abort", producer.abort_transaction)
        await tried("send", lambda: producer.send(topic, b"v"))
        await tried("offsets", lambda: producer.send_offsets_to_transaction({}, "g"))
        await producer.begin_transaction()
        await tried("begin", producer.begin_transaction)
        offsets = producer.send_offsets_to_transaction
        place = scene.tp(topic)
        await tried("no offsets", lambda: offsets({}, "g"))
        await tried("no group", lambda: offsets({place: 1}, ""))
        await tried("a number", lambda: offsets({place: 1}, 7))
        await tried("a tuple", lambda: offsets({("t", 0): 1}, "g"))
        await tried("a text", lambda: offsets({place: "1"}, "g"))
        await producer.abort_transaction()


async def sends_offsets(scene: Scene) -> None:
    source, target, group = scene.topic(), scene.topic(name="u"), scene.group()
    await scene.fill(source, 5)
    place = scene.tp(source)
    consumer = scene.consumer(source, group_id=group, enable_auto_commit=False)
    producer = scene.producer(transactional_id=f"txn-{scene.number}")
    async with consumer, producer:
        async with producer.transaction():
            for value in await scene.values(consumer, 3):
                await producer.send(target, value)
            await producer.send_offsets_to_transaction({place: 3}, group)
        await wait_until_committed(scene, consumer, place, 3)
        async with producer.transaction():
            pair = scene.kafka.OffsetAndMetadata(4, "text")
            await producer.send_offsets_to_transaction({place: pair}, group)
        await wait_until_committed(scene, consumer, place, 4)
        try:
            async with producer.transaction():
                await producer.send_offsets_to_transaction({place: (5, "never")}, group)
                raise ZeroDivisionError
        except ZeroDivisionError:
            scene.say(await consumer.committed(place))
        scene.say(await consumer.seek_to_committed())
        scene.say(await scene.values(consumer, 1))


async def wait_until_committed(scene: Scene, consumer: Any, place: Any, offset: int) -> None:
    """Wait for the committed offset: brokers write it a moment after the transaction."""
    async with asyncio.timeout(PATIENCE):
        while (found := await consumer.committed(place)) != offset:
            await asyncio.sleep(0.02)
    scene.say(found)


async def is_fenced(scene: Scene) -> None:
    topic = scene.topic()
    first = scene.producer(transactional_id=f"txn-{scene.number}")
    second = scene.producer(transactional_id=f"txn-{scene.number}")
    await first.start()
    async with second:
        await second.begin_transaction()
        await scene.tried("the old one", lambda: run_transaction(first, topic))
        await second.send_and_wait(topic, b"v")
        await second.commit_transaction()
    with contextlib.suppress(scene.errors.ProducerFenced):  # aiokafka itself may raise it here
        await first.stop()


async def fences_by_starting(scene: Scene) -> None:
    topic = scene.topic()
    first = scene.producer(transactional_id=f"txn-{scene.number}")
    second = scene.producer(transactional_id=f"txn-{scene.number}")
    await first.start()
    await first.begin_transaction()
    await first.send_and_wait(topic, b"v")
    async with second:
        await scene.tried("the old one", first.commit_transaction)
    with contextlib.suppress(scene.errors.ProducerFenced):
        await first.stop()


async def run_transaction(producer: Any, topic: str) -> None:
    async with producer.transaction():
        await producer.send_and_wait(topic, b"v")


# Consumers


async def assigns(scene: Scene) -> None:
    topic, say = scene.topic(2), scene.say
    await scene.fill(topic, 5)
    await scene.fill(topic, 3, partition=1, first=10)
    one, two = scene.tp(topic, 0), scene.tp(topic, 1)
    consumer = scene.consumer()
    await consumer.start()
    consumer.assign([one])
    say(sorted(consumer.assignment()), consumer.subscription())
    say(await scene.values(consumer, 2), await consumer.position(one))
    record = await consumer.getone()
    say(record.topic, record.partition, record.offset, record.timestamp, record.timestamp_type)
    say(record.key, record.value, record.checksum, record.headers)
    say(record.serialized_key_size, record.serialized_value_size)
    say(consumer.highwater(one), consumer.last_stable_offset(one))
    say((consumer.last_poll_timestamp(one) or 0) > AT)
    consumer.seek(one, 1)
    say(await scene.values(consumer, 4))
    consumer.assign([one, two])
    say(sorted(consumer.assignment()), sorted(await scene.values(consumer, 8)))
    consumer.seek(two, 0)
    say(await consumer.seek_to_end(one))
    say(await consumer.position(one), await scene.values(consumer, 3))
    say(await consumer.seek_to_beginning(one, two))
    say(await consumer.position(one), await consumer.position(two))
    say(await consumer.seek_to_end())
    say(await consumer.getmany(timeout_ms=200))
    await scene.fill(topic, 1, first=5)
    say(await scene.values(consumer, 1))
    await consumer.stop()


async def reads_many(scene: Scene) -> None:
    topic, say = scene.topic(2), scene.say
    await scene.fill(topic, 10)
    await scene.fill(topic, 4, partition=1, first=20)
    one, two = scene.tp(topic, 0), scene.tp(topic, 1)
    async with scene.consumer(max_poll_records=3) as consumer:
        consumer.assign([one, two])
        found = await consumer.getmany(one, timeout_ms=5000)
        say([(tp, [r.offset for r in records]) for tp, records in found.items()])
        found = await consumer.getmany(one, timeout_ms=5000, max_records=5)
        say([(tp, [r.offset for r in records]) for tp, records in found.items()])
        record = await consumer.getone(two)
        say(record.partition, record.value)
        consumer.pause(one)
        say(consumer.paused())
        rest: list[bytes] = []
        while len(rest) < 3:
            for tp, records in (await consumer.getmany(timeout_ms=1000)).items():
                say(tp.partition)
                rest += [r.value for r in records]
        say(rest, await consumer.getmany(timeout_ms=100))
        consumer.resume(one)
        say(consumer.paused(), await scene.values(consumer, 2))
        say(await consumer.getmany())
        await scene.tried("max_records", lambda: consumer.getmany(max_records=0))
        await scene.tried("partitions", lambda: consumer.getone("t"))
        await scene.tried("pause", lambda: consumer.pause("t"))


async def waits_without_records(scene: Scene) -> None:
    topic, say = scene.topic(), scene.say
    async with scene.consumer(topic) as consumer:
        try:
            await asyncio.wait_for(consumer.getone(), 0.3)
        except TimeoutError:
            say("timeout")
        waiting = asyncio.create_task(consumer.getone())
        await asyncio.sleep(0.1)
        waiting.cancel()
        await asyncio.wait([waiting])
        say(waiting.cancelled())
        waiting = asyncio.create_task(consumer.getone())
        await scene.fill(topic, 3)
        say((await waiting).value)
        several = [asyncio.create_task(consumer.getone()) for _ in range(2)]
        say(sorted([(await task).value for task in several]))
        waiting = asyncio.create_task(consumer.getone())
        await asyncio.sleep(0.1)
    try:
        await asyncio.wait_for(waiting, 5)
    except Exception as error:
        say("stopped", type(error).__name__)
    await scene.tried("getone", consumer.getone)
    await scene.tried("getmany", consumer.getmany)


async def iterates(scene: Scene) -> None:
    topic, say = scene.topic(), scene.say
    await scene.fill(topic, 6)
    consumer = scene.consumer(topic)
    await consumer.start()
    async for record in consumer:
        say(record.offset, record.value)
        if record.offset == 2:
            break
    ended = asyncio.get_running_loop().call_later(0.5, lambda: tasks.append(stop()))
    tasks: list[asyncio.Task[None]] = []

    def stop() -> asyncio.Task[None]:
        return asyncio.create_task(consumer.stop())

    async for record in consumer:
        say(record.offset)
    say("ended", ended.cancelled())
    await asyncio.wait(tasks)


async def reads_offsets(scene: Scene) -> None:
    topic, say = scene.topic(2), scene.say
    await scene.fill(topic, 4)
    one, two = scene.tp(topic, 0), scene.tp(topic, 1)
    async with scene.consumer() as consumer:
        say(await consumer.beginning_offsets([one, two]), await consumer.end_offsets([one, two]))
        say(await consumer.offsets_for_times({one: AT + 2, two: AT}))
        say(await consumer.offsets_for_times({one: AT + 100}))
        await scene.tried("negative", lambda: consumer.offsets_for_times({one: -1}))
        say(topic in await consumer.topics())


async def reads_in_a_group(scene: Scene) -> None:
    topic, group, say = scene.topic(2), scene.group(), scene.say
    await scene.fill(topic, 6)
    one, two = scene.tp(topic, 0), scene.tp(topic, 1)
    consumer = scene.consumer(topic, group_id=group, enable_auto_commit=False)
    await consumer.start()
    say(sorted(consumer.assignment()), consumer.subscription())
    say(sorted(consumer.partitions_for_topic(topic)))
    say(await consumer.committed(one), await consumer.position(one))
    say(await scene.values(consumer, 3))
    await consumer.commit()
    say(await consumer.committed(one))
    await consumer.commit({one: 2})
    say(await consumer.committed(one))
    await consumer.commit({one: (4, "text"), two: scene.kafka.OffsetAndMetadata(0, "")})
    say(await consumer.committed(one), await consumer.committed(two))
    say(await consumer.seek_to_committed(one))
    say(await scene.values(consumer, 2))
    await consumer.stop()
    async with scene.consumer(topic, group_id=group) as consumer:
        say(await scene.values(consumer, 2))
    async with scene.consumer(topic, group_id=group) as consumer:
        say(await consumer.getmany(timeout_ms=300), await consumer.committed(one))


async def listens_to_rebalances(scene: Scene) -> None:
    topic, group, say = scene.topic(4), scene.group(), scene.say

    class Listener(scene.kafka.ConsumerRebalanceListener):  # type: ignore[name-defined,misc]
        def __init__(self, name: str) -> None:
            self.name, self.has, self.heard = name, 0, [("", 0)][:0]

        async def on_partitions_revoked(self, revoked: Any) -> None:
            await asyncio.sleep(0)
            self.heard.append(("revoked", len(revoked)))
            self.has = 0

        def on_partitions_assigned(self, assigned: Any) -> None:
            self.heard.append(("assigned", len(assigned)))
            self.has = len(assigned)

    first, second = Listener("first"), Listener("second")
    one = scene.consumer(group_id=group, heartbeat_interval_ms=200)
    one.subscribe([topic], listener=first)
    await one.start()
    say(first.heard, len(one.assignment()))
    two = scene.consumer(group_id=group, heartbeat_interval_ms=200)
    two.subscribe(topics=[topic], listener=second)
    start = asyncio.create_task(two.start())
    async with asyncio.timeout(PATIENCE):
        while first.has != 2 or not start.done():
            await one.getmany(timeout_ms=50)
    say(first.heard, second.heard, len(one.assignment()), len(two.assignment()))
    await two.stop()
    async with asyncio.timeout(PATIENCE):
        while first.has != 4:
            await one.getmany(timeout_ms=50)
    say(first.heard, second.heard, len(one.assignment()))
    await one.stop()
    say(first.heard)


async def starts_one_after_the_other(scene: Scene) -> None:
    """Start a second member while no task reads: the first one still gives up partitions."""
    topic, group, say = scene.topic(2), scene.group(), scene.say
    await scene.fill(topic, 4)
    consumers = [scene.consumer(topic, group_id=group, heartbeat_interval_ms=100) for _ in "ab"]
    for consumer in consumers:
        await consumer.start()
    say([len(consumer.assignment()) for consumer in consumers])
    found: list[bytes] = []
    async with asyncio.timeout(PATIENCE):
        while len(found) < 4:
            for consumer in consumers:
                for records in (await consumer.getmany(timeout_ms=100)).values():
                    found += [record.value for record in records]
    say(sorted(found))
    for consumer in consumers:
        await consumer.stop()


async def starts_at_the_end(scene: Scene) -> None:
    """Check that records written after start() are read, however late the first read is."""
    topic, say = scene.topic(), scene.say
    await scene.fill(topic, 2)
    async with (
        scene.consumer(topic, auto_offset_reset="latest") as alone,
        scene.consumer(topic, auto_offset_reset="latest", group_id=scene.group()) as member,
    ):
        await asyncio.sleep(0.3)  # aiokafka itself looks positions up in the background
        await scene.fill(topic, 1, first=2)
        say(await scene.values(alone, 1), await scene.values(member, 1))


async def subscribes_by_pattern(scene: Scene) -> None:
    names = [scene.topic(name=f"by-pattern-{n}") for n in "ab"]
    scene.topic(name="other")
    async with scene.consumer(group_id=scene.group()) as consumer:
        consumer.subscribe(pattern=f"^by-pattern-[a-z]-{scene.number}$")
        await scene.until(lambda: True)
        async with asyncio.timeout(PATIENCE):
            while len(consumer.assignment()) < 2:
                await consumer.getmany(timeout_ms=50)
        scene.say(sorted(consumer.subscription()), sorted(consumer.assignment()))
        for name in names:
            await scene.fill(name, 1)
        scene.say(sorted(await scene.values(consumer, 2)))


async def subscribes_again(scene: Scene) -> None:
    one, two, say = scene.topic(name="one"), scene.topic(name="two"), scene.say
    await scene.fill(one, 1)
    await scene.fill(two, 2)
    async with scene.consumer(one, group_id=scene.group()) as consumer:
        say(await scene.values(consumer, 1))
        consumer.subscribe([two])
        say(consumer.subscription())
        say(await scene.values(consumer, 2), sorted(consumer.assignment()))
        consumer.unsubscribe()
        say(consumer.subscription(), consumer.assignment())
        consumer.assign([scene.tp(one)])
        say(sorted(consumer.assignment()))


async def reads_without_a_group(scene: Scene) -> None:
    one, two, say = scene.topic(2, name="one"), scene.topic(name="two"), scene.say
    await scene.fill(one, 2)
    await scene.fill(two, 1, first=7)
    async with scene.consumer(one, two) as consumer:
        say(sorted(consumer.assignment()), sorted(consumer.subscription()))
        say(sorted(await scene.values(consumer, 3)))
        await scene.tried("commit", consumer.commit)
        await scene.tried("committed", lambda: consumer.committed(scene.tp(one)))
        await scene.tried("seek_to_committed", consumer.seek_to_committed)
        consumer.subscribe([two])
        await scene.until(lambda: len(consumer.assignment()) == 1)
        say(await scene.values(consumer, 1))


async def sees_new_partitions(scene: Scene) -> None:
    async with scene.consumer(metadata_max_age_ms=300) as consumer:
        consumer.subscribe(pattern=f"^new-.*{scene.number}$")
        waiting = asyncio.create_task(scene.values(consumer, 2))
        await asyncio.sleep(0.1)
        for n in range(2):
            await scene.fill(scene.topic(name=f"new-{n}"), 1, first=n)
        scene.say(sorted(await waiting), sorted(consumer.subscription()))


async def calls_with_invalid_arguments(scene: Scene) -> None:
    topic, group, tried = scene.topic(), scene.group(), scene.tried
    consumer = scene.consumer(group_id=group)
    here, elsewhere = scene.tp(topic), scene.tp(topic, 5)
    await tried("nothing", consumer.subscribe)
    await tried("both", lambda: consumer.subscribe(["t"], pattern="t"))
    await tried("text", lambda: consumer.subscribe("t"))
    await tried("listener", lambda: consumer.subscribe(["t"], listener=object()))
    await tried("pattern", lambda: consumer.subscribe(pattern="("))
    await consumer.start()
    await tried("commit before", consumer.commit)
    consumer.assign([here])
    await tried("subscribe", lambda: consumer.subscribe([topic]))
    await tried("seek", lambda: consumer.seek(here, -1))
    await tried("seek text", lambda: consumer.seek(here, "1"))
    await tried("seek elsewhere", lambda: consumer.seek(elsewhere, 1))
    await tried("position", lambda: consumer.position(elsewhere))
    await tried("highwater", lambda: consumer.highwater(elsewhere))
    await tried("beginning", lambda: consumer.seek_to_beginning(elsewhere))
    await tried("end", lambda: consumer.seek_to_end("t"))
    await tried("committed", lambda: consumer.seek_to_committed(elsewhere))
    await tried("pause", lambda: consumer.pause(elsewhere))
    await tried("no offsets", lambda: consumer.commit({}))
    await tried("list", lambda: consumer.commit([here]))
    await tried("tuple", lambda: consumer.commit({(topic, 0): 1}))
    await tried("text offset", lambda: consumer.commit({here: "x"}))
    await tried("metadata", lambda: consumer.commit({here: (1, None)}))
    await tried("not assigned", lambda: consumer.commit({elsewhere: 1}))
    await tried("well", lambda: consumer.commit({here: 0}))
    await consumer.stop()
    await consumer.stop()


async def deserializes(scene: Scene) -> None:
    topic, say = scene.topic(), scene.say
    async with scene.producer() as producer:
        for n in (b"1", b"x", b"3"):
            await producer.send_and_wait(topic, n, b"k", timestamp_ms=AT)
        await producer.send_and_wait(topic, None, b"k", timestamp_ms=AT)
    seen: list[object] = []

    def number(value: bytes) -> int:
        seen.append(value)
        return int(value)

    async with scene.consumer(key_deserializer=bytes.decode, value_deserializer=number) as consumer:
        here = scene.tp(topic)
        consumer.assign([here])
        say(await asyncio.wait_for(consumer.getone(), PATIENCE))
        await scene.tried("x", lambda: asyncio.wait_for(consumer.getone(), PATIENCE))
        say(await consumer.position(here))
        consumer.seek(here, 2)
        say((await asyncio.wait_for(consumer.getone(), PATIENCE)).value)
    async with scene.consumer(topic) as consumer:
        consumer.seek(here, 3)
        say(await asyncio.wait_for(consumer.getone(), PATIENCE))


async def reads_without_an_offset(scene: Scene) -> None:
    topic = scene.topic()
    await scene.fill(topic, 2)
    here = scene.tp(topic)
    async with scene.consumer(auto_offset_reset="none", group_id=scene.group()) as consumer:
        consumer.assign([here])
        await scene.tried("none", lambda: asyncio.wait_for(consumer.getone(), PATIENCE))
        consumer.seek(here, 1)
        scene.say(await scene.values(consumer, 1))
        consumer.seek(here, 100)
        await scene.tried("beyond", lambda: asyncio.wait_for(consumer.getone(), PATIENCE))
        await scene.tried("many", lambda: consumer.getmany(timeout_ms=2000))


async def gets_commit_errors(scene: Scene) -> None:
    topic = scene.topic()
    await scene.fill(topic, 2)
    async with scene.consumer(topic, group_id=scene.group(), enable_auto_commit=False) as consumer:
        scene.say(await scene.values(consumer, 1))
        for name in ("ILLEGAL_GENERATION", "GROUP_AUTHORIZATION_FAILED"):
            scene.cluster.refuse("OffsetCommit", name, 1)
            await scene.tried(name, consumer.commit)
            scene.cluster.heal()


async def connects_to_no_broker(scene: Scene) -> None:
    for kind in (scene.kafka.AIOKafkaProducer, scene.kafka.AIOKafkaConsumer):
        client = kind(bootstrap_servers="127.0.0.1:1", request_timeout_ms=600)
        await scene.tried("start", client.start)
        await client.stop()


async def reads_committed(scene: Scene) -> None:
    topic, say = scene.topic(), scene.say
    here = scene.tp(topic)
    async with scene.producer(transactional_id=f"txn-{scene.number}") as producer:
        await producer.begin_transaction()
        await producer.send_and_wait(topic, b"1")
        async with scene.consumer(topic, isolation_level="read_committed") as consumer:
            say(await consumer.getmany(timeout_ms=300))
            say(consumer.last_stable_offset(here), consumer.highwater(here))
            say(await consumer.end_offsets([here]))
            await producer.commit_transaction()
            say(await scene.values(consumer, 1))
            await consumer.getmany(timeout_ms=700)
            say(consumer.last_stable_offset(here), consumer.highwater(here))


# The admin client


async def creates_topics(scene: Scene) -> None:
    admin_module, say = scene.sub("admin"), scene.say
    admin = admin_module.AIOKafkaAdminClient(bootstrap_servers=scene.cluster.bootstrap_servers)
    await admin.start()
    one, two = (admin_module.NewTopic(f"{n}-{scene.number}", 2, 1) for n in ("one", "two"))
    codes = [error[:2] for error in (await admin.create_topics([one, two])).topic_errors]
    say(codes)
    found = (await admin.create_topics([one])).to_object()["topic_errors"][0]
    say(found["topic"], found["error_code"], "exists" in found["error_message"])
    say((await admin.create_topics([one], validate_only=True)).topic_errors[0][1])
    say({one.name, two.name} <= set(await admin.list_topics()))
    for name in (one.name, "there-is-none"):
        [topic] = await admin.describe_topics([name])
        say(topic["topic"], topic["error_code"], topic["is_internal"])
        say([(p["partition"], len(p["replicas"]), p["leader"] > 0) for p in topic["partitions"]])
    say(sorted(await admin.describe_cluster()))
    say((await admin.delete_topics([two.name, "there-is-none"])).topic_error_codes)
    await scene.tried("wrong", lambda: admin_module.NewTopic("x", -1, -1))
    await admin.close()


PROGRAMS: tuple[Program, ...] = (
    sends_one_by_one,
    gathers_futures,
    sends_invalid_arguments,
    serializes,
    fills_batches,
    acknowledges,
    gets_produce_errors,
    compresses,
    commits_and_aborts,
    misuses_transactions,
    sends_offsets,
    is_fenced,
    fences_by_starting,
    assigns,
    reads_many,
    waits_without_records,
    iterates,
    reads_offsets,
    reads_in_a_group,
    listens_to_rebalances,
    starts_one_after_the_other,
    starts_at_the_end,
    subscribes_by_pattern,
    subscribes_again,
    reads_without_a_group,
    sees_new_partitions,
    calls_with_invalid_arguments,
    deserializes,
    reads_without_an_offset,
    gets_commit_errors,
    connects_to_no_broker,
    reads_committed,
    creates_topics,
)
