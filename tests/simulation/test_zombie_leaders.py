"""An isolated leader that responds with an old epoch can't validate positions (R-ID-4)."""

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
    """A leader with offsets 0 to 9 is isolated; the next leader appends 10 to 19.

    A group has committed offset 20 with the epoch of the next leader.
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
        """Move the group to another coordinator than the zombie."""
        with self.consumer(**self.group) as reader:
            reader.assign([TP])
            reader.committed([TP])
        topic = self.cluster.topics["__consumer_offsets"]
        for partition in topic.partitions:
            if partition.leader == self.zombie.id:
                self.cluster.move_leader(topic.name, partition.index)
        self.world.advance(0.5)

    def apart(self) -> dict[str, Any]:
        """Return settings of clients that ask another broker first."""
        others = [b.address for b in self.cluster.brokers.values() if b is not self.zombie]
        return {"bootstrap.servers": ",".join(map(str, others))}

    def there(self) -> dict[str, Any]:
        """Return settings of clients that ask the zombie first."""
        return {"bootstrap.servers": str(self.zombie.address)}


def committed(stage: Zombie, name: str = "second", **config: Any) -> Consumer:
    """Start at the committed offset, which includes the epoch."""
    made = stage.consumer(name=name, **{**stage.group, **stage.there(), **config})
    made.assign([TP])
    return made


def assigned(stage: Zombie, name: str = "second", **config: Any) -> Consumer:
    """Start at an offset that the application stored, with the leader epoch of its record."""
    made = stage.consumer(name=name, **{**stage.there(), **config})
    made.assign({TP: OffsetAndMetadata(20, leader_epoch=stage.epoch)})
    return made


def sought(stage: Zombie, name: str = "second", **config: Any) -> Consumer:
    """Seek to offset 20 after metadata of the zombie has arrived."""
    made = stage.consumer(name=name, **{**stage.there(), **config})
    made.assign([TP])
    made.seek(TP, 5)
    assert stage.read(made, 5) == list(range(5, 10))
    made.seek(TP, OffsetAndMetadata(20, leader_epoch=stage.epoch))
    return made


WAYS = pytest.mark.parametrize("begin", [committed, assigned, sought])


@WAYS
@pytest.mark.parametrize("policy", ["earliest", "latest", "none"])
def test_positions_are_not_validated_by_an_older_leader(
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
def test_no_record_is_read_if_only_the_zombie_leader_responds(
    begin: Callable[..., Consumer], caplog: pytest.LogCaptureFixture
) -> None:
    stage = Zombie()
    for i, broker in stage.cluster.brokers.items():
        if (
            broker is not stage.zombie and begin is not committed
        ):  # committed offsets need the coordinator
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


def test_the_fetcher_compares_leader_epochs() -> None:
    """A position may have no epoch at first, for example after an engine was replaced."""
    stage = Zombie()
    with stage.consumer(name="second", **stage.there()) as reader:
        reader.assign({TP: 5})
        assert stage.read(reader, 5) == list(range(5, 10))
        subscription = reader._calls.engine.subscription
        subscription.seek(TP, 20, stage.epoch)
        assert reader.poll(3.0) == []
        assert reader.position(TP) == 20


def test_log_end_offsets_are_not_requested_from_an_older_leader() -> None:
    stage = Zombie()
    with assigned(stage) as reader:
        reader.poll(0.0)
        assert reader.end_offsets([TP]) == {TP: 20}


@pytest.mark.parametrize("brokers", [1, 3])
@pytest.mark.parametrize("ids", [True, False])
def test_the_wait_for_an_unknown_epoch_is_limited(
    brokers: int, ids: bool, caplog: pytest.LogCaptureFixture
) -> None:
    """The topic was deleted, or the epoch never existed: after 10 s the beginning is read.

    All brokers are asked before (R-MD-7).
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


def test_a_new_topic_id_ends_the_wait_for_an_unknown_epoch() -> None:
    """The position's epoch belongs to the deleted topic; the new topic has its own epochs."""
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


def test_a_simulated_zombie_loses_records_and_never_acknowledges_acks_all() -> None:
    """Test the simulated zombie: stale responses and no replication, then correct responses."""
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


def test_a_range_with_a_newer_epoch_is_not_read_from_an_older_leader() -> None:
    stage = Zombie()
    with stage.consumer(name="second", auto_offset_reset="none", **stage.there()) as reader:
        reader.assign({TP: 5}, until={TP: OffsetAndMetadata(20, leader_epoch=stage.epoch)})
        assert stage.read(reader, 15) == list(range(5, 20))


def test_log_end_offsets_of_an_older_leader_are_not_used() -> None:
    stage = Zombie()
    with stage.consumer(name="second", **stage.there()) as reader:
        ends = LogEnds(reader)
        assert ends.ends({TP: (-1, None)}, 5.0)[TP][::2] == (10, 0)
        assert ends.ends({TP: (stage.epoch, None)}, 5.0)[TP][::2] == (20, stage.epoch)
        assert ends.epoch_ends({TP: 0}, 5.0)[TP][::2] == (10, 0)
        assert ends.epoch_ends({TP: stage.epoch}, 5.0)[TP][::2] == (20, stage.epoch)
