"""Scripted Produce responses: which batches are appended, with which error, and late duplicates."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from copy import deepcopy
from dataclasses import dataclass, field
from typing import Any

import pytest

from odradek.api.base import on_host
from odradek.api.producer import Producer
from odradek.protocol.message import Message
from odradek.protocol.messages import produce as p
from odradek.record import BatchHeader, read_header
from odradek.simulation import SimulatedCluster, World
from odradek.simulation.brokers.broker import SimulatedBroker
from odradek.simulation.brokers.broker_handlers import BY_KEY

PARTITIONS = 3
APPENDED, REFUSED = "appended", "refused"
KEY = p.ProduceRequest.API_KEY


@dataclass
class Arrival:
    """A batch that a leader received."""

    topic: p.TopicProduceData
    partition: int
    header: BatchHeader
    broker: SimulatedBroker
    body: p.ProduceRequest
    version: int
    said: int | None = None
    """Error code of the scripted response; None if the broker's own response was sent."""

    @property
    def numbers(self) -> tuple[int, int]:
        """Producer epoch and base sequence of the batch."""
        return self.header.producer_epoch, self.header.base_sequence


Rule = Callable[[Arrival], tuple[str, int] | None]


@dataclass
class ProduceScript:
    """Scripted leaders: `rule` returns whether a batch is appended and the error code; or None."""

    rule: Rule = lambda _: None
    arrivals: list[Arrival] = field(default_factory=list)

    def install(self, patch: pytest.MonkeyPatch) -> ProduceScript:
        """Handle Produce requests of all brokers before their own handler."""
        self._work: Callable[..., Message | None] = BY_KEY[KEY]
        patch.setitem(BY_KEY, KEY, self._produce)
        return self

    def of(self, partition: int) -> list[Arrival]:
        """Return the batches that were received for a partition."""
        return [a for a in self.arrivals if a.partition == partition]

    def arrive_late(self, arrival: Arrival) -> None:
        """Append the batch again, as if it had arrived late on a closed connection."""
        body = deepcopy(arrival.body)
        body.topic_data = [deepcopy(arrival.topic)]
        self._work(arrival.broker, body, arrival.version, lambda _: None)

    def _produce(
        self, broker: SimulatedBroker, body: Any, version: int, reply: Callable[..., None]
    ) -> Message | None:
        refused: list[tuple[p.TopicProduceData, int, int]] = []
        altered: dict[tuple[str, bytes, int], int] = {}
        for topic in list(body.topic_data):
            for data in list(topic.partition_data):
                data.records = bytes(data.records)
                header = read_header(memoryview(data.records))
                alone = p.TopicProduceData(topic.name, topic.topic_id, [deepcopy(data)])
                arrival = Arrival(alone, data.index, header, broker, body, version)
                self.arrivals.append(arrival)
                decided = self.rule(arrival)
                if decided is None:
                    continue
                kind, arrival.said = decided
                if kind == REFUSED:
                    topic.partition_data.remove(data)
                    refused.append((topic, data.index, arrival.said))
                else:
                    altered[topic.name, topic.topic_id, data.index] = arrival.said

        def answer(response: Message | None) -> None:
            if response is None:  # acks=0 has no response
                reply(None)
                return
            assert isinstance(response, p.ProduceResponse)
            _alter(response, altered)
            for topic, index, code in refused:
                said = p.PartitionProduceResponse(index, code, -1)
                of_topic = p.TopicProduceResponse(topic.name, topic.topic_id, [said])
                response.responses.append(of_topic)
            reply(response)

        response = self._work(broker, body, version, answer)
        if response is not None:
            answer(response)
        return None


def _alter(response: p.ProduceResponse, altered: dict[tuple[str, bytes, int], int]) -> None:
    for topic in response.responses:
        for found in topic.partition_responses:
            code = altered.get((topic.name, topic.topic_id, found.index))
            if code is not None and not found.error_code:
                found.error_code, found.base_offset = code, -1


def times(count: int, kind: str, code: int, wanted: Callable[[Arrival], bool]) -> Rule:
    """Return a rule with the same response for the first `count` matching batches."""
    left = [count]

    def rule(arrival: Arrival) -> tuple[str, int] | None:
        if not left[0] or not wanted(arrival):
            return None
        left[0] -= 1
        return kind, code

    return rule


def either(rules: Sequence[Rule]) -> Rule:
    """Return a rule that takes the first response of several rules."""

    def rule(arrival: Arrival) -> tuple[str, int] | None:
        return next((found for one in rules if (found := one(arrival)) is not None), None)

    return rule


Scripted = Callable[..., tuple[World, SimulatedCluster, Producer, ProduceScript]]


def make(
    seed: int,
    *,
    brokers: int = 3,
    partitions: int = PARTITIONS,
    replicas: int | None = None,
    **config: Any,
) -> tuple[World, SimulatedCluster, Producer]:
    """Create a cluster with topic t, and a producer."""
    world = World(seed=seed)
    cluster = SimulatedCluster(world, brokers=brokers)
    cluster.create_topic("t", partitions=partitions, replication_factor=replicas)
    settings = {"bootstrap.servers": cluster.bootstrap_servers, **config}
    return world, cluster, on_host(world.host("producer"), Producer, settings)


def every_broker(cluster: SimulatedCluster, verb: str) -> None:
    """Apply a fault to every broker."""
    for i in cluster.brokers:
        getattr(cluster, verb)(i)


def leader_of(cluster: SimulatedCluster, partition: int = 0, topic: str = "t") -> SimulatedBroker:
    """Return the leader of a partition."""
    found = cluster.leader(topic, partition)
    assert found is not None
    return found


def values(cluster: SimulatedCluster, partition: int) -> list[int]:
    """Return the values in a partition of t as numbers."""
    return [int(bytes(row[4] or b"")) for row in cluster.records("t", partition)]


def value(n: int) -> bytes:
    return b"%03d" % n * 30  # large enough to fill a batch


def numbers(cluster: SimulatedCluster, partition: int = 0) -> list[int]:
    """Return the values of a partition as numbers, without the first record."""
    rows = [bytes(row[4] or b"") for row in cluster.records("t", partition)]
    return [int(row[:3]) for row in rows if row != b"first"]


def sequence(n: int) -> Callable[[Arrival], bool]:
    """Return a matcher of batches of partition 0 with this base sequence and producer epoch 0."""
    return lambda a: a.partition == 0 and a.numbers == (0, n)
