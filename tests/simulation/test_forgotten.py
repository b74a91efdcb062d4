"""Clients keep no state of unused topics (R-MD-7) and of addresses that left metadata.

Topics and addresses change in virtual time; then all objects that the clients reference are
searched.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import pytest
from tests.kept_objects import Kept
from tests.volume import WHOLE

from odradek import Admin, Consumer, KafkaError, Producer, TopicPartition
from odradek.clients.consumer.group.announced_ownership import REMEMBERED
from odradek.clients.producer.partition_queue import MOST_RESTING
from odradek.common.types import Address
from odradek.testing import KafkaSimulation

KEEP = "keep"
KEPT = {
    "PartitionQueues._resting": MOST_RESTING,
    "AnnouncedOwnership._known": REMEMBERED,
    "SubscriptionState._dropped": 100,
}
"""Containers that may keep unused topics and addresses, and their maximal sizes. Sequence numbers
of idempotent producers are kept as long as the producer id. Ended ownership of partitions and the
topic ids of the last rebalance are kept, because the caller may still commit their records (R-ID-1,
R-ID-3).
"""
SLACK = 32
"""Allowed difference per class: some objects come and go with requests and timers."""
IDLE = 60.0
"""metadata.max.idle.ms of these tests, in seconds."""


class Churn:
    """Clients of all kinds that use short-lived topics in a cluster whose brokers move."""

    def __init__(self, simulation: KafkaSimulation, topics: int, *, groups: bool = True) -> None:
        self.simulation, self.topics = simulation, topics
        self.addresses: set[Address] = set()
        self.seen_addresses: set[Address] = set()
        simulation.create_topic(KEEP, partitions=1)
        idle: dict[str, Any] = {"metadata_max_idle_ms": IDLE * 1000}
        read: dict[str, Any] = {**idle, "auto_offset_reset": "earliest"}
        read["fetch_max_wait_ms"] = 10_000  # idle consumers fetch rarely
        self.producer: Producer = simulation.producer(**idle)
        self.admin: Admin = simulation.admin(**idle)
        self.assigned: Consumer = simulation.consumer(**read)
        self.groups: dict[str, Consumer] = {}
        if groups:
            self.groups["classic"] = simulation.consumer(group_id="classic", **read)
            new: dict[str, Any] = {"group_id": "new", "group_protocol": "consumer"}
            self.groups["new"] = simulation.consumer(**new, **read)
            often: dict[str, Any] = {"group_id": "pattern", "metadata_max_age_ms": 5000}
            self.groups["pattern"] = simulation.consumer(**often, **read)
            self.groups["pattern"].subscribe(pattern="t-.*|keep")
        self.consumers = [self.assigned, *self.groups.values()]

    def clients(self) -> dict[str, Any]:
        others = {"assigned": self.assigned, "producer": self.producer, "admin": self.admin}
        return {**others, **self.groups}

    def round(self, number: int, moves: int) -> None:
        """Write and read new topics, and delete them before or after the last use."""
        names = [f"t-{number}-{n}" for n in range(self.topics)]
        for name in names:
            self.simulation.create_topic(name, partitions=2)
            self.producer.send(name, b"v")
        self.producer.flush(60.0)
        self.assigned.assign([TopicPartition(name, p) for name in names for p in range(2)])
        self.subscribe(names)
        self.admin.list_group_offsets([f"group-{name}" for name in names])
        for consumer in self.consumers:
            self.read(consumer, len(names))
        if number % 2:
            self.delete(names)
            for consumer in self.consumers:
                self.read(consumer, 1)
        for _ in range(moves):
            self.simulation.move(after=0.5)
            self.seen_addresses |= self.here()
            self.use_others()
        if not number % 2:
            self.delete(names)

    def subscribe(self, names: list[str]) -> None:
        for name, group in self.groups.items():
            if name != "pattern":
                group.subscribe(names)

    def read(self, consumer: Consumer, count: int) -> None:
        for _ in range(8):
            with suppress(KafkaError):  # the topic may be deleted already
                count -= len(consumer.poll(1.0))
            if count <= 0:
                return

    def delete(self, names: list[str]) -> None:
        for name in names:
            self.simulation.delete_topic(name)

    def use_others(self) -> None:
        """Use the topic that is never deleted."""
        self.assigned.assign([TopicPartition(KEEP, 0)])
        self.subscribe([KEEP])
        self.producer.send(KEEP, b"v")
        for consumer in self.consumers:
            with suppress(KafkaError):
                consumer.poll(1.0)
        self.admin.list_group_offsets(KEEP)
        self.simulation.advance(5.0)

    def rest(self, minutes: int) -> None:
        """Let this number of minutes pass with few calls."""
        for _ in range(minutes):
            self.use_others()
            self.simulation.advance(60.0)

    def here(self) -> set[Address]:
        """Return the current addresses of the brokers."""
        return {broker.address for broker in self.simulation.cluster.brokers.values()}

    def forgotten(self, one: Any) -> bool:
        """Return whether the object is a deleted topic or a former address of a broker."""
        if isinstance(one, str):
            return one.startswith(("t-", "group-t-"))
        if isinstance(one, Address):
            return one not in self.addresses
        return isinstance(one, tuple) and any(map(self.forgotten, one))

    def objects(self) -> Counter[str]:
        """Count objects by client and class."""
        found: Counter[str] = Counter()
        for name, client in self.clients().items():
            walk = Kept(client._calls, client, mentions=lambda _: False)
            found.update({f"{name}: {kind}": count for kind, count in walk.objects.items()})
        return found

    def kept(self) -> dict[str, int]:
        """Count former topics and addresses by client and container."""
        self.addresses = self.here() | {
            Address(host, int(port))
            for host, _, port in (
                one.rpartition(":") for one in self.simulation.bootstrap_servers.split(",")
            )
        }
        found = {}
        for name, client in self.clients().items():
            walk = Kept(client._calls, client, mentions=self.forgotten)
            for where, count in walk.mentioned.items():
                if count > KEPT.get(where, 0):
                    found[f"{name}: {where}"] = count
        return found


@pytest.fixture
def simulation() -> Iterator[KafkaSimulation]:
    with KafkaSimulation(seed=1, checkers=False) as made:
        yield made


def totals(client: Any, *names: str) -> dict[str, float]:
    """Return a client's totals of these counters over all topics and addresses."""
    found = {}
    for name in names:
        sums = [m.value for m in client.metrics().find(name) if set(m.tags) <= {"client-id"}]
        found[name] = max(sums)
    return found


def test_unused_topics_and_addresses_are_removed(
    simulation: KafkaSimulation,
) -> None:
    churn = Churn(simulation, topics=4 if WHOLE else 3)
    for number in range(4 if WHOLE else 2):
        churn.round(number, moves=2)
        churn.use_others()
    sent = "record-send-total", "request-total"
    read = "records-consumed-total", "bytes-consumed-total", "request-total"
    wrote, had = totals(churn.producer, *sent), totals(churn.assigned, *read)
    churn.rest(minutes=15)
    assert churn.kept() == {}
    assert all(value > wrote[name] for name, value in totals(churn.producer, *sent).items())
    assert all(value > had[name] for name, value in totals(churn.assigned, *read).items())


@pytest.mark.long
def test_the_number_of_objects_does_not_grow_with_former_topics_and_addresses(
    simulation: KafkaSimulation,
) -> None:
    churn = Churn(simulation, topics=500, groups=False)
    churn.round(0, moves=17)
    churn.rest(minutes=15)
    assert churn.kept() == {}
    before = churn.objects()
    for number in range(1, 21):
        churn.round(number, moves=17)
    assert len(churn.seen_addresses) > 1000
    churn.rest(minutes=15)
    assert churn.kept() == {}
    grown = churn.objects() - before
    numbers = {name: grown.pop(f"producer: {name}", 0) for name in ("Numbering", "TopicPartition")}
    assert max(numbers.values()) <= MOST_RESTING
    assert {name: count for name, count in grown.items() if count > SLACK} == {}
