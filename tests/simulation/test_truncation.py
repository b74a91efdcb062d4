"""Unclean elections: records that were read are no longer in the log (KIP-320)."""

from __future__ import annotations

import random
from collections.abc import Callable
from itertools import islice
from typing import Any

import pytest
from tests.simulation.group_scene import Scene
from tests.simulation.produce_script import leader_of
from tests.simulation.scene import Stage
from tests.volume import some

from odradek.api.consumer import Consumer
from odradek.clients.consumer.records import ConsumerRecord, LogTruncationError, OffsetAndMetadata
from odradek.common.types import TopicPartition
from odradek.protocol.messages.offset_for_leader_epoch import OffsetForLeaderEpochRequest
from odradek.simulation.brokers.broker import SimulatedBroker
from odradek.simulation.brokers.epoch_handlers import end_of_epoch
from odradek.simulation.world.environment import ReceivedRequest

TP = TopicPartition("t", 0)


class Reading(Stage):
    """A producer that writes batches of five records, and a consumer."""

    def __init__(self, seed: int = 1, **config: Any) -> None:
        super().__init__(seed, partitions=1)
        self.writer = self.producer()
        self.reader = self.consumer(**config)
        self.reader.assign([TP])
        self.asked = 0
        self.serial = 0
        self.cluster.observers.append(self.observe)

    def observe(self, _: SimulatedBroker, __: str, request: ReceivedRequest) -> None:
        self.asked += request.api_key == OffsetForLeaderEpochRequest.API_KEY

    def batches(self, count: int) -> None:
        for _ in range(count):
            for _ in range(5):
                self.writer.send("t", b"%d" % self.serial, partition=0)
                self.serial += 1
            self.writer.flush(timeout=20)

    def records(self, most: int = 500, seconds: float = 3.0) -> list[ConsumerRecord]:
        found: list[ConsumerRecord] = []
        end = self.world.now + seconds
        while self.world.now < end and len(found) < most:
            found += self.reader.poll(0.2, most - len(found))
        return found

    def lose(self, keep: int) -> None:
        self.cluster.log("t", 0).truncate(keep)
        self.cluster.move_leader("t", 0)


def numbers(records: list[ConsumerRecord]) -> list[int]:
    return [int(r.value or b"") for r in records]


def test_the_position_returns_to_where_the_logs_diverge() -> None:
    stage = Reading()
    stage.batches(4)
    assert numbers(stage.records(20)) == list(range(20))
    stage.lose(10)
    stage.batches(3)  # other records at offsets 10 to 24: without the check, 20 to 24 are read next
    found = stage.records(15)
    assert [r.offset for r in found] == list(range(10, 25))
    assert numbers(found) == list(range(20, 35))


@pytest.mark.parametrize("to", [10, 20])
def test_poll_raises_the_divergent_offset_without_a_reset_policy(to: int) -> None:
    stage = Reading(1, **{"auto.offset.reset": "none"})
    stage.reader.seek(TP, 0)
    stage.batches(4)
    assert len(stage.records(20)) == 20
    stage.lose(10)
    stage.batches(3)
    for _ in range(2):  # the error is raised until the caller seeks
        with pytest.raises(LogTruncationError, match="offset 10") as caught:
            stage.records(1)
        assert caught.value.partition == TP
        assert (caught.value.position, caught.value.divergent_offset) == (20, 10)
        assert caught.value.leader_epoch == 0
        assert stage.reader.position(TP) == 20
    stage.reader.seek(TP, to)  # to the divergent offset, or the same offset in the current log
    assert numbers(stage.records(25 - to)) == list(range(10 + to, 35))


def test_an_election_without_loss_needs_one_request() -> None:
    stage = Reading()
    stage.batches(4)
    assert len(stage.records(20)) == 20
    assert stage.asked == 0
    stage.cluster.move_leader("t", 0)
    stage.batches(2)
    assert numbers(stage.records(10)) == list(range(20, 30))
    assert stage.asked == 1


def test_buffered_records_are_fetched_again() -> None:
    stage = Reading()
    stage.batches(6)
    assert numbers(stage.records(8)) == list(range(8))  # 22 records are buffered
    stage.world.advance(1.0)
    stage.lose(10)
    stage.batches(2)
    stage.world.advance(3.0)  # noticed after metadata.max.age.ms or by a refused fetch
    found = stage.records(12, seconds=8.0)
    assert [r.offset for r in found] == list(range(8, 20))
    assert numbers(found) == [8, 9, *range(30, 40)]


def test_a_position_without_an_epoch_cannot_be_validated() -> None:
    stage = Reading()
    stage.batches(4)
    assert len(stage.records(20)) == 20
    stage.reader.pause([TP])
    stage.lose(10)
    stage.batches(3)
    stage.reader.seek(TP, 18)
    stage.reader.resume([TP])
    assert [r.offset for r in stage.records(7)] == list(range(18, 25))
    assert stage.asked == 0


def test_positions_are_not_validated_by_brokers_that_require_cluster_permissions() -> None:
    stage = Reading(3)
    stage.cluster.versions[OffsetForLeaderEpochRequest.API_KEY] = (2, 2)
    stage.batches(4)
    assert len(stage.records(20)) == 20
    stage.cluster.move_leader("t", 0)
    stage.batches(1)
    assert numbers(stage.records(5)) == list(range(20, 25))
    assert stage.asked == 0


def test_positions_are_validated_although_the_leader_dies_meanwhile() -> None:
    stage = Reading(4, **{"request.timeout.ms": 30000})
    stage.batches(4)
    assert len(stage.records(20)) == 20
    stage.cluster.move_leader("t", 0)
    stage.cluster.go_silent(leader_of(stage.cluster).id)
    assert stage.records(1, seconds=1.0) == []
    stage.lose(15)  # the third broker leads, and lacks a batch
    stage.batches(1)
    begin = stage.world.now
    found = stage.records(5, seconds=20.0)
    assert [r.offset for r in found] == list(range(15, 20))
    assert numbers(found) == list(range(20, 25))
    assert stage.world.now - begin < 10.0
    stage.cluster.heal()


def test_seeks_accumulate_no_requests_to_a_silent_leader() -> None:
    """Applications seek to the committed offset after each failed transaction."""
    stage = Stage(brokers=1, partitions=1)
    stage.write(range(20))
    with stage.consumer() as reader:
        reader.assign([TP])
        assert stage.read(reader, 20) == list(range(20))
        reader.seek(TP, OffsetAndMetadata(3, leader_epoch=0))
        assert stage.read(reader, 17) == list(range(3, 20))
        stage.cluster.pause(1)
        most = 0
        for _ in range(50):
            reader.seek(TP, OffsetAndMetadata(5, leader_epoch=0))
            assert reader.poll(0.1) == []
            connections = reader._calls.engine.network.connections.values()
            most = max(most, sum(len(c.in_flight) for c in connections))
        assert most < 10
        stage.cluster.heal()
        assert stage.read(reader, 15) == list(range(5, 20))


@pytest.mark.parametrize("seed", some(range(30), 5))
def test_random_elections_never_mix_two_logs(seed: int) -> None:
    """A reader that follows each reset has, in the end, read exactly the records of the log."""
    rng = random.Random(seed)
    stage = Reading(seed, **{"metadata.max.age.ms": 1000})
    seen: dict[int, bytes | None] = {}

    def read(records: list[ConsumerRecord]) -> None:
        for record in records:
            for later in [o for o in seen if o >= record.offset]:
                del seen[later]  # a reset invalidates later records
            seen[record.offset] = record.value

    for _ in range(25):
        stage.batches(rng.randrange(3))
        stage.world.advance(rng.uniform(0.0, 0.5))
        read(stage.records(rng.randrange(1, 12), seconds=0.5))
        what = rng.random()
        if what < 0.25:
            end = stage.cluster.log("t", 0).end_offset
            stage.lose(rng.randrange(max(0, end - 25), end + 1))
        elif what < 0.4:
            stage.cluster.move_leader("t", 0)
    stage.batches(1)
    read(stage.records(10_000, seconds=6.0))
    assert seen == {row[0]: row[4] for row in stage.cluster.records("t", 0)}


def test_brokers_return_the_end_offset_of_each_epoch() -> None:
    stage = Reading()
    stage.batches(2)
    stage.cluster.move_leader("t", 0)
    stage.cluster.move_leader("t", 0)
    stage.batches(1)
    partition = stage.cluster.topics["t"].partitions[0]
    assert [end_of_epoch(partition, e) for e in (0, 1, 2, 3)] == [
        (0, 10),
        (0, 10),
        (2, 15),
        (-1, -1),
    ]


def test_a_range_is_validated_to_its_end_before_a_record_is_returned() -> None:
    stage = Reading(1, **{"auto.offset.reset": "none"})
    stage.batches(4)
    until = {TP: OffsetAndMetadata(20, leader_epoch=0)}
    stage.reader.assign({TP: 3}, until=until)
    assert [r.offset for r in stage.records(17)] == list(range(3, 20))
    assert stage.asked == 0  # the leader that had the range still leads
    stage.lose(10)
    stage.batches(3)
    stage.reader.assign([])
    stage.reader.assign({TP: 3}, until=until)
    with pytest.raises(LogTruncationError) as caught:
        stage.records(1)
    assert (caught.value.position, caught.value.divergent_offset) == (20, 10)
    assert stage.reader.position(TP) == 3
    stage.reader.assign({TP: 3}, until={TP: OffsetAndMetadata(10, leader_epoch=0)})
    assert numbers(stage.records(7)) == list(range(3, 10))


def test_a_range_truncated_while_it_is_read_returns_no_other_records() -> None:
    stage = Reading(1, **{"auto.offset.reset": "none"})
    stage.batches(4)
    stage.reader.assign({TP: 0}, until={TP: OffsetAndMetadata(20, leader_epoch=0)})
    assert numbers(stage.records(2)) == [0, 1]
    stage.reader.seek(TP, 2)  # nothing is buffered
    stage.lose(10)
    stage.batches(3)
    with pytest.raises(LogTruncationError, match="from offset 10"):
        stage.records(20)


def test_a_range_with_a_reset_policy_continues_in_the_other_log(
    caplog: pytest.LogCaptureFixture,
) -> None:
    stage = Reading()
    stage.batches(4)
    stage.lose(10)
    stage.batches(3)
    stage.reader.assign({TP: 5}, until={TP: OffsetAndMetadata(20, leader_epoch=0)})
    found = stage.records(15)
    assert [r.offset for r in found] == list(range(5, 20))
    assert numbers(found) == [*range(5, 10), *range(20, 30)]
    assert "records from offset 10 on were lost" in caplog.text


READ: dict[str, Callable[[Consumer], object]] = {
    "poll": lambda reader: reader.poll(0.2),
    "one by one": lambda reader: list(islice(reader, 3)),
    "poll_arrow": lambda reader: reader.poll_arrow(0.2),
}


@pytest.mark.parametrize("way", READ)
@pytest.mark.parametrize("commits", [True, False], ids=["committed", "aborted"])
def test_a_position_behind_a_marker_of_a_newer_leader_is_not_taken_for_lost(
    way: str, commits: bool, caplog: pytest.LogCaptureFixture
) -> None:
    """The leader changes between a transaction's records and its marker."""
    scene = Scene()
    with scene.transactional() as writer:
        writer.begin_transaction()
        for number in range(3):
            writer.send("t", b"%d" % number, partition=0)
        writer.flush(timeout=20)
        scene.cluster.move_leader("t", 0)
        writer.commit_transaction() if commits else writer.abort_transaction()
    isolation = "read_committed" if commits else "read_uncommitted"
    settings = {"enable_auto_commit": False, "isolation_level": isolation}
    first = scene.member("first", **settings)
    first.assign([TP])
    end = 4  # three records and the marker
    assert scene.world.run_while(lambda: scene.cluster.log("t", 0).high_watermark < end, 5.0)
    READ[way](first)
    while first.position(TP) < end:
        assert first.poll(0.2) == []
    first.commit()
    assert first.committed([TP])[TP] == OffsetAndMetadata(end, leader_epoch=1)
    scene.cluster.move_leader("t", 0)
    second = scene.member("second", auto_offset_reset="none", **settings)
    second.assign([TP])
    assert second.poll(1.0) == []
    assert second.position(TP) == end
    assert "were lost" not in caplog.text
