"""auto.offset.reset by duration (KIP-1106): the first record that is young enough, or the end."""

from __future__ import annotations

from typing import Any

import pytest

from odradek.api.base import on_host
from odradek.api.consumer import Consumer
from odradek.api.producer import Producer
from odradek.common.types import TopicPartition
from odradek.protocol.messages.list_offsets import ListOffsetsRequest
from odradek.simulation import SimulatedCluster, World
from odradek.simulation.brokers.broker import SimulatedBroker
from odradek.simulation.world.environment import ReceivedRequest

FULL, EMPTY = TopicPartition("t", 0), TopicPartition("t", 1)


def make(seed: int, reset: str, **config: Any) -> tuple[World, SimulatedCluster, Consumer]:
    """Ten records of partition 0, an hour between each and the next, the last one just now."""
    world = World(seed=seed)
    cluster = SimulatedCluster(world, brokers=3)
    cluster.create_topic("t", partitions=2)
    now_ms = int(world.wall_clock() * 1000)
    write(world, cluster, *(now_ms - (9 - n) * 3_600_000 for n in range(10)))
    client = on_host(
        world.host("consumer"),
        Consumer,
        bootstrap_servers=cluster.bootstrap_servers,
        auto_offset_reset=reset,
        **config,
    )
    return world, cluster, client


def write(world: World, cluster: SimulatedCluster, *times: int, partition: int = 0) -> None:
    host = world.host(f"producer-{world.now}-{partition}")
    with on_host(host, Producer, bootstrap_servers=cluster.bootstrap_servers) as producer:
        for at in times:
            producer.send("t", b"x", partition=partition, timestamp_ms=at)
        producer.flush(timeout=60)


@pytest.mark.parametrize(
    ("reset", "offset"),
    [
        ("by_duration:PT30M", 9),
        ("by_duration:PT3H1M", 6),
        ("by_duration:P7D", 0),
        ("by_duration:P99999D", 0),  # before 1970
    ],
)
def test_the_first_record_that_is_young_enough(reset: str, offset: int) -> None:
    world, _, client = make(1, reset)
    client.assign([FULL, EMPTY])
    assert client.position(FULL, 5) == offset
    assert client.position(EMPTY, 5) == 0
    assert client.poll(1.0)[0].offset == offset
    assert not world.hot_loops


def test_the_end_where_no_record_is_young_enough() -> None:
    world, cluster, client = make(2, "by_duration:PT10S")
    world.advance(60)
    client.assign([FULL, EMPTY])
    assert (client.position(FULL, 5), client.position(EMPTY, 5)) == (10, 0)
    write(world, cluster, int(world.wall_clock() * 1000))
    assert [r.offset for r in client.poll(5.0)] == [10]


def test_the_clock_is_the_hosts_and_is_read_when_it_is_needed() -> None:
    world, _, client = make(3, "by_duration:PT3H1M")
    world.clock_offset = -2 * 3600.0
    client.assign([FULL])
    assert client.position(FULL, 5) == 4


def test_it_applies_to_a_position_outside_the_log_and_not_to_seeks() -> None:
    _, _, client = make(4, "by_duration:PT3H1M")
    client.assign([FULL])
    client.seek(FULL, 1000)
    assert client.poll(5.0)[0].offset == 6
    client.seek_to_beginning([FULL])
    assert client.position(FULL, 5) == 0
    client.seek_to_end([FULL])
    assert client.position(FULL, 5) == 10


def test_the_end_is_asked_for_before_the_time_so_that_nothing_comes_between() -> None:
    world, cluster, client = make(5, "by_duration:PT10S")
    asked: list[int] = []

    def look(broker: SimulatedBroker, host: str, request: ReceivedRequest) -> None:
        if isinstance(request.body, ListOffsetsRequest):
            asked.extend(p.timestamp for t in request.body.topics for p in t.partitions)

    cluster.observers.append(look)
    client.assign([EMPTY])
    begun_ms = world.wall_clock() * 1000
    assert client.position(EMPTY, 5) == 0
    assert asked[0] == -1
    assert len(asked) == 2
    assert begun_ms - 10_000 <= asked[1] <= begun_ms - 9_000


def test_an_answer_about_a_partition_that_was_taken_away_is_passed_over() -> None:
    world = World(seed=3)
    cluster = SimulatedCluster(world, brokers=3)
    cluster.create_topic("t", assignments={p: [p + 1] for p in range(3)})
    settings = {"bootstrap.servers": cluster.bootstrap_servers, "auto.offset.reset": "earliest"}
    with on_host(world.host("consumer"), Consumer, settings) as consumer:
        everything = [TopicPartition("t", p) for p in range(3)]
        consumer.assign(everything)
        consumer.poll(2.0)
        for broker, seconds in zip(cluster.brokers.values(), (0.2, 0.6, 1.8), strict=True):
            broker.processing = seconds
        consumer.assign([])
        consumer.assign(everything)
        consumer.poll(0.05)  # the offsets are asked for
        consumer.assign([everything[0], everything[2]])
        consumer.poll(5.0)  # one answer after the other
        assert cluster.brokers[2].requests["ListOffsets"] == 2
        assert consumer.position(everything[2]) == 0
