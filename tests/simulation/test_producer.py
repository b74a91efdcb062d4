"""The producer during faults of its cluster, in virtual time."""

from __future__ import annotations

import pytest
from tests.simulation.produce_script import PARTITIONS, every_broker, leader_of, make, values
from tests.volume import some

from odradek.common.errors import (
    BufferExhaustedError,
    ClientClosedError,
    ClusterIdMismatchError,
    KafkaTimeoutError,
    NoBrokerAvailableError,
)
from odradek.common.errors.kafka import InvalidTopicExceptionError, TopicAuthorizationError
from odradek.common.types import TopicPartition
from odradek.protocol.messages.produce import PartitionProduceResponse
from odradek.simulation.brokers import broker_faults
from odradek.simulation.world.trace import Trace


def test_a_batch_expires_in_time_with_an_error_that_names_every_address() -> None:
    world, cluster, producer = make(5, **{"delivery.timeout.ms": 4000, "request.timeout.ms": 1000})
    producer.send("t", b"0").result(timeout=5)
    every_broker(cluster, "crash")
    world.advance(1)
    begin = world.now
    future = producer.send("t", b"1", partition=0)
    with pytest.raises(NoBrokerAvailableError) as caught:
        future.result(timeout=60)
    assert 4.0 <= world.now - begin <= 4.1
    addresses = {str(a.address) for a in caught.value.attempts}
    known = {str(b.address) for b in cluster.brokers.values()}
    assert known | {cluster.bootstrap_servers} <= addresses
    assert all("refused" in a.error for a in caught.value.attempts)


def test_an_unencodable_topic_name_only_fails_the_call_to_warm() -> None:
    """Earlier, all later metadata requests contained the name and failed."""
    _, _, producer = make(5)
    with pytest.raises(InvalidTopicExceptionError):
        producer.warm(["t", "\ud800"])
    assert producer.send("t", b"0", partition=0).result(timeout=5).offset == 0


def test_the_timeout_error_on_a_busy_machine_describes_the_known_state(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    _, cluster, producer = make(7)
    cluster.create_topic("two", 2)
    host = producer._host
    run = host.run
    # Skip the engine's last step before the deadline, as if its thread weren't scheduled.
    monkeypatch.setattr(host, "run", lambda done, until: run(done, until - 0.1))
    with pytest.raises(KafkaTimeoutError, match="topic nowhere.*UNKNOWN_TOPIC_OR_PARTITION"):
        producer.partitions_for("nowhere", timeout=1.5)
    with pytest.raises(KafkaTimeoutError, match="for two-2 .* doesn't exist, it has 2 part"):
        producer.send("two", b"", partition=2).result(1.5)


@pytest.mark.parametrize("seed", some(range(20, 40), 4))
def test_writes_that_wait_for_a_dead_replica_do_not_delay_healthy_brokers(seed: int) -> None:
    """One of three brokers is killed; others hold acks=all until it is removed (9 s)."""
    world, cluster, producer = make(seed, **{"linger.ms": 0, "batch.size": 100})
    cluster.session_timeout = 9.0
    for n in range(30):
        producer.send("t", b"%d" % n, partition=n % PARTITIONS)
    producer.flush(timeout=10)
    begin = world.now
    events = producer._engine.events
    ends = Trace()
    ends.follow(events)
    world.after(0.2, lambda: cluster.crash(1))
    for n in range(30, 330):
        producer.send("t", b"%d" % n, partition=n % PARTITIONS)
        world.advance(0.01)
    producer.flush(timeout=60)
    assert 9.0 < world.now - begin < 12.0
    assert "rebootstrap" not in events.counts
    lost = [e.fields["address"] for e in ends.of_kind("disconnected")]
    healthy = {str(cluster.brokers[i].address) for i in (2, 3)}
    unwanted = [e for e in ends.of_kind("disconnected") if e.fields["failure"]]
    assert not {e.fields["address"] for e in unwanted} & healthy, lost
    for partition in range(PARTITIONS):
        assert values(cluster, partition) == list(range(partition, 330, PARTITIONS))


def test_a_wrong_cluster_gets_no_record() -> None:
    world, cluster, producer = make(8)
    producer.send("t", b"0", partition=0).result(timeout=5)
    foreign = cluster.replace_with_foreign()
    foreign.create_topic("t", partitions=PARTITIONS)
    future = producer.send("t", b"1", partition=0)
    with pytest.raises(ClusterIdMismatchError) as caught:
        future.result(timeout=60)
    assert caught.value.expected == cluster.cluster_id
    assert caught.value.found == foreign.cluster_id
    with pytest.raises(ClusterIdMismatchError):
        producer.send("t", b"2", partition=0)
    assert [foreign.records("t", p) for p in range(PARTITIONS)] == [[], [], []]
    world.advance(30)


def test_the_error_after_a_move_names_the_disabled_rebootstrap() -> None:
    _, cluster, producer = make(9, metadata_recovery_strategy="none", delivery_timeout_ms=40000)
    producer.send("t", b"0").result(timeout=5)
    cluster.move(after=1.0)
    future = producer.send("t", b"1")
    with pytest.raises(
        NoBrokerAvailableError, match="metadata.recovery.strategy=none.*rebootstrap"
    ):
        future.result(timeout=60)
    assert "rebootstrap" not in producer._engine.events.counts


def test_max_block_ms_limits_the_sum_of_waits_for_metadata_and_memory() -> None:
    world, cluster, producer = make(
        10, **{"buffer.memory": 20000, "max.request.size": 10000, "max.block.ms": 3000}
    )
    producer.send("t", b"0", partition=0).result(timeout=5)
    broker_faults.slow_api(cluster, "Produce", 20.0)
    for p in range(2):
        producer.send("t", bytes(9000), partition=p)
    begin = world.now
    world.after(2.0, lambda: cluster.create_topic("u", partitions=1))
    with pytest.raises(BufferExhaustedError, match="max.block.ms"):
        producer.send("u", bytes(9000))
    assert world.now - begin == pytest.approx(3.0, abs=0.1)


def test_a_full_buffer_blocks_and_then_raises() -> None:
    world, cluster, producer = make(
        10, **{"buffer.memory": 20000, "max.request.size": 10000, "max.block.ms": 3000}
    )
    producer.send("t", b"0", partition=0).result(timeout=5)
    every_broker(cluster, "crash")
    begin = world.now
    with pytest.raises(BufferExhaustedError, match="buffer.memory"):
        for _ in range(30):
            producer.send("t", bytes(1000), partition=0)
    assert 3.0 <= world.now - begin <= 3.1
    every_broker(cluster, "restart")
    producer.flush(timeout=60)
    assert producer._engine.accumulator.used == 0


def test_close_completes_every_future_once() -> None:
    _, cluster, producer = make(12)
    producer.send("t", b"0").result(timeout=5)
    every_broker(cluster, "crash")
    futures = [producer.send("t", b"1") for _ in range(5)]
    with pytest.raises(KafkaTimeoutError):
        producer.close(timeout=1.0)
    for future in futures:
        assert isinstance(future.exception(timeout=0), ClientClosedError)
    with pytest.raises(ClientClosedError):
        producer.send("t", b"2")


@pytest.mark.parametrize("doubtful", [False, True])
def test_the_sequence_of_a_refused_batch_is_reused_if_it_was_never_written(
    doubtful: bool,
) -> None:
    """If an attempt may have been written, another batch could be taken for its duplicate."""
    world, cluster, producer = make(41, **{"linger.ms": 0})
    producer.send("t", b"0", partition=0).result(timeout=5)
    cluster.go_silent(leader_of(cluster).id)
    future = producer.send("t", b"1", partition=0)
    world.advance(0.1)
    sender = producer._engine.sender
    queue = sender.queues[TopicPartition("t", 0)]
    (batch,) = queue.in_flight
    batch.doubtful = doubtful
    refusal = PartitionProduceResponse(index=0, error_code=TopicAuthorizationError.code or 0)
    sender.batch_completion.settle(batch, refusal, None)
    error = future.exception(timeout=0)
    assert isinstance(error, TopicAuthorizationError)
    assert ("may have been written" in str(error)) is doubtful
    numbering = queue.numbering
    assert (numbering.ended, sender.identity.bumps) == (doubtful, int(doubtful))
    assert (numbering.next_sequence == batch.sequence) is not doubtful


@pytest.mark.parametrize("verb", ["pause", "blackhole"])
def test_a_frozen_leader_delays_records_less_than_the_request_timeout(verb: str) -> None:
    """Records are sent to the next leader long before `request.timeout.ms` (30 s)."""
    world, cluster, producer = make(3)
    producer.send("t", b"0", partition=0).result(timeout=10)
    getattr(cluster, verb)(leader_of(cluster).id)
    begin = world.now
    producer.send("t", b"1", partition=0).result(timeout=30)
    assert world.now - begin < cluster.session_timeout + 2.0


def test_a_batch_that_lost_its_sequence_does_not_block_other_batches() -> None:
    """The epoch is bumped once the outcome of the next batch is known, not at its deadline."""
    world, cluster, producer = make(42, **{"linger.ms": 0, "batch.size": 100})
    producer.send("t", b"0", partition=0).result(timeout=5)
    leader = leader_of(cluster)
    cluster.go_silent(leader.id)
    futures = []
    for n in (1, 2):
        futures.append(producer.send("t", b"%d" % n * 90, partition=0))
        world.advance(0.01)
    assert len(producer._engine.sender.queues[TopicPartition("t", 0)].in_flight) == 2
    log = cluster.log("t", 0)
    log.strict_producers = True
    log.producers.clear()  # as after the retention time
    begin = world.now
    cluster.repair(leader.id)
    offsets = [future.result(timeout=100).offset for future in futures]
    assert offsets == [1, 2]
    assert world.now - begin < 5.0
    assert producer._engine.sender.identity.bumps == 1


def test_no_batch_is_sent_before_the_first_one_of_a_producer_is_accepted() -> None:
    """A broker accepts any sequence of an unknown producer, so the order would be lost."""
    world, cluster, producer = make(43, **{"linger.ms": 0, "batch.size": 100})
    cluster.move_leader("t", 1, to=leader_of(cluster).id)
    producer.send("t", b"warm", partition=1).result(timeout=5)
    world.change_link(latency=0.05)
    cluster.min_insync_replicas = 4  # only the first batch is refused
    world.after(0.06, lambda: setattr(cluster, "min_insync_replicas", 1))
    futures = []
    for n in range(4):
        futures.append(producer.send("t", b"%d" % n * 90, partition=0))
        world.advance(0.02)
    assert [future.result(timeout=10).offset for future in futures] == list(range(4))
    assert values(cluster, 0) == [int(b"%d" % n * 90) for n in range(4)]
