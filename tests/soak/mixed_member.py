"""Run one member of a group, of Odradek or of another Python client, as a process.

In: the client, its settings by Kafka's names and its topics, as JSON on the command line; lines on
stdin: `hold SECONDS` for a batch that takes this long. Out: assignments, records that were read,
and the member's end, as JSON lines on stdout. It closes its consumer when its stdin is closed. Must
not: judge the results.
"""

from __future__ import annotations

import asyncio
import json
import logging
import sys
import threading
import time
from collections.abc import Callable, Iterable
from typing import Any

AT_ONCE = 20
"""The largest number of records of one poll."""
POLL = 0.2
_writing = threading.Lock()
"""A lock for stdout, because some clients run callbacks in other threads."""


def tell(kind: str, **what: Any) -> None:
    """Write one line for the soak."""
    with _writing:
        sys.stdout.write(json.dumps({"kind": kind, "at": time.monotonic(), **what}) + "\n")
        sys.stdout.flush()


def tell_partitions(kind: str, partitions: Iterable[Any]) -> None:
    """Report partitions that were assigned, revoked or lost."""
    tell(kind, partitions=[f"{p.topic}-{p.partition}" for p in partitions])


def tell_read(rows: Iterable[tuple[str, int, int]]) -> None:
    """Report records by topic, partition and offset."""
    if found := [[f"{topic}-{partition}", offset] for topic, partition, offset in rows]:
        tell("read", rows=found)


class Orders:
    """Commands of the soak: seconds of the next batch, and the end of stdin."""

    def __init__(self) -> None:
        self.ended = False
        self._holds: list[float] = []
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self) -> None:
        for line in sys.stdin:
            self._holds.append(float(line.split()[1]))
        self.ended = True

    def take_hold(self) -> float:
        """Return the additional seconds of this batch; 0.0 without a command."""
        return self._holds.pop(0) if self._holds else 0.0


def hold(orders: Orders) -> None:
    """Work on a batch for the additional seconds, if the soak has sent a command."""
    if seconds := orders.take_hold():
        tell("holds", seconds=seconds)
        time.sleep(seconds)
        tell("held")


def ours(orders: Orders, config: dict[str, Any], topics: list[str]) -> None:
    """Run Odradek's `Consumer`."""
    from odradek.api.consumer import Consumer
    from odradek.common.errors import KafkaError

    by_hand = not config["enable.auto.commit"]
    with Consumer(config) as consumer:
        callbacks: dict[str, Any] = {
            "on_assigned": lambda _, p: tell_partitions("assigned", p),
            "on_revoked": lambda _, p: tell_partitions("revoked", p),
            "on_lost": lambda _, p: tell_partitions("lost", p),
        }
        if topics[0].startswith("^"):
            consumer.subscribe(pattern=topics[0], **callbacks)
        else:
            consumer.subscribe(topics, **callbacks)
        while not orders.ended:
            records = consumer.poll(POLL, AT_ONCE)
            tell_read((r.topic, r.partition, r.offset) for r in records)
            hold(orders)
            if by_hand and records:
                try:
                    consumer.commit()
                except KafkaError as error:
                    tell("refused", error=f"{type(error).__name__}: {error}")


async def _ours_in_loop(orders: Orders, config: dict[str, Any], topics: list[str]) -> None:
    from odradek.api.asyncio_consumer import AsyncConsumer

    async with AsyncConsumer(config) as consumer:
        callbacks: dict[str, Any] = {
            "on_assigned": lambda _, p: tell_partitions("assigned", p),
            "on_revoked": lambda _, p: tell_partitions("revoked", p),
            "on_lost": lambda _, p: tell_partitions("lost", p),
        }
        if topics[0].startswith("^"):
            await consumer.subscribe(pattern=topics[0], **callbacks)
        else:
            await consumer.subscribe(topics, **callbacks)
        while not orders.ended:
            records = await consumer.poll(POLL, AT_ONCE)
            tell_read((r.topic, r.partition, r.offset) for r in records)
            if seconds := orders.take_hold():
                tell("holds", seconds=seconds)
                await asyncio.sleep(seconds)
                tell("held")


def ours_in_loop(orders: Orders, config: dict[str, Any], topics: list[str]) -> None:
    """Run Odradek's `AsyncConsumer`."""
    asyncio.run(_ours_in_loop(orders, {**config, "enable.auto.commit": True}, topics))


def confluent(orders: Orders, config: dict[str, Any], topics: list[str]) -> None:
    """Run confluent-kafka's consumer."""
    from confluent_kafka import Consumer, KafkaError, KafkaException
    from tests.interop.other_client import settings

    servers = config.pop("bootstrap.servers")
    consumer = Consumer(settings(servers, **config))
    try:
        consumer.subscribe(
            topics,
            on_assign=lambda _, p: tell_partitions("assigned", p),
            on_revoke=lambda _, p: tell_partitions("revoked", p),
            on_lost=lambda _, p: tell_partitions("lost", p),
        )
        while not orders.ended:
            message = consumer.poll(POLL)
            error = message.error() if message is not None else None
            if message is None:
                hold(orders)
            elif error is None:
                tell_read(
                    [(message.topic() or "", message.partition() or 0, message.offset() or 0)]
                )
                hold(orders)
            elif error.code() == KafkaError._MAX_POLL_EXCEEDED:
                tell("refused", error=str(error))
            elif error.code() != KafkaError.UNKNOWN_TOPIC_OR_PART:
                raise KafkaException(error)
    finally:
        consumer.close()


def _with_underscores(config: dict[str, Any]) -> dict[str, Any]:
    found = {name.replace(".", "_"): value for name, value in config.items()}
    found.pop("allow_auto_create_topics", None)
    return found


async def _aiokafka(orders: Orders, config: dict[str, Any], topics: list[str]) -> None:
    from aiokafka import AIOKafkaConsumer
    from aiokafka.abc import ConsumerRebalanceListener
    from aiokafka.coordinator.assignors.range import RangePartitionAssignor
    from aiokafka.coordinator.assignors.roundrobin import RoundRobinPartitionAssignor
    from aiokafka.coordinator.assignors.sticky.sticky_assignor import StickyPartitionAssignor

    class Listener(ConsumerRebalanceListener):  # type: ignore[misc]
        async def on_partitions_revoked(self, revoked: Any) -> None:
            tell_partitions("revoked", revoked)

        async def on_partitions_assigned(self, assigned: Any) -> None:
            tell_partitions("assigned", assigned)

    given = _with_underscores(config)
    by_name = {
        "range": RangePartitionAssignor,
        "roundrobin": RoundRobinPartitionAssignor,
        "sticky": StickyPartitionAssignor,
    }
    given["partition_assignment_strategy"] = (by_name[given["partition_assignment_strategy"]],)
    given["rebalance_timeout_ms"] = given["max_poll_interval_ms"]
    consumer = AIOKafkaConsumer(**given)
    consumer.subscribe(topics, listener=Listener())
    await consumer.start()
    try:
        while not orders.ended:
            found = await consumer.getmany(timeout_ms=int(POLL * 1000), max_records=AT_ONCE)
            for records in found.values():
                tell_read((r.topic, r.partition, r.offset) for r in records)
            if seconds := orders.take_hold():
                tell("holds", seconds=seconds)
                await asyncio.sleep(seconds)
                tell("held")
    finally:
        await consumer.stop()


def aiokafka(orders: Orders, config: dict[str, Any], topics: list[str]) -> None:
    """Run aiokafka's consumer."""
    asyncio.run(_aiokafka(orders, config, topics))


def kafka_python(orders: Orders, config: dict[str, Any], topics: list[str]) -> None:
    """Run kafka-python's consumer."""
    from kafka import ConsumerRebalanceListener, KafkaConsumer
    from kafka.coordinator.assignors.cooperative_sticky import CooperativeStickyAssignor
    from kafka.coordinator.assignors.range import RangePartitionAssignor
    from kafka.coordinator.assignors.roundrobin import RoundRobinPartitionAssignor
    from kafka.coordinator.assignors.sticky.sticky_assignor import StickyPartitionAssignor

    class Listener(ConsumerRebalanceListener):  # type: ignore[misc]
        def on_partitions_revoked(self, revoked: Any) -> None:
            tell_partitions("revoked", revoked)

        def on_partitions_assigned(self, assigned: Any) -> None:
            tell_partitions("assigned", assigned)

        def on_partitions_lost(self, lost: Any) -> None:
            tell_partitions("lost", lost)

    kinds = (
        *(RangePartitionAssignor, RoundRobinPartitionAssignor, StickyPartitionAssignor),
        CooperativeStickyAssignor,
    )
    given = _with_underscores(config)
    chosen = given["partition_assignment_strategy"]
    given["partition_assignment_strategy"] = [k for k in kinds if k.name == chosen]
    consumer = KafkaConsumer(**given, allow_auto_create_topics=False)
    try:
        consumer.subscribe(topics, listener=Listener())
        while not orders.ended:
            found = consumer.poll(timeout_ms=int(POLL * 1000), max_records=AT_ONCE)
            for records in found.values():
                tell_read((r.topic, r.partition, r.offset) for r in records)
            hold(orders)
    finally:
        consumer.close()


CLIENTS: dict[str, Callable[[Orders, dict[str, Any], list[str]], None]] = {
    "ours": ours,
    "asyncio": ours_in_loop,
    "confluent": confluent,
    "aiokafka": aiokafka,
    "kafka-python": kafka_python,
}


def main() -> None:
    """Run as the command line says."""
    told = json.loads(sys.argv[1])
    logging.basicConfig(
        stream=sys.stderr, format="%(asctime)s %(name)s %(message)s", level=logging.WARNING
    )
    tell("began")
    try:
        CLIENTS[told["client"]](Orders(), told["config"], told["topics"])
    except Exception as error:
        tell("error", error=f"{type(error).__name__}: {error}")
        raise
    tell("ended")


if __name__ == "__main__":
    main()
