"""auto.offset.reset by duration (KIP-1106): the first record that is recent enough, or the end."""

from __future__ import annotations

import pytest
from tests.simulation.scene import Stage

from odradek.api.consumer import Consumer
from odradek.common.types import TopicPartition
from odradek.protocol.messages.list_offsets import ListOffsetsRequest
from odradek.simulation.brokers.broker import SimulatedBroker
from odradek.simulation.world.environment import ReceivedRequest

FULL, EMPTY = TopicPartition("t", 0), TopicPartition("t", 1)


def make(seed: int, reset: str) -> tuple[Stage, Consumer]:
    """Write ten records to partition 0, one per hour, the last one now."""
    stage = Stage(seed, partitions=2)
    write(stage, *(-(9 - n) * 3600 for n in range(10)))
    return stage, stage.consumer(auto_offset_reset=reset)


def write(stage: Stage, *seconds: int) -> None:
    """Write records with these timestamps, relative to now."""
    with stage.producer() as producer:
        for at in seconds:
            now_ms = int(stage.world.wall_clock() * 1000)
            producer.send("t", b"x", partition=0, timestamp_ms=now_ms + 1000 * at)


@pytest.mark.parametrize(
    ("reset", "offset"),
    [
        ("by_duration:PT30M", 9),
        ("by_duration:PT3H1M", 6),
        ("by_duration:P7D", 0),
        ("by_duration:P99999D", 0),  # a time before 1970
    ],
)
def test_reading_begins_at_the_first_record_that_is_recent_enough(reset: str, offset: int) -> None:
    stage, client = make(1, reset)
    client.assign([FULL, EMPTY])
    assert client.position(FULL, 5) == offset
    assert client.position(EMPTY, 5) == 0
    assert client.poll(1.0)[0].offset == offset
    assert not stage.world.hot_loops


def test_reading_begins_at_the_end_if_no_record_is_recent_enough() -> None:
    stage, client = make(2, "by_duration:PT10S")
    stage.world.advance(60)
    client.assign([FULL, EMPTY])
    assert (client.position(FULL, 5), client.position(EMPTY, 5)) == (10, 0)
    write(stage, 0)
    assert [r.offset for r in client.poll(5.0)] == [10]


def test_the_duration_is_subtracted_from_the_time_of_the_lookup() -> None:
    stage, client = make(3, "by_duration:PT3H1M")
    stage.world.clock_offset = -2 * 3600.0
    client.assign([FULL])
    assert client.position(FULL, 5) == 4


def test_the_policy_applies_to_positions_outside_the_log_and_not_to_seeks() -> None:
    _, client = make(4, "by_duration:PT3H1M")
    client.assign([FULL])
    client.seek(FULL, 1000)
    assert client.poll(5.0)[0].offset == 6
    client.seek_to_beginning([FULL])
    assert client.position(FULL, 5) == 0
    client.seek_to_end([FULL])
    assert client.position(FULL, 5) == 10


def test_the_end_is_requested_before_the_timestamp() -> None:
    stage, client = make(5, "by_duration:PT10S")
    asked: list[int] = []

    def look(broker: SimulatedBroker, host: str, request: ReceivedRequest) -> None:
        if isinstance(request.body, ListOffsetsRequest):
            asked.extend(p.timestamp for t in request.body.topics for p in t.partitions)

    stage.cluster.observers.append(look)
    client.assign([EMPTY])
    begun_ms = stage.world.wall_clock() * 1000
    assert client.position(EMPTY, 5) == 0
    assert asked[0] == -1
    assert len(asked) == 2
    assert begun_ms - 10_000 <= asked[1] <= begun_ms - 9_000


def test_a_response_for_a_revoked_partition_is_ignored() -> None:
    stage = Stage(3, partitions=0)
    cluster = stage.cluster
    cluster.create_topic("t", assignments={p: [p + 1] for p in range(3)})
    with stage.consumer() as consumer:
        everything = [TopicPartition("t", p) for p in range(3)]
        consumer.assign(everything)
        consumer.poll(2.0)
        for broker, seconds in zip(cluster.brokers.values(), (0.2, 0.6, 1.8), strict=True):
            broker.processing = seconds
        consumer.assign([])
        consumer.assign(everything)
        consumer.poll(0.05)  # the offsets are requested
        consumer.assign([everything[0], everything[2]])
        consumer.poll(5.0)  # the responses arrive one after the other
        assert cluster.brokers[2].requests["ListOffsets"] == 2
        assert consumer.position(everything[2]) == 0
