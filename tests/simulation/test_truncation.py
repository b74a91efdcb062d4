"""Unclean elections: what was read isn't in the log any more, and nobody is misled (KIP-320)."""

from __future__ import annotations

import random
from typing import Any

import pytest

from odradek.api.base import on_host
from odradek.api.consumer import Consumer
from odradek.api.producer import Producer
from odradek.clients.consumer.records import ConsumerRecord, LogTruncationError
from odradek.common.types import TopicPartition
from odradek.protocol.messages.offset_for_leader_epoch import OffsetForLeaderEpochRequest
from odradek.simulation import SimulatedCluster, World
from odradek.simulation.brokers.broker import SimulatedBroker
from odradek.simulation.brokers.epoch_handlers import end_of_epoch, unclean_election
from odradek.simulation.world.environment import ReceivedRequest

TP = TopicPartition("t", 0)


class Stage:
    """A producer that writes batches of five records, and a consumer."""

    def __init__(self, seed: int = 1, **config: Any) -> None:
        self.world = World(seed=seed)
        self.cluster = SimulatedCluster(self.world, brokers=3)
        self.cluster.create_topic("t", partitions=1)
        servers = {"bootstrap.servers": self.cluster.bootstrap_servers}
        self.producer = on_host(self.world.host("producer"), Producer, servers)
        settings = {"auto.offset.reset": "earliest", **config}
        self.consumer = on_host(self.world.host("consumer"), Consumer, {**servers, **settings})
        self.consumer.assign([TP])
        self.asked = 0
        self.serial = 0
        self.cluster.observers.append(self.observe)

    def observe(self, _: SimulatedBroker, __: str, request: ReceivedRequest) -> None:
        self.asked += request.api_key == OffsetForLeaderEpochRequest.API_KEY

    def write(self, batches: int) -> None:
        for _ in range(batches):
            for _ in range(5):
                self.producer.send("t", b"%d" % self.serial, partition=0)
                self.serial += 1
            self.producer.flush(timeout=20)

    def read(self, most: int = 500, seconds: float = 3.0) -> list[ConsumerRecord]:
        found: list[ConsumerRecord] = []
        end = self.world.now + seconds
        while self.world.now < end and len(found) < most:
            found += self.consumer.poll(0.2, most - len(found))
        return found

    def lose(self, keep: int) -> None:
        unclean_election(self.cluster, "t", 0, keep)

    def close(self) -> None:
        self.consumer.close()
        self.producer.close()


def numbers(records: list[ConsumerRecord]) -> list[int]:
    return [int(r.value or b"") for r in records]


def test_the_position_goes_back_to_where_the_logs_part() -> None:
    stage = Stage()
    stage.write(4)
    assert numbers(stage.read(20)) == list(range(20))
    stage.lose(10)
    stage.write(3)  # other records at offsets 10 to 24: without a check 20 to 24 come next
    found = stage.read(15)
    assert [r.offset for r in found] == list(range(10, 25))
    assert numbers(found) == list(range(20, 35))
    stage.close()


@pytest.mark.parametrize("to", [10, 20])
def test_without_a_policy_the_next_poll_raises_the_divergent_offset(to: int) -> None:
    stage = Stage(1, **{"auto.offset.reset": "none"})
    stage.consumer.seek(TP, 0)
    stage.write(4)
    assert len(stage.read(20)) == 20
    stage.lose(10)
    stage.write(3)
    for _ in range(2):  # it raises until somebody seeks
        with pytest.raises(LogTruncationError, match="offset 10") as caught:
            stage.read(1)
        assert caught.value.partition == TP
        assert (caught.value.position, caught.value.divergent_offset) == (20, 10)
        assert caught.value.leader_epoch == 0
        assert stage.consumer.position(TP) == 20
    stage.consumer.seek(TP, to)  # there, or to the same offset of the log that is
    assert numbers(stage.read(25 - to)) == list(range(10 + to, 35))
    stage.close()


def test_an_election_without_loss_costs_one_question_and_no_record() -> None:
    stage = Stage()
    stage.write(4)
    assert len(stage.read(20)) == 20
    assert stage.asked == 0
    stage.cluster.move_leader("t", 0)
    stage.write(2)
    assert numbers(stage.read(10)) == list(range(20, 30))
    assert stage.asked == 1
    stage.close()


def test_what_was_only_fetched_ahead_is_fetched_again() -> None:
    stage = Stage()
    stage.write(6)
    assert numbers(stage.read(8)) == list(range(8))  # 22 are buffered
    stage.world.advance(1.0)
    stage.lose(10)
    stage.write(2)
    stage.world.advance(3.0)  # metadata by its age, a fetch that is refused
    found = stage.read(12, seconds=8.0)
    assert [r.offset for r in found] == list(range(8, 20))
    assert numbers(found) == [8, 9, *range(30, 40)]
    stage.close()


def test_a_position_without_an_epoch_cannot_be_checked() -> None:
    stage = Stage()
    stage.write(4)
    assert len(stage.read(20)) == 20
    stage.consumer.pause([TP])
    stage.lose(10)
    stage.write(3)
    stage.consumer.seek(TP, 18)
    stage.consumer.resume([TP])
    assert [r.offset for r in stage.read(7)] == list(range(18, 25))
    assert stage.asked == 0
    stage.close()


def test_brokers_that_ask_for_rights_over_the_cluster_are_not_asked() -> None:
    stage = Stage(3)
    stage.cluster.versions[OffsetForLeaderEpochRequest.API_KEY] = (2, 2)
    stage.write(4)
    assert len(stage.read(20)) == 20
    stage.cluster.move_leader("t", 0)
    stage.write(1)
    assert numbers(stage.read(5)) == list(range(20, 25))
    assert stage.asked == 0
    stage.close()


def test_the_leader_dies_while_it_is_asked() -> None:
    stage = Stage(4, **{"request.timeout.ms": 30000})
    stage.write(4)
    assert len(stage.read(20)) == 20
    stage.cluster.move_leader("t", 0)
    leader = stage.cluster.leader("t", 0)
    assert leader is not None
    stage.cluster.go_silent(leader.id)
    assert stage.read(1, seconds=1.0) == []
    stage.lose(15)  # the third one leads, and lacks a batch
    stage.write(1)
    begin = stage.world.now
    found = stage.read(5, seconds=20.0)
    assert [r.offset for r in found] == list(range(15, 20))
    assert numbers(found) == list(range(20, 25))
    assert stage.world.now - begin < 10.0
    stage.cluster.heal()
    stage.close()


@pytest.mark.parametrize("seed", range(30))
def test_random_elections_never_mix_two_logs(seed: int) -> None:
    """Whoever goes back where he is sent reads, in the end, exactly what the log has."""
    rng = random.Random(seed)
    stage = Stage(seed, **{"metadata.max.age.ms": 1000})
    seen: dict[int, tuple[bytes | None, int]] = {}
    for _ in range(25):
        stage.write(rng.randrange(3))
        stage.world.advance(rng.uniform(0.0, 0.5))
        for record in stage.read(rng.randrange(1, 12), seconds=0.5):
            for later in [o for o in seen if o >= record.offset]:
                del seen[later]  # gone back: what was read from there on is void
            seen[record.offset] = (record.value, record.leader_epoch)
        what = rng.random()
        if what < 0.25:
            end = stage.cluster.log("t", 0).end_offset
            stage.lose(rng.randrange(max(0, end - 25), end + 1))
        elif what < 0.4:
            stage.cluster.move_leader("t", 0)
    stage.write(1)
    for record in stage.read(10_000, seconds=6.0):
        for later in [o for o in seen if o >= record.offset]:
            del seen[later]
        seen[record.offset] = (record.value, record.leader_epoch)
    log = {row[0]: row[4] for row in stage.cluster.records("t", 0)}
    assert {o: v for o, (v, _) in seen.items()} == log
    stage.close()


def test_the_brokers_cache_of_epochs() -> None:
    stage = Stage()
    stage.write(2)
    stage.cluster.move_leader("t", 0)
    stage.cluster.move_leader("t", 0)
    stage.write(1)
    partition = stage.cluster.topics["t"].partitions[0]
    assert [end_of_epoch(partition, e) for e in (0, 1, 2, 3)] == [
        (0, 10),
        (0, 10),
        (2, 15),
        (-1, -1),
    ]
    stage.close()
