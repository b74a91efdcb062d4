"""Provide a small aiokafka program with a library, a cluster and a list for its notes."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from importlib import import_module
from types import ModuleType
from typing import Any

from odradek.testing import FakeCluster

PATIENCE = 60.0
AT = 1_700_000_000_000


@dataclass
class Scene:
    """Library, cluster and notes of a program."""

    library: str
    cluster: FakeCluster
    number: int
    said: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.kafka: Any = import_module(self.library)
        self.errors = self.sub("errors")

    def sub(self, name: str) -> Any:
        """Return a submodule of the library."""
        module: ModuleType = import_module(f"{self.library}.{name}")
        return module

    def topic(self, partitions: int = 1, name: str = "t") -> str:
        """Create a topic for this run and return its name."""
        topic = f"{name}-{self.number}"
        self.cluster.create_topic(topic, partitions)
        return topic

    def group(self) -> str:
        return f"group-{self.number}"

    def say(self, *what: object) -> None:
        """Add a note; names of topics and groups in it lose the suffix with this run's number."""
        text = " ".join(map(str, what)).replace(f"-{self.number}", "")
        # odradek's producer doesn't keep the log start offset.
        self.said.append(text.replace("log_start_offset=0", "log_start_offset=None"))

    async def tried(self, what: str, call: Callable[[], Any]) -> None:
        """Note how a call ends: with a value, or with an error."""
        try:
            found = call()
            if asyncio.iscoroutine(found) or isinstance(found, asyncio.Future):
                found = await found
        except Exception as error:
            shown = getattr(error, "errno", "")
            self.say(what, "raised", type(error).__name__, shown)
        else:
            self.say(what, "gave", found)

    def producer(self, **settings: Any) -> Any:
        servers = self.cluster.bootstrap_servers
        return self.kafka.AIOKafkaProducer(bootstrap_servers=servers, **settings)

    def consumer(self, *topics: str, **settings: Any) -> Any:
        settings = {"auto_offset_reset": "earliest", **settings}
        servers = self.cluster.bootstrap_servers
        return self.kafka.AIOKafkaConsumer(*topics, bootstrap_servers=servers, **settings)

    def tp(self, topic: str, partition: int = 0) -> Any:
        return self.kafka.TopicPartition(topic, partition)

    async def fill(self, topic: str, count: int, partition: int = 0, first: int = 0) -> None:
        """Write `count` records whose values and timestamps contain their number."""
        async with self.producer() as producer:
            for n in range(first, first + count):
                value = str(n).encode()
                await producer.send_and_wait(topic, value, partition=partition, timestamp_ms=AT + n)

    async def values(self, consumer: Any, count: int) -> list[bytes]:
        """Return the next `count` values in the order in which they arrive."""
        async with asyncio.timeout(PATIENCE):
            return [(await consumer.getone()).value for _ in range(count)]

    async def written(self, topic: str, count: int, partitions: int = 1) -> list[list[Any]]:
        """Return the records of each partition once there are `count`.

        With acks=1, the default of aiokafka, a record is acknowledged before the other brokers have
        it.
        """

        def rows() -> list[list[Any]]:
            return [list(self.cluster.records(topic, n)) for n in range(partitions)]

        await self.until(lambda: sum(map(len, rows())) >= count)
        return rows()

    async def until(self, true: Callable[[], Any]) -> None:
        """Wait until a condition is true."""
        async with asyncio.timeout(PATIENCE):
            while not true():
                await asyncio.sleep(0.02)
