"""A broker whose metadata lags names a deleted topic: no client goes back to it (R-ID-3)."""

from __future__ import annotations

from typing import Any

import pytest
from tests.simulation.scene import Stage

from odradek.common.events import Event
from odradek.common.types import TopicPartition

PARTITIONS = [TopicPartition("t", n) for n in range(3)]


class Lagging(Stage):
    """Broker 2 doesn't see that topic t is deleted and recreated.

    Each broker leads a partition, so that clients are connected to all of them.
    """

    def __init__(self, seed: int = 1) -> None:
        super().__init__(seed)
        self.write(range(6))

    def make_anew(self) -> bytes:
        """Recreate the topic with other records and return its id."""
        self.cluster.stale_metadata(2, deleted=True)
        self.cluster.delete_topic("t")
        topic = self.cluster.create_topic("t", 3)
        self.write(range(100, 106), bootstrap_servers=str(self.cluster.brokers[1].address))
        return topic.id

    def ids(self, client: Any) -> set[bytes]:
        """Return the ids that the topic has in a client's metadata from now on."""
        metadata, found = client._engine.metadata, set[bytes]()

        def listen(event: Event) -> None:
            if event.kind == "metadata":
                found.add(metadata.snapshot.topics["t"].topic_id)

        client._engine.events.listen(listen)
        return found

    def refresh(self, client: Any, count: int = 12) -> None:
        """Refresh a client's metadata `count` times."""
        for _ in range(count):
            client._engine.metadata.request("test")
            self.world.advance(0.37)


@pytest.mark.parametrize("seed", range(1, 5))
def test_a_consumer_reads_the_new_topic_once(seed: int) -> None:
    stage = Lagging(seed)
    with stage.consumer() as reader:
        reader.assign(PARTITIONS)
        assert stage.read(reader, 6) == list(range(6))
        newer = stage.make_anew()
        assert stage.read(reader, 6) == list(range(100, 106))
        ids = stage.ids(reader)
        stage.refresh(reader)
        assert reader.poll(5.0) == []
        assert ids == {newer}
        assert sum(map(reader.position, PARTITIONS)) == 6


@pytest.mark.parametrize("seed", range(1, 5))
def test_a_consumer_that_never_knew_the_deleted_topic_reads_the_new_one_once(seed: int) -> None:
    stage = Lagging(seed)
    newer = stage.make_anew()
    first = str(stage.cluster.brokers[1].address)
    with stage.consumer(bootstrap_servers=first) as reader:
        reader.assign(PARTITIONS)
        assert stage.read(reader, 6) == list(range(100, 106))
        ids = stage.ids(reader)
        stage.refresh(reader)
        assert reader.poll(5.0) == []
        assert ids == {newer}


@pytest.mark.parametrize("seed", range(1, 5))
def test_no_record_fails_although_a_broker_names_the_deleted_topic(seed: int) -> None:
    stage = Lagging(seed)
    newer = stage.make_anew()
    first = str(stage.cluster.brokers[1].address)
    ids = set[bytes]()
    with stage.producer(bootstrap_servers=first) as producer:
        for number in range(10):
            producer.send("t", b"%d" % number, partition=number % 3).result(timeout=5)
            ids = ids if number else stage.ids(producer)
            stage.refresh(producer, 2)
        assert ids == {newer}


def test_a_new_topic_is_read_without_a_wait_once_its_broker_knows_it() -> None:
    """If the broker that named the deleted topic names the new one, the new id is surely newer."""
    stage = Lagging()
    with stage.consumer() as reader:
        reader.assign(PARTITIONS)
        assert stage.read(reader, 6) == list(range(6))
        stage.cluster.delete_topic("t")
        stage.cluster.create_topic("t", 3)
        stage.write(range(100, 106))
        begun = stage.world.now
        assert stage.read(reader, 6) == list(range(100, 106))
        assert stage.world.now - begun < 2
