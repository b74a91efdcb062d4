"""A leader that was cut off and answers on under an old epoch judges no position (R-ID-4)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest
from tests.simulation.scene import Stage

from odradek.api.consumer import Consumer
from odradek.api.log_ends import LogEnds
from odradek.api.producer import Producer
from odradek.clients.consumer.records import OffsetAndMetadata
from odradek.common.types import TopicPartition
from odradek.protocol.messages.metadata import MetadataRequest
from odradek.simulation.brokers.broker import SimulatedBroker
from odradek.simulation.brokers.broker_faults import limit, recreate_topic

TP = TopicPartition("t", 0)


class Zombie(Stage):
    """Records 0 to 9 are written, the leader is cut off, 10 to 19 come under the next one, and a
    group has committed 20 with that epoch.
    """

    def __init__(self, seed: int = 1, **group: Any) -> None:
        super().__init__(seed, partitions=1)
        self.group = {"group.id": "g", "enable.auto.commit": False, **group}
        self.write(range(10))
        first = self.cluster.leader("t", 0)
        assert first is not None
        self.zombie: SimulatedBroker = first
        self.keep_apart()
        self.cluster.zombie_leader(self.zombie.id)
        self.world.advance(3.0)
        assert self.cluster.leader("t", 0) is not self.zombie
        self.epoch = self.cluster.topics["t"].partitions[0].leader_epoch
        self.write(range(10, 20), **self.apart())
        with self.consumer(**self.group, **self.apart()) as reader:
            reader.assign([TP])
            assert self.read(reader, 20) == list(range(20))
            reader.commit()

    def keep_apart(self) -> None:
        """Move the group to another coordinator, so that OffsetFetch reaches the present."""
        with self.consumer(**self.group) as reader:
            reader.assign([TP])
            reader.committed([TP])
        topic = self.cluster.topics["__consumer_offsets"]
        for partition in topic.partitions:
            if partition.leader == self.zombie.id:
                self.cluster.move_leader(topic.name, partition.index)
        self.world.advance(0.5)

    def apart(self) -> dict[str, Any]:
        """Clients that ask another broker first."""
        others = [b.address for b in self.cluster.brokers.values() if b is not self.zombie]
        return {"bootstrap.servers": ",".join(map(str, others))}

    def there(self) -> dict[str, Any]:
        """Clients that ask the zombie first."""
        return {"bootstrap.servers": str(self.zombie.address)}


def committed(stage: Zombie, name: str = "second", **config: Any) -> Consumer:
    """Begin at the committed offset, whose epoch the group has."""
    made = stage.consumer(name=name, **{**stage.group, **stage.there(), **config})
    made.assign([TP])
    return made


def assigned(stage: Zombie, name: str = "second", **config: Any) -> Consumer:
    """Begin at an offset of the application's own, with the record's epoch."""
    made = stage.consumer(name=name, **{**stage.there(), **config})
    made.assign({TP: OffsetAndMetadata(20, leader_epoch=stage.epoch)})
    return made


def sought(stage: Zombie, name: str = "second", **config: Any) -> Consumer:
    """The same by a seek, after the zombie's metadata is known."""
    made = stage.consumer(name=name, **{**stage.there(), **config})
    made.assign([TP])
    made.seek(TP, 5)
    assert stage.read(made, 5) == list(range(5, 10))
    made.seek(TP, OffsetAndMetadata(20, leader_epoch=stage.epoch))
    return made


WAYS = pytest.mark.parametrize("begin", [committed, assigned, sought])


@WAYS
@pytest.mark.parametrize("policy", ["earliest", "latest", "none"])
def test_an_older_leader_judges_no_position(
    begin: Callable[..., Consumer], policy: str, caplog: pytest.LogCaptureFixture
) -> None:
    stage = Zombie()
    with begin(stage, auto_offset_reset=policy) as reader:
        assert reader.poll(3.0) == []
        assert reader.position(TP) == 20
        stage.write(range(20, 25), **stage.apart())
        assert stage.read(reader, 5) == list(range(20, 25))
    assert "records were lost" not in caplog.text


@WAYS
def test_nothing_is_read_where_only_the_zombie_answers(
    begin: Callable[..., Consumer], caplog: pytest.LogCaptureFixture
) -> None:
    stage = Zombie()
    for i, broker in stage.cluster.brokers.items():
        if broker is not stage.zombie and begin is not committed:  # it needs the coordinator
            stage.cluster.partition(i, "second")
    with begin(stage) as reader:
        if begin is committed:
            assert reader.position(TP, timeout=5.0) == 20
            for i, broker in stage.cluster.brokers.items():
                if broker is not stage.zombie:
                    stage.cluster.partition(i, "second")
        assert reader.poll(60.0) == []
        assert reader.position(TP) == 20
        if begin is not committed:
            said = f"metadata of {stage.zombie.address} is older (epoch 0) than the position"
            assert f"{said} (epoch {stage.epoch})" in str(reader.explain())
            assert f"not reading {TP}: {said}" in caplog.text
            assert caplog.text.count(f"not reading {TP}:") == 1
        stage.cluster.heal()
        stage.write(range(20, 25), **stage.apart())
        assert stage.read(reader, 5) == list(range(20, 25))
        assert "older" not in str(reader.explain())


def test_the_place_where_leaders_are_asked_looks_at_the_epoch_itself() -> None:
    """A position may be known before its epoch is told, as one of an engine that was replaced."""
    stage = Zombie()
    with stage.consumer(name="second", **stage.there()) as reader:
        reader.assign({TP: 5})
        assert stage.read(reader, 5) == list(range(5, 10))
        subscription = reader._calls.engine.subscription
        subscription.seek(TP, 20, stage.epoch)
        assert reader.poll(3.0) == []
        assert reader.position(TP) == 20


def test_ends_are_not_asked_of_an_older_leader() -> None:
    stage = Zombie()
    with assigned(stage) as reader:
        reader.poll(0.0)
        assert reader.end_offsets([TP]) == {TP: 20}


@pytest.mark.parametrize("brokers", [1, 3])
@pytest.mark.parametrize("ids", [True, False])
def test_an_epoch_that_no_broker_knows_is_not_waited_for_for_ever(
    brokers: int, ids: bool, caplog: pytest.LogCaptureFixture
) -> None:
    """The offset is one of a topic that was deleted, or the epoch never was: all are asked, and
    after ten seconds the topic is read from its beginning (R-MD-7).
    """
    stage = Stage(brokers=brokers, partitions=1)
    if not ids:
        limit(stage.cluster, "no topic ids")
    stage.write(range(10))
    asked: Counter[int] = Counter()
    with stage.consumer(name="second", auto_offset_reset="latest") as reader:
        reader.assign({TP: OffsetAndMetadata(5, leader_epoch=7)})
        stage.cluster.observers.append(
            lambda broker, who, request: asked.update(
                [broker.id] * (who == "second" and request.api_key == MetadataRequest.API_KEY)
            )
        )
        begun = stage.world.now
        assert reader.poll(9.0) == []
        assert stage.read(reader, 10) == list(range(10))
        assert 10.0 <= stage.world.now - begun < 12.0
        assert len(asked) >= min(brokers, 2)
        assert sum(asked.values()) < 20
    assert "below epoch 7 of the position" in caplog.text


def test_a_new_topic_id_ends_the_wait() -> None:
    """The epoch was the position's in the topic before: the new one has epochs of its own."""
    stage = Stage(partitions=1)
    for _ in range(3):
        stage.cluster.move_leader("t", 0)
    stage.write(range(10))
    with stage.consumer(name="second") as reader:
        reader.assign([TP])
        assert stage.read(reader, 10) == list(range(10))
        recreate_topic(stage.cluster, "t")
        stage.write(range(20, 25))
        begun = stage.world.now
        assert stage.read(reader, 5) == list(range(20, 25))
        assert stage.world.now - begun < 3.0


def test_what_a_zombie_takes_is_lost_with_it_and_never_acknowledged_by_all() -> None:
    """The simulated zombie itself: old answers, no replication, and the truth when it is back."""
    stage = Zombie()
    with stage.client(Producer, "one", acks=1, enable_idempotence=False, **stage.there()) as one:
        assert one.send("t", b"only there", partition=0).result(timeout=10).offset == 10
    with stage.client(Producer, "all", **stage.there()) as every:
        late = every.send("t", b"25", partition=0)
        stage.world.advance(2.0)
        assert not late.done()
        with stage.consumer(name="old", **stage.there()) as reader:
            reader.assign([TP])
            reader.seek(TP, 0)
            assert stage.read(reader, 10) == list(range(10))
            assert reader.end_offsets([TP]) == {TP: 10}
        stage.cluster.repair(stage.zombie.id)
        assert late.result(timeout=30).offset == 20
    assert stage.values() == [b"%d" % n for n in (*range(20), 25)]


def test_an_older_leader_is_not_read_for_a_range_of_a_newer_one() -> None:
    stage = Zombie()
    with stage.consumer(name="second", auto_offset_reset="none", **stage.there()) as reader:
        reader.assign({TP: 5}, until={TP: OffsetAndMetadata(20, leader_epoch=stage.epoch)})
        assert stage.read(reader, 15) == list(range(5, 20))


def test_log_ends_come_from_no_older_leader() -> None:
    stage = Zombie()
    with stage.consumer(name="second", **stage.there()) as reader:
        ends = LogEnds(reader)
        assert ends.ends({TP: (-1, None)}, 5.0)[TP][::2] == (10, 0)
        assert ends.ends({TP: (stage.epoch, None)}, 5.0)[TP][::2] == (20, stage.epoch)
        assert ends.epoch_ends({TP: 0}, 5.0)[TP][::2] == (10, 0)
        assert ends.epoch_ends({TP: stage.epoch}, 5.0)[TP][::2] == (20, stage.epoch)
