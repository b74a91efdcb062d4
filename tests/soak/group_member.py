"""One member of a group as a program of its own, so that a soak can stop it with SIGSTOP.

In: its settings as JSON on the command line. Out: the records that it received and the result of
each commit, as JSON lines on stdout. It closes its client and ends when its stdin is closed.
Must not: judge the results.
"""

from __future__ import annotations

import asyncio
import gc
import json
import logging
import select
import sys
import threading
import time
from collections.abc import Callable, Iterable
from functools import partial
from typing import Any

from tests.soak.slopes import objects_by_type

from odradek.api.asyncio_consumer import AsyncConsumer
from odradek.api.consumer import Consumer
from odradek.api.workers import Workers
from odradek.clients.consumer.records import ConsumerRecord, OffsetAndMetadata
from odradek.common.errors import KafkaError
from odradek.common.types import TopicPartition

AT_ONCE = 20
"""The largest number of records of a poll; the program holds all of them while it works."""
WORK = 0.02
"""Seconds of work for each record."""
POLL = 0.3
STOPPED = 2.0
"""If the work on a record takes longer, in seconds, the process was probably stopped."""
BUSY = 4.0
"""Seconds for which a program still holds its records after a stop, while its client rejoins."""
SAMPLE = 10.0
"""Seconds between two reports of the number of Python objects."""
_telling = threading.Lock()


def tell(kind: str, **what: Any) -> None:
    """Write one line for the soak."""
    with _telling:
        sys.stdout.write(json.dumps({"kind": kind, "at": time.monotonic(), **what}) + "\n")
        sys.stdout.flush()


def rebalanced(*_: object) -> None:
    """Report that partitions were assigned, revoked or lost, so positions may change."""
    tell("rebalanced")


def lost(*_: object) -> None:
    """Report that the member was removed from its group."""
    tell("lost")


CALLBACKS: dict[str, Any] = {
    "on_assigned": rebalanced, "on_revoked": rebalanced, "on_lost": lost,
}  # fmt: skip


def watch_objects() -> None:
    """Report the number of Python objects every `SAMPLE` seconds."""
    while True:
        time.sleep(SAMPLE)
        gc.collect()
        tell("objects", count=objects_by_type().total())


def got(records: Iterable[ConsumerRecord]) -> None:
    """Report records that a poll returned to the program."""
    rows = [[r.partition, r.offset, bytes(r.value or b"").decode()] for r in records]
    tell("got", rows=rows)


def stopped() -> bool:
    """Return whether the soak has closed stdin."""
    return bool(select.select([sys.stdin], [], [], 0.0)[0])


def busy(since: float) -> float:
    """Return the seconds to remain busy: above 0 if the process was stopped since this time."""
    return BUSY if time.monotonic() - since > STOPPED else 0.0


def attempt(commit: Callable[[], object], offsets: dict[int, int]) -> None:
    """Commit, and report the result."""
    tell("commit", offsets=offsets)
    try:
        commit()
    except KafkaError as error:
        tell("refused", offsets=offsets, error=f"{type(error).__name__}: {error}")
    else:
        tell("committed", offsets=offsets)


def ends(records: Iterable[ConsumerRecord]) -> dict[int, int]:
    """Return the offset after the last record of each partition."""
    found: dict[int, int] = {}
    for record in records:
        found[record.partition] = max(found.get(record.partition, 0), record.offset + 1)
    return found


def read(consumer: Consumer, topic: str, style: str) -> None:
    """Poll, work, and commit as `style` says, until the soak ends."""

    def done(offsets: dict[TopicPartition, OffsetAndMetadata], error: KafkaError | None) -> None:
        told = {p.partition: o.offset for p, o in offsets.items()}
        if error is None:
            tell("committed", offsets=told)
        else:
            tell("refused", offsets=told, error=f"{type(error).__name__}: {error}")

    consumer.subscribe([topic], **CALLBACKS)
    while not stopped():
        try:
            records = consumer.poll(POLL, AT_ONCE)
        except KafkaError as error:
            tell("error", error=f"{type(error).__name__}: {error}")
            time.sleep(POLL)
            continue
        got(records)
        for record in records:
            since = time.monotonic()
            time.sleep(WORK)
            time.sleep(busy(since))
            if style == "record":
                attempt(partial(consumer.commit, record), ends([record]))
        if style == "all" and records:
            attempt(consumer.commit, ends(records))
        elif style == "later" and records:
            offsets = {TopicPartition(topic, p): o for p, o in ends(records).items()}
            try:
                consumer.commit_async(offsets, done)
            except KafkaError as error:
                done({p: OffsetAndMetadata(o) for p, o in offsets.items()}, error)


async def read_in_loop(config: dict[str, Any], topic: str) -> None:
    """Poll, work, and commit with `AsyncConsumer`, as a task of an event loop."""
    async with AsyncConsumer(config) as consumer:
        await consumer.subscribe([topic], **CALLBACKS)
        while not stopped():
            try:
                records = await consumer.poll(POLL, AT_ONCE)
            except KafkaError as error:
                tell("error", error=f"{type(error).__name__}: {error}")
                await asyncio.sleep(POLL)
                continue
            got(records)
            for record in records:
                since = time.monotonic()
                await asyncio.sleep(WORK)
                await asyncio.sleep(busy(since))
                offsets = ends([record])
                tell("commit", offsets=offsets)
                try:
                    await consumer.commit(record)
                except KafkaError as error:
                    tell("refused", offsets=offsets, error=f"{type(error).__name__}: {error}")
                else:
                    tell("committed", offsets=offsets)


def work(consumer: Consumer, topic: str) -> None:
    """Read and commit with `Workers`."""

    def one(record: ConsumerRecord) -> None:
        got([record])
        since = time.monotonic()
        time.sleep(WORK)
        time.sleep(busy(since))

    def wait_for_end() -> None:
        sys.stdin.read()
        workers.stop()

    workers = Workers(consumer, one, commit_interval=0.2)
    threading.Thread(target=wait_for_end, daemon=True).start()
    try:
        workers.run(topic)
    except KafkaError as error:
        tell("error", error=f"{type(error).__name__}: {error}")


def like_confluent(config: dict[str, Any], topic: str) -> None:
    """Poll, work, and commit with the consumer that has confluent-kafka's interface."""
    from odradek.compat.confluent_kafka import Consumer as ConfluentConsumer
    from odradek.compat.confluent_kafka import KafkaException

    consumer = ConfluentConsumer(config)
    consumer.subscribe([topic], on_assign=rebalanced, on_revoke=rebalanced, on_lost=lost)
    while not stopped():
        for message in consumer.consume(AT_ONCE, POLL):
            if (error := message.error()) is not None:
                tell("error", error=f"{error.name()}: {error}")
                continue
            partition, offset = message.partition(), message.offset()
            assert partition is not None
            assert offset is not None
            tell("got", rows=[[partition, offset, bytes(message.value() or b"").decode()]])
            since = time.monotonic()
            time.sleep(WORK)
            time.sleep(busy(since))
            offsets = {partition: offset + 1}
            tell("commit", offsets=offsets)
            try:
                consumer.commit(message, asynchronous=False)
            except KafkaException as error:
                tell("refused", offsets=offsets, error=f"{_name(error)}: {error}")
            else:
                tell("committed", offsets=offsets)
    consumer.close()


def _name(error: Any) -> str:
    return str(error.args[0].name())


async def like_aiokafka(config: dict[str, Any], topic: str) -> None:
    """Poll, work, and commit with the consumer that has aiokafka's interface."""
    from odradek.compat.aiokafka import AIOKafkaConsumer
    from odradek.compat.aiokafka import TopicPartition as Place
    from odradek.compat.aiokafka.abc import ConsumerRebalanceListener
    from odradek.compat.aiokafka.coordinator.assignors.range import RangePartitionAssignor
    from odradek.compat.aiokafka.errors import KafkaError as TheirError

    rebalances = 0

    class Listener(ConsumerRebalanceListener):
        async def on_partitions_revoked(self, revoked: Any) -> None:
            nonlocal rebalances
            rebalances += 1
            tell("rebalanced")

        async def on_partitions_assigned(self, assigned: Any) -> None:
            tell("rebalanced")

    given = {name.replace(".", "_"): value for name, value in config.items()}
    given["partition_assignment_strategy"] = [RangePartitionAssignor]
    for theirs, ours in (("sasl_mechanism", "sasl_mechanisms"),
                         ("sasl_plain_username", "sasl_username"),
                         ("sasl_plain_password", "sasl_password")):  # fmt: skip
        if ours in given:
            given[theirs] = given.pop(ours)
    consumer = AIOKafkaConsumer(**given)
    consumer.subscribe([topic], listener=Listener())
    await consumer.start()
    try:
        while not stopped():
            try:
                found = await consumer.getmany(timeout_ms=int(POLL * 1000), max_records=AT_ONCE)
            except TheirError as error:
                tell("error", error=f"{type(error).__name__}: {error}")
                await asyncio.sleep(POLL)
                continue
            before = rebalances
            for record in (record for records in found.values() for record in records):
                if rebalances != before:
                    break  # other members may have read the rest, and committed more of it
                value = bytes(record.value or b"").decode()
                tell("got", rows=[[record.partition, record.offset, value]])
                since = time.monotonic()
                await asyncio.sleep(WORK)
                await asyncio.sleep(busy(since))
                if rebalances != before:
                    break
                offsets = {record.partition: record.offset + 1}
                tell("commit", offsets=offsets)
                try:
                    await consumer.commit({Place(topic, record.partition): record.offset + 1})
                except TheirError as error:
                    tell("refused", offsets=offsets, error=f"{type(error).__name__}: {error}")
                else:
                    tell("committed", offsets=offsets)
    finally:
        await consumer.stop()


def main() -> None:
    """Run as the command line says."""
    told = json.loads(sys.argv[1])
    config, topic, style = told["config"], told["topic"], told["style"]
    logging.basicConfig(stream=sys.stderr, format="%(asctime)s %(name)s %(message)s")
    tell("began", style=style)
    threading.Thread(target=watch_objects, daemon=True).start()
    if style == "asyncio":
        asyncio.run(read_in_loop(config, topic))
    elif style == "confluent":
        like_confluent(config, topic)
    elif style == "aiokafka":
        asyncio.run(like_aiokafka(config, topic))
    else:
        with Consumer(config) as consumer:
            if style == "workers":
                work(consumer, topic)
            else:
                read(consumer, topic, style)
    tell("ended")


if __name__ == "__main__":
    main()
