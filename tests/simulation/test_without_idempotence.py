"""Producers without idempotence: `acks=0`, `acks=1`, `enable.idempotence=false`, old brokers."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest
from tests.simulation.produce_script import (
    APPENDED,
    REFUSED,
    Arrival,
    Scripted,
    leader_of,
    make,
    numbers,
    value,
)

from odradek.api.base import on_host
from odradek.api.producer import Producer
from odradek.common.errors import KafkaTimeoutError
from odradek.common.errors import kafka as errors
from odradek.simulation import SimulatedCluster, World
from odradek.simulation.brokers import broker_faults

NONE = (-1, -1, -1)
"""Producer id, epoch and sequence of a batch without idempotence."""
OFF: dict[str, Any] = {"enable.idempotence": False}


def carried(arrivals: list[Arrival]) -> set[tuple[int, int, int]]:
    heads = [a.header for a in arrivals]
    return {(h.producer_id, h.producer_epoch, h.base_sequence) for h in heads}


def asked(cluster: SimulatedCluster, what: str) -> int:
    return sum(broker.requests[what] for broker in cluster.brokers.values())


@pytest.mark.parametrize("options", [{"acks": 1}, {"acks": "0"}, OFF, {"retries": 0}])
def test_batches_have_no_sequence_and_no_producer_id_is_requested(
    options: dict[str, Any], scripted: Scripted
) -> None:
    world, cluster, producer, script = scripted(1, **options)
    with producer:
        futures = [producer.send("t", value(n), partition=0) for n in range(20)]
        producer.flush(10.0)
        offsets = [f.result(0).offset for f in futures]
        said = str(producer.explain())
        world.advance(1.0)
    assert sorted(numbers(cluster)) == list(range(20))
    assert carried(script.arrivals) == {NONE}
    assert asked(cluster, "InitProducerId") == 0
    wanted = {"acks": -1, **options}["acks"]
    assert {a.body.acks for a in script.arrivals} == {int(wanted)}
    assert offsets == ([-1] * 20 if wanted == "0" else list(range(1, 21)))
    assert "writes without idempotence, as configured" in said


def test_acks_all_waits_for_replicas_and_acks_1_does_not() -> None:
    for acks, due in ((1, True), ("all", False)):
        world, cluster, producer = make(1, partitions=1, acks=acks, linger_ms=0)
        with producer:
            producer.send("t", b"x").result(10.0)
            leader = leader_of(cluster)
            for broker in cluster.brokers.values():
                if broker is not leader:
                    cluster.pause(broker.id)
            future = producer.send("t", b"y")
            world.advance(1.0)
            assert future.done() is due
            producer.flush(60.0)


def test_acks_0_completes_once_the_request_is_sent(scripted: Scripted) -> None:
    world, cluster, producer, _ = scripted(2, brokers=1, acks=0)
    with producer:
        world.advance(2.0)
        cluster.go_silent(1)  # the broker reads requests and does nothing
        metadata = producer.send("t", b"lost", partition=0, timestamp_ms=5).result(0.5)
        assert (metadata.offset, metadata.timestamp_ms) == (-1, 5)
        producer.flush(0.5)
        assert len(cluster.records("t", 0)) == 1
        assert producer._engine.accumulator.used == 0


def test_acks_0_continues_at_the_new_leader_after_the_old_one_disconnects(
    scripted: Scripted,
) -> None:
    world, cluster, producer, _ = scripted(3, acks=0)
    with producer:
        world.advance(2.0)
        cluster.move_leader("t", 0)
        for n in range(50):
            producer.send("t", value(n), partition=0)
            world.advance(0.05)
        producer.flush(10.0)
        world.advance(1.0)
    found = numbers(cluster)
    assert found == sorted(found)
    assert found[-1] == 49
    assert len(found) > 40  # records sent to the old leader are lost without an error


def test_acks_0_waits_for_a_leader_and_retries_until_the_request_is_sent(
    scripted: Scripted,
) -> None:
    world, cluster, producer, _ = scripted(4, brokers=1, acks=0)
    with producer:
        world.advance(1.0)
        cluster.crash(1)
        world.advance(1.0)
        future = producer.send("t", value(7), partition=0)
        world.advance(1.0)
        assert not future.done()
        cluster.restart(1, after=0.5)
        assert future.result(20.0).offset == -1
        world.advance(1.0)
    assert numbers(cluster) == [7]


@pytest.mark.parametrize(("options", "copies"), [({}, 1), (OFF, 2), ({"acks": 1}, 2)])
def test_a_lost_response_duplicates_a_record_without_idempotence(
    options: dict[str, Any], copies: int, scripted: Scripted
) -> None:
    _, cluster, producer, script = scripted(5, **options)
    told = iter([(APPENDED, errors.RequestTimedOutError.code)])
    script.rule = lambda a: next(told, None) if a.partition == 0 else None
    with producer:
        producer.send("t", value(1), partition=0).result(10.0)
    assert numbers(cluster) == [1] * copies


@pytest.mark.parametrize("in_flight", [1, 5])
def test_order_is_kept_with_one_request_in_flight(in_flight: int, scripted: Scripted) -> None:
    """Each third attempt is refused with NOT_ENOUGH_REPLICAS, so it wasn't written."""
    options = {**OFF, "max.in.flight.requests.per.connection": in_flight}
    _, cluster, producer, script = scripted(6, **options)
    seen = [0]

    def rule(_: Arrival) -> tuple[str, int] | None:
        seen[0] += 1
        return (REFUSED, errors.NotEnoughReplicasError.code) if seen[0] % 3 == 0 else None

    script.rule = rule
    with producer:
        for n in range(30):
            producer.send("t", value(n), partition=0)
        producer.flush(60.0)
    found = numbers(cluster)
    assert sorted(found) == list(range(30))
    assert (found == sorted(found)) is (in_flight == 1)


def test_only_one_request_per_partition_is_in_flight_despite_a_slow_former_leader(
    scripted: Scripted,
) -> None:
    options = {**OFF, "max.in.flight.requests.per.connection": 1}
    world, cluster, producer, script = scripted(12, **options)
    with producer:
        former = leader_of(cluster)
        told = iter([(REFUSED, errors.NotEnoughReplicasError.code)])
        script.rule = lambda _: next(told, None)
        broker_faults.slow_api(cluster, "Produce", 1.5, former.id)
        producer.send("t", value(0), partition=0)
        world.advance(0.1)
        cluster.move_leader("t", 0)
        producer._engine.metadata.request("a test")
        world.advance(0.5)
        producer.send("t", value(1), partition=0)
        world.advance(0.5)
        assert numbers(cluster) == []
        producer.flush(60.0)
    assert numbers(cluster) == [0, 1]


def test_more_than_five_requests_may_be_in_flight(scripted: Scripted) -> None:
    options = {**OFF, "max.in.flight.requests.per.connection": 12}
    world, cluster, producer, script = scripted(8, brokers=1, **options)
    with producer:
        cluster.pause(1)
        for n in range(30):
            producer.send("t", value(n), partition=0)
        world.advance(0.5)
        waiting = [b for q in producer._engine.sender.queues.values() for b in q.in_flight]
        assert len(waiting) == 12
        cluster.resume(1)
        producer.flush(30.0)
    assert carried(script.arrivals) == {NONE}


def test_sequence_errors_have_no_special_meaning_without_idempotence(scripted: Scripted) -> None:
    """Such errors neither count as success nor start a new epoch."""
    _, cluster, producer, script = scripted(9, **OFF)
    codes = [
        errors.OutOfOrderSequenceNumberError,
        errors.UnknownProducerIdError,
        errors.InvalidProducerEpochError,
    ]
    with producer:
        for kind in codes:
            told = iter([(APPENDED, errors.RequestTimedOutError.code), (REFUSED, kind.code)])
            script.rule = lambda a, told=told: next(told, None)  # type: ignore[misc]
            with pytest.raises(kind):
                producer.send("t", value(1), partition=0).result(10.0)
        producer.send("t", value(2), partition=0).result(10.0)
    assert numbers(cluster)[-1] == 2


@pytest.mark.parametrize("acks", [0, 1])
def test_send_arrow_works_without_idempotence(acks: int, scripted: Scripted) -> None:
    world, cluster, producer, script = scripted(10, acks=acks)
    table = pa.table({"value": [value(n) for n in range(10)], "partition": [0] * 10})
    with producer:
        ranges = producer.send_arrow("t", table).result(10.0)
        world.advance(1.0)
    assert numbers(cluster) == list(range(10))
    assert sum(r.records for r in ranges) == 10
    assert [r.first_offset for r in ranges] == [1 if acks else -1]
    assert carried(script.arrivals) == {NONE}


def test_a_batch_too_large_for_its_topic_is_split(scripted: Scripted) -> None:
    _, cluster, producer, script = scripted(11, acks=1, **{"batch.size": 100_000})
    told = iter([(REFUSED, errors.MessageTooLargeError.code)])
    script.rule = lambda _: next(told, None)
    with producer:
        futures = [producer.send("t", value(n), partition=0) for n in range(40)]
        producer.flush(10.0)
        assert [f.result(0).offset for f in futures] == list(range(1, 41))
    assert numbers(cluster) == list(range(40))
    assert carried(script.arrivals) == {NONE}


def test_a_broker_that_reads_nothing_is_detected_with_acks_0_too() -> None:
    """Unsent bytes count like a missing response: the client disconnects and sends again."""
    world = World(1)
    cluster = SimulatedCluster(world, 1)
    cluster.create_topic("t")
    options = {"bootstrap.servers": str(cluster.brokers[1].address), "request.timeout.ms": 3000}
    producer = on_host(world.host("p"), Producer, options, acks=0, linger_ms=0)
    with producer:
        producer.send("t", b"x", partition=0).result(10.0)
        world.advance(2.0)
        monkey = pytest.MonkeyPatch()
        # The socket's buffer is full, so the I/O host still holds the bytes.
        monkey.setattr(producer._engine, "sent", lambda *_: None)
        future = producer.send("t", b"y", partition=0)
        with pytest.raises(KafkaTimeoutError):
            future.result(2.5)
        assert any(c.suspect for c in producer._engine.network.connections.values())
        world.advance(1.0)
        assert producer._engine.events.counts["disconnected"] == 1
        monkey.undo()
        assert future.result(10.0).offset == -1
