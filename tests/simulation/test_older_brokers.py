"""Clients of older brokers: what a version of an API doesn't mean yet, they don't read into it."""

from __future__ import annotations

from typing import Any

import pytest
from tests.simulation.scene import Stage
from tests.simulation.spoilt_answers import spoil_answers

from odradek.api.admin import Admin
from odradek.clients.consumer.records import OffsetAndMetadata
from odradek.common.types import TopicPartition
from odradek.protocol.messages.fetch import FetchRequest
from odradek.protocol.messages.list_offsets import ListOffsetsRequest
from odradek.protocol.messages.metadata import MetadataRequest, MetadataResponse
from odradek.simulation.brokers import disturbances

T0 = TopicPartition("t", 0)
KAFKA_2_3 = {
    FetchRequest.API_KEY: (4, 11),
    ListOffsetsRequest.API_KEY: (1, 5),
    MetadataRequest.API_KEY: (0, 8),
}


class Older(Stage):
    """Brokers with one partition, whose versions of some APIs end earlier."""

    def __init__(self, versions: dict[int, tuple[int, int]], **more: Any) -> None:
        super().__init__(**{"partitions": 1, "versions": versions, **more})


# Leader epochs of metadata (KAFKA-9212)


@pytest.mark.parametrize("lower", [1, 3])
def test_a_stale_epoch_of_metadata_below_version_9_hinders_no_reader(
    lower: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    scene = Older(KAFKA_2_3)
    log = scene.cluster.topics["t"].partitions[0]
    log.leader_epoch = 7
    scene.write(range(5))

    def stale(answer: MetadataResponse) -> None:
        for topic in answer.topics:
            for partition in topic.partitions:
                partition.leader_epoch -= lower

    spoil_answers(monkeypatch, MetadataRequest.API_KEY, stale)
    scene.write(range(5, 10))
    with scene.consumer(group_id="g") as consumer:
        consumer.subscribe(["t"])
        assert scene.read(consumer, 10) == list(range(10))
        assert consumer.beginning_offsets([T0], 5.0) == {T0: 0}
        assert consumer.end_offsets([T0], 5.0) == {T0: 10}
        consumer.commit(timeout=5.0)
        committed = consumer.committed([T0], 5.0)[T0]
        assert committed is not None
        assert (committed.offset, committed.leader_epoch) == (10, 7)  # of its batch
    with scene.client(Admin) as admin:
        described = admin.describe_topics(["t"], timeout=5.0)["t"]
        assert described.partitions[0].leader_epoch == -1
    scene.write(range(10, 15))
    with scene.consumer(group_id="g") as consumer:  # its position has an epoch above metadata's
        consumer.subscribe(["t"])
        assert scene.read(consumer, 5) == list(range(10, 15))


def ends_asked(scene: Stage) -> int:
    return sum(b.requests["OffsetForLeaderEpoch"] for b in scene.cluster.brokers.values())


def test_a_new_leader_below_version_9_is_asked_once_whether_it_has_what_was_read() -> None:
    scene = Older(KAFKA_2_3)
    scene.write(range(5))
    with scene.consumer() as consumer:
        consumer.assign([T0])
        assert scene.read(consumer, 5) == list(range(5))
        asked = ends_asked(scene)
        scene.cluster.move_leader("t", 0)
        scene.write(range(5, 8))
        assert scene.read(consumer, 3) == list(range(5, 8))
        assert ends_asked(scene) == asked + 1
        scene.write(range(8, 10))
        assert scene.read(consumer, 2) == [8, 9]
        assert ends_asked(scene) == asked + 1


def test_below_version_9_the_position_goes_back_to_where_the_logs_part() -> None:
    scene = Older(KAFKA_2_3)
    for n in range(4):
        scene.write(range(5 * n, 5 * n + 5))
    with scene.consumer() as consumer:
        consumer.assign([T0])
        assert scene.read(consumer, 20) == list(range(20))
        disturbances.unclean_election(scene.cluster, "t", 0, 2)
        for n in range(4, 7):
            scene.write(range(5 * n, 5 * n + 5))  # at offsets 10 to 24
        assert scene.read(consumer, 15) == list(range(20, 35))


def test_an_older_leader_that_does_not_know_the_epoch_takes_no_position_back() -> None:
    scene = Older(KAFKA_2_3)
    scene.write(range(5))
    with scene.consumer(group_id="g", enable_auto_commit=False) as consumer:
        consumer.subscribe(["t"])
        assert scene.read(consumer, 5) == list(range(5))
        at = OffsetAndMetadata(3, leader_epoch=4)  # of an election that this leader missed
        consumer.commit({T0: at}, timeout=5.0)
    with scene.consumer(group_id="g", enable_auto_commit=False) as consumer:
        consumer.subscribe(["t"])
        assert scene.read(consumer, 2) == [3, 4]
