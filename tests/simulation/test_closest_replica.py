"""Reading from the replica in the client's rack (KIP-392), in virtual time."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest
from tests.simulation.scene import Stage
from tests.simulation.spoilt_answers import spoil_answers

from odradek.clients.consumer.records import NoSuchOffsetError
from odradek.common.types import TopicPartition
from odradek.protocol.messages.fetch import FetchRequest
from odradek.protocol.messages.list_offsets import ListOffsetsRequest
from odradek.simulation import SimulatedCluster
from odradek.simulation.brokers.broker import SimulatedBroker
from odradek.simulation.world.environment import ReceivedRequest

TP = TopicPartition("t", 0)
LEADER, NEAR, OTHER = 1, 2, 3


class Reader(Stage):
    """A consumer in the rack of broker 2; broker 1 leads its partition. Counts fetches."""

    def __init__(self, seed: int, rack: str | None = "b", **config: Any) -> None:
        super().__init__(seed, partitions=0)
        for broker, name in zip(self.cluster.brokers.values(), "abc", strict=True):
            broker.rack = name
        self.cluster.create_topic("t", assignments={0: [LEADER, NEAR, OTHER]})
        self.fetches: Counter[int] = Counter()
        self.racks: set[str] = set()
        self.lookups: Counter[int] = Counter()
        self.cluster.observers.append(self.look)
        self.written = self.seen = 0
        self.write_more(100)
        self.reader = self.consumer(client_rack=rack, **config)
        self.reader.assign([TP])

    def look(self, broker: SimulatedBroker, host: str, request: ReceivedRequest) -> None:
        if isinstance(request.body, FetchRequest):
            self.fetches[broker.id] += 1
            self.racks.add(request.body.rack_id)
        elif isinstance(request.body, ListOffsetsRequest):
            self.lookups[broker.id] += 1

    def write_more(self, count: int) -> None:
        self.write(range(self.written, self.written + count), batch_size=200)
        self.written += count

    def read_all(self, limit: float = 3.0) -> Counter[int]:
        """Read all records, each once and in order, and return the fetches per broker."""
        self.fetches.clear()
        end = self.world.now + limit
        while self.seen < self.written:
            for record in self.reader.poll(0.5):
                assert (record.offset, record.value) == (self.seen, b"%d" % self.seen)
                self.seen += 1
            assert self.world.now <= end, self.reader.explain()
        # also count the fetch that follows the one in flight
        assert self.reader.poll(0.6) == []
        asked = Counter(self.fetches)
        assert sum(asked.values()) < 60  # fetches are not repeated quickly
        assert not self.world.hot_loops
        return asked

    def reads_near(self) -> None:
        self.reader.poll(0.5)
        self.write_more(20)
        asked = self.read_all()
        assert asked[NEAR] > 0
        assert asked[LEADER] == asked[OTHER] == 0


def test_fetches_go_to_the_replica_in_the_rack_and_lookups_to_the_leader() -> None:
    reader = Reader(1)
    asked = reader.read_all()
    assert asked[LEADER] == 1
    assert asked[NEAR] > 0
    assert asked[OTHER] == 0
    reader.reads_near()
    assert reader.reader.end_offsets([TP]) == {TP: 120}
    assert set(reader.lookups) == {LEADER}
    assert reader.racks == {"b"}


@pytest.mark.parametrize("rack", [None, "a", "nowhere"])
def test_fetches_go_to_the_leader_if_no_replica_is_closer(rack: str | None) -> None:
    reader = Reader(2, rack)
    assert set(reader.read_all()) == {LEADER}
    assert reader.racks == {rack or ""}


FAULTS: dict[str, Callable[[SimulatedCluster], object]] = {
    "crash": lambda c: c.crash(NEAR),
    "stop": lambda c: c.stop(NEAR),
    "pause": lambda c: c.pause(NEAR),
    "black hole": lambda c: c.blackhole(NEAR),
    "accept, then reset": lambda c: c.accept_then_reset(NEAR),
    "cut off": lambda c: c.partition(NEAR, "consumer"),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_fetches_go_to_the_leader_while_the_closest_replica_fails(fault: str) -> None:
    reader = Reader(3)
    reader.cluster.session_timeout = 60.0  # so that the leader still names the failed replica
    reader.read_all()
    reader.reads_near()
    FAULTS[fault](reader.cluster)
    if fault in ("accept, then reset", "cut off"):  # with other faults no new record is committed
        reader.write_more(20)
        asked = reader.read_all(6.0)
        assert asked[LEADER] > 0
    for _ in range(10):
        reader.reader.poll(1.0)
    reader.cluster.heal()
    reader.world.advance(1)
    for _ in range(20):
        reader.reader.poll(1.0)
    reader.reads_near()


@pytest.mark.parametrize("fault", ["crash", "pause", "black hole"])
def test_a_replica_that_is_dead_from_the_beginning_does_not_delay_reads(fault: str) -> None:
    reader = Reader(8)
    reader.cluster.session_timeout = 60.0
    FAULTS[fault](reader.cluster)
    assert reader.read_all(8.0)[LEADER] > 1


def test_a_replica_that_lags_causes_no_reset() -> None:
    reader = Reader(5, auto_offset_reset="none")
    reader.reader.seek(TP, 0)
    reader.read_all()
    reader.reads_near()
    reader.cluster.brokers[NEAR].behind = 50
    reader.write_more(20)
    assert set(reader.read_all()) == {LEADER}
    assert reader.racks == {"b", ""}
    reader.reader.seek(TP, 10_000)
    # the leader doesn't have this offset either
    with pytest.raises(NoSuchOffsetError, match="10000"):
        reader.reader.poll(5.0)


def test_a_new_leader_is_asked_for_the_closest_replica_again() -> None:
    reader = Reader(6)
    reader.read_all()
    reader.reads_near()
    reader.cluster.move_leader("t", 0, NEAR)
    reader.write_more(20)
    assert reader.read_all()[NEAR] > 0
    reader.cluster.move_leader("t", 0, OTHER)
    reader.write_more(20)
    assert (
        reader.read_all()[OTHER] > 0
    )  # the new leader responds to the first fetch with the closest replica
    for _ in range(10):
        reader.reader.poll(1.0)
    reader.reads_near()


def test_the_leader_is_asked_for_the_closest_replica_again_after_metadata_max_age() -> None:
    reader = Reader(7, metadata_max_age_ms=20_000)
    reader.read_all()
    reader.cluster.brokers[NEAR].rack = "elsewhere"
    for _ in range(30):
        reader.reader.poll(1.0)
    reader.write_more(20)
    assert set(reader.read_all()) == {LEADER}


@pytest.mark.parametrize("rack", [None, "b"])
@pytest.mark.parametrize("node", [99, LEADER, NEAR])
def test_fetches_back_off_if_brokers_always_name_another_replica(
    node: int, rack: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    def name(answer: Any) -> None:
        for topic in answer.responses:
            for partition in topic.partitions:
                partition.preferred_read_replica, partition.records = node, b""

    spoil_answers(monkeypatch, FetchRequest.API_KEY, name)
    reader = Reader(9, rack)
    assert reader.reader.poll(10.0) == []
    assert sum(reader.fetches.values()) < 30
    monkeypatch.undo()
    reader.read_all(limit=10.0)


def test_preferred_replicas_of_all_partitions_in_a_response_are_accepted(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The response names the unknown broker 99 as the preferred replica of each partition."""
    reader = Reader(10)
    reader.cluster.create_topic("many", assignments={n: [LEADER, NEAR] for n in range(5)})
    reader.write(range(5), "many")
    told: list[int] = []

    def name(answer: Any) -> None:
        for partition in (p for topic in answer.responses for p in topic.partitions):
            if not told and not partition.error_code:
                partition.preferred_read_replica, partition.records = 99, b""
        told.extend([1] if answer.responses else [])

    spoil_answers(monkeypatch, FetchRequest.API_KEY, name)
    retries: list[str] = []
    reader.reader.listen(
        lambda event: retries.append(str(event)) if "read replica 99" in str(event) else None
    )
    reader.reader.assign([TopicPartition("many", n) for n in range(5)])
    found = 0
    while found < 5:
        found += len(reader.reader.poll(0.5))
    assert told
    assert not retries
