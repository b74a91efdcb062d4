"""R-PR-1: a batch that a leader appended without acknowledging is written once, in order."""

from __future__ import annotations

import pytest
from tests.simulation.produce_script import (
    APPENDED,
    PARTITIONS,
    REFUSED,
    Arrival,
    Scripted,
    either,
    numbers,
    sequence,
    times,
    value,
)

from odradek.common.errors import KafkaTimeoutError
from odradek.common.errors.kafka import (
    OutOfOrderSequenceNumberError,
    RequestTimedOutError,
    TopicAuthorizationError,
    UnsupportedVersionError,
)
from odradek.common.types import TopicPartition
from odradek.protocol.messages.produce import ProduceRequest
from odradek.simulation.brokers.broker_faults import slow_api

SHORT = {"delivery.timeout.ms": 3000, "request.timeout.ms": 1000}


@pytest.mark.parametrize("code", [7, 20, 6, 56, 3])
@pytest.mark.parametrize("answers", [1, 2, 3])
def test_a_batch_appended_despite_its_error_is_not_written_again(
    code: int, answers: int, scripted: Scripted
) -> None:
    """Newer batches are acknowledged, and the third attempt gets OUT_OF_ORDER_SEQUENCE."""
    world, cluster, producer, script = scripted(1)
    script.rule = times(answers, APPENDED, code, sequence(1))
    futures = []
    for n in range(40):
        futures.append(producer.send("t", value(n), partition=0))
        world.advance(0.02)
    producer.flush(timeout=60)
    assert numbers(cluster) == list(range(40))
    assert [f.result(timeout=0).offset for f in futures] == list(range(1, 41))
    assert producer._engine.sender.identity.bumps == 0


def test_at_most_five_batches_are_sent_while_the_first_is_unacknowledged(
    scripted: Scripted,
) -> None:
    """A broker remembers the last five batches of a producer, so it recognizes a duplicate."""
    world, cluster, producer, script = scripted(2)
    script.rule = times(6, APPENDED, 7, sequence(1))
    open_sequences: set[int] = set()
    for n in range(30):
        producer.send("t", value(n), partition=0)
        world.advance(0.05)
        if cluster.records("t", 0)[-1][0] >= 1 and len(script.of(0)) > 1:
            asked = [a.numbers[1] for a in script.of(0)]
            if asked.count(1) < 7:
                open_sequences |= set(asked)
    assert max(open_sequences) == 5  # batch 1 and four newer batches
    producer.flush(timeout=60)
    assert numbers(cluster) == list(range(30))


def test_an_out_of_order_error_counts_as_success_if_a_later_batch_is_acknowledged(
    scripted: Scripted,
) -> None:
    world, cluster, producer, script = scripted(3)
    script.rule = times(1, APPENDED, 7, sequence(1))
    future = producer.send("t", value(0), partition=0)
    others = [producer.send("t", value(n), partition=0) for n in range(1, 4)]
    world.run_while(lambda: not all(f.done() for f in others), 5)
    assert not future.done()
    cluster.log("t", 0).started_anew()
    assert future.result(timeout=10).offset == -1  # the batch is written, at an unknown offset
    assert numbers(cluster) == [0, 1, 2, 3]
    assert [a.numbers for a in script.of(0)].count((0, 1)) == 2
    producer.send("t", value(4), partition=0).result(timeout=5)
    assert producer._engine.sender.identity.bumps == 0


def test_an_out_of_order_error_is_resolved_by_the_results_of_later_batches(
    scripted: Scripted,
) -> None:
    """No batch is acknowledged, but the leader has the last batch, and so all earlier ones."""
    world, cluster, producer, script = scripted(4)
    script.rule = either([times(1, APPENDED, 7, sequence(n)) for n in (1, 2, 3)])
    futures = [producer.send("t", value(n), partition=0) for n in range(3)]
    world.run_while(lambda: len(script.of(0)) < 4, 5)
    cluster.log("t", 0).started_anew()
    offsets = [f.result(timeout=10).offset for f in futures]
    assert offsets == [-1, -1, 3]
    assert numbers(cluster) == [0, 1, 2]
    assert producer._engine.sender.identity.bumps == 0


def test_a_batch_with_unknown_outcome_in_a_truncated_log_fails(scripted: Scripted) -> None:
    """A leader that lost its log knows no producer, and accepts the batch after a refused one."""
    _, cluster, producer, script = scripted(6)
    for n in range(5):
        producer.send("t", value(n), partition=0).result(timeout=5)
    refuse = times(1, REFUSED, 6, sequence(6))

    def cut(arrival: Arrival) -> tuple[str, int] | None:
        said = refuse(arrival)
        if said is not None:
            cluster.log("t", 0).truncate(0)
        return said

    script.rule = cut
    refused, taken = (producer.send("t", value(n), partition=0) for n in (5, 6))
    with pytest.raises(OutOfOrderSequenceNumberError, match="may have been written"):
        refused.result(timeout=10)
    assert taken.result(timeout=10).offset == 0
    assert producer.send("t", value(7), partition=0).result(timeout=10).offset == 1
    assert numbers(cluster) == [6, 7]


def test_batches_that_are_all_out_of_order_are_written_again(scripted: Scripted) -> None:
    """The leader's log was truncated: no batch exists, and each is written once, in order."""
    world, cluster, producer, script = scripted(5)
    for n in range(5):
        producer.send("t", value(n), partition=0).result(timeout=5)
    script.rule = either([times(1, APPENDED, 20, sequence(n)) for n in (6, 7)])
    futures = [producer.send("t", value(n), partition=0) for n in (5, 6)]
    world.run_while(lambda: len(script.of(0)) < 8, 5)
    cluster.log("t", 0).truncate(4)  # includes acknowledged records: an unclean election
    for future in futures:
        assert future.result(timeout=10).offset >= 4
    assert numbers(cluster) == [0, 1, 2, 5, 6]
    assert [a.numbers for a in script.of(0)][-2:] == [(1, 0), (1, 1)]


def test_an_expired_batch_that_arrives_late_is_refused(scripted: Scripted) -> None:
    """The batch is reported as failed, and the application sends it again before it arrives."""
    world, cluster, producer, script = scripted(6, **SHORT)
    script.rule = times(99, REFUSED, 7, lambda a: a.partition == 0)  # the batch is never appended
    late = producer.send("t", value(0), partition=0)
    with pytest.raises(KafkaTimeoutError):
        late.result(timeout=10)
    (first,) = {a.numbers: a for a in script.of(0) if a.numbers == (0, 1)}.values()
    script.rule = lambda _: None
    before = len(script.of(0))
    for n in (0, 1, 2):
        producer.send("t", value(n), partition=0).result(timeout=10)
    assert [a.numbers for a in script.of(0)[before:]] == [(1, 0), (1, 1), (1, 2)]
    producer_id = first.header.producer_id
    script.arrive_late(first)
    world.advance(1.0)
    assert numbers(cluster) == [0, 1, 2]
    assert {a.header.producer_id for a in script.arrivals} == {producer_id}


def test_an_expired_batch_keeps_the_sequences_of_other_partitions(scripted: Scripted) -> None:
    """R-PR-1: only the partition with the unknown outcome gets a new epoch, without a request."""
    _, cluster, producer, script = scripted(7, **SHORT)
    for n in range(3):
        producer.send("t", value(n), partition=1).result(timeout=5)
    script.rule = times(99, REFUSED, 7, lambda a: a.partition == 0)
    assert producer.send("t", value(0), partition=0).exception(timeout=10) is not None
    script.rule = lambda _: None
    for n in range(3, 6):
        producer.send("t", value(n), partition=0).result(timeout=5)
        producer.send("t", value(n), partition=1).result(timeout=5)
    assert [a.numbers for a in script.of(1)] == [(0, n) for n in range(6)]
    assert [a.numbers for a in script.of(0)][-3:] == [(1, n) for n in range(3)]
    asked = sum(b.requests["InitProducerId"] for b in cluster.brokers.values())
    assert asked == 1


def test_an_unknown_outcome_does_not_delay_other_partitions(scripted: Scripted) -> None:
    """Earlier, a partition below min ISR and a refused record in another one blocked all topics."""
    world, cluster, producer, script = scripted(8)
    for partition in (1, 2):
        producer.send("t", b"000", partition=partition).result(timeout=5)

    def rule(arrival: Arrival) -> tuple[str, int] | None:
        if arrival.partition == 0:
            return APPENDED, 20
        if arrival.partition == 1 and arrival.numbers == (0, 1):
            return REFUSED, 29
        return None

    script.rule = rule
    stuck = producer.send("t", value(1), partition=0)
    world.change_link(latency=0.05)
    refused = producer.send("t", value(1), partition=1)
    world.advance(0.01)
    behind = producer.send(
        "t", value(2), partition=1
    )  # in flight, but the previous sequence is missing
    assert isinstance(refused.exception(timeout=5), TopicAuthorizationError)
    begin = world.now
    behind.result(timeout=5)
    for n in range(1, 20):
        producer.send("t", value(n), partition=2).result(timeout=5)
    assert world.now - begin < 5.0
    assert not stuck.done()
    assert numbers(cluster, 1) == [0, 2]
    script.rule = lambda _: None
    stuck.result(timeout=10)
    assert numbers(cluster) == [1]


def test_a_batch_after_an_expired_one_is_not_written_again_if_it_may_arrive_late(
    scripted: Scripted,
) -> None:
    """Both batches are in flight on a connection that hangs: if one arrives, so does the other."""
    world, cluster, producer, script = scripted(9, **SHORT)
    script.rule = times(99, REFUSED, 7, lambda a: a.partition == 0)
    first = producer.send("t", value(0), partition=0)
    world.advance(0.6)
    second = producer.send("t", value(1), partition=0)
    assert isinstance(first.exception(timeout=10), KafkaTimeoutError)
    assert not second.done()
    script.rule = lambda _: None  # the leader lacks the first batch: error 45
    error = second.exception(timeout=10)
    assert isinstance(error, OutOfOrderSequenceNumberError)
    assert "may have been written" in str(error)
    copies = {a.numbers: a for a in script.of(0)}
    script.arrive_late(copies[0, 1])
    script.arrive_late(copies[0, 2])
    producer.send("t", value(2), partition=0).result(timeout=10)
    assert numbers(cluster) == [0, 1, 2]
    assert script.of(0)[-1].numbers == (1, 0)


def test_a_new_producer_id_is_requested_after_the_last_epoch(scripted: Scripted) -> None:
    _, cluster, producer, script = scripted(10, **SHORT)
    producer.send("t", b"000", partition=1).result(timeout=5)
    identity = producer._engine.sender.identity
    producer_id = identity.current[0]
    queue = producer._engine.sender._partitions.get(TopicPartition("t", 0))
    queue.numbering.begin((producer_id, 32767))
    script.rule = times(99, REFUSED, 7, lambda a: a.partition == 0)
    assert producer.send("t", value(0), partition=0).exception(timeout=10) is not None
    assert script.of(0)[-1].numbers == (32767, 0)
    script.rule = lambda _: None
    producer.send("t", value(1), partition=0).result(timeout=5)
    last = script.of(0)[-1]
    assert last.numbers == (0, 0)
    assert last.header.producer_id > producer_id
    producer.send("t", value(1), partition=1).result(timeout=5)
    assert script.of(1)[-1].header.producer_id == producer_id
    assert script.of(1)[-1].numbers == (0, 1)
    assert numbers(cluster) == [1]


def test_sequences_restart_at_0_after_the_last_number(scripted: Scripted) -> None:
    """After 2^31 - 1, brokers expect sequence 0."""
    _, cluster, producer, script = scripted(11)
    log = cluster.log("t", 0)
    log.producers.clear()  # so that any sequence is accepted
    numbering = producer._engine.sender._partitions.get(TopicPartition("t", 0)).numbering
    numbering.next_sequence = 2**31 - 3
    numbering.known_at = -2
    futures = [producer.send("t", b"%03d" % n, partition=0) for n in range(2)]
    producer.flush(timeout=5)
    futures += [producer.send("t", value(n), partition=0) for n in range(2, 6)]
    producer.flush(timeout=5)
    assert [f.result(timeout=0).offset for f in futures] == list(range(1, 7))
    assert [a.numbers[1] for a in script.of(0)][-5:] == [2**31 - 3, 2**31 - 1, 0, 1, 2]
    assert producer._engine.sender.identity.bumps == 0
    assert numbering.next_sequence == 3


@pytest.mark.parametrize("doubtful", [False, True])
def test_the_error_duplicate_sequence_number_counts_as_success(
    doubtful: bool, scripted: Scripted
) -> None:
    """Older brokers respond with code 46 to a duplicate."""
    _, cluster, producer, script = scripted(12)
    rules = [times(1, APPENDED, 7, sequence(1))] if doubtful else []
    script.rule = either([*rules, times(1, APPENDED, 46, sequence(1))])
    found = producer.send("t", value(0), partition=0).result(timeout=5)
    assert found.offset == -1
    producer.send("t", value(1), partition=0).result(timeout=5)
    assert numbers(cluster) == [0, 1]
    assert script.of(0)[-1].numbers == (0, 2)


def test_a_refused_batch_that_was_not_appended_is_sent_again_after_out_of_order(
    scripted: Scripted,
) -> None:
    """A leader without state accepted the newer batch, so the older one gets error 45.

    The refusal of the older batch proved that it wasn't appended.
    """
    world, cluster, producer, script = scripted(13)
    world.change_link(latency=0.02)

    def rule(arrival: Arrival) -> tuple[str, int] | None:
        if arrival.numbers == (0, 1) and arrival.partition == 0 and not met:
            met.append(arrival)
            cluster.log("t", 0).producers.clear()
            return REFUSED, 19
        return None

    met: list[Arrival] = []
    script.rule = rule
    futures = [producer.send("t", value(n), partition=0) for n in range(2)]
    for future in futures:
        assert future.result(timeout=10).offset >= 1
    assert sorted(numbers(cluster)) == [0, 1]


def test_the_sequence_of_a_batch_without_retries_left_is_not_reused(scripted: Scripted) -> None:
    """The batch may be in the log; another batch with its sequence would be lost as a duplicate."""
    _, cluster, producer, script = scripted(19, retries=1)
    script.rule = times(9, APPENDED, 7, sequence(1))
    error = producer.send("t", value(0), partition=0).exception(timeout=10)
    assert isinstance(error, RequestTimedOutError)
    producer.send("t", value(1), partition=0).result(timeout=5)
    assert numbers(cluster) == [0, 1]
    assert script.of(0)[-1].numbers == (1, 0)


def test_the_sequence_of_a_batch_that_was_not_appended_is_reused(scripted: Scripted) -> None:
    _, cluster, producer, script = scripted(20, retries=1)
    script.rule = times(9, REFUSED, 19, sequence(1))
    assert producer.send("t", value(0), partition=0).exception(timeout=10) is not None
    script.rule = lambda _: None
    producer.send("t", value(1), partition=0).result(timeout=5)
    assert numbers(cluster) == [1]
    assert script.of(0)[-1].numbers == (0, 1)


def test_batches_to_a_recreated_topic_keep_their_order(scripted: Scripted) -> None:
    """The new leader has the same epoch and no state, so it would accept the second batch first."""
    world, cluster, producer, script = scripted(22, **{"metadata.max.age.ms": 1000})
    epoch = cluster.topics["t"].partitions[0].leader_epoch
    cluster.delete_topic("t")
    cluster.create_topic("t", partitions=PARTITIONS)
    assert cluster.topics["t"].partitions[0].leader_epoch == epoch
    world.advance(10.0)
    world.change_link(latency=0.05)
    script.rule = times(1, REFUSED, 19, sequence(1))
    futures = [producer.send("t", value(n), partition=0) for n in range(3)]
    producer.flush(timeout=20)
    assert [f.result(timeout=0).offset for f in futures] == [0, 1, 2]
    assert numbers(cluster) == [0, 1, 2]


def test_a_late_response_of_the_deleted_topic_does_not_count_for_the_new_one(
    scripted: Scripted,
) -> None:
    """If the response counted, a second batch could be sent before the first one is written."""
    world, cluster, producer, script = scripted(23, **{"metadata.max.age.ms": 500})
    slow_api(cluster, "Produce", 3.0)
    late = producer.send("t", value(0), partition=0)
    world.advance(0.3)
    slow_api(cluster, "Produce", 0.0)
    cluster.delete_topic("t")
    cluster.create_topic("t", partitions=PARTITIONS)
    world.advance(1.5)
    script.rule = times(1, REFUSED, 19, sequence(2))
    futures = []
    for n in range(1, 4):
        futures.append(producer.send("t", value(n), partition=0))
        world.advance(0.1)  # large enough to fill a batch
    world.change_link(latency=0.05)
    assert not late.done()
    producer.flush(timeout=20)
    assert (
        late.result(timeout=0).offset == 1
    )  # the record was written, and then deleted with its topic
    assert [f.result(timeout=0).offset for f in futures] == [0, 1, 2]
    assert numbers(cluster) == [1, 2, 3]


def test_a_batch_that_could_not_be_encoded_leaves_no_gap_in_sequences(scripted: Scripted) -> None:
    """During a downgrade, client and broker have no common version of Produce for a while."""
    world, cluster, producer, script = scripted(21)
    spoken = cluster.versions[ProduceRequest.API_KEY]
    cluster.versions[ProduceRequest.API_KEY] = (0, 2)
    for i in cluster.brokers:
        cluster.bounce(i, after=0.1)
    world.advance(5.0)
    error = producer.send("t", value(0), partition=0).exception(timeout=20)
    assert isinstance(error, UnsupportedVersionError)
    cluster.versions[ProduceRequest.API_KEY] = spoken
    for i in cluster.brokers:
        cluster.bounce(i, after=0.1)
    world.advance(5.0)
    producer.send("t", value(1), partition=0).result(timeout=20)
    assert script.of(0)[-1].numbers == (0, 1)


def test_a_record_that_expires_in_flight_keeps_its_sequence(scripted: Scripted) -> None:
    """If the next record had that sequence, the leader would only confirm it as a duplicate."""
    times_up = {"delivery.timeout.ms": 1000, "request.timeout.ms": 1000, "linger.ms": 0}
    world, cluster, producer, script = scripted(26, **times_up)
    script.rule = times(1, REFUSED, 19, sequence(1))
    expired = producer.send("t", value(0), partition=0)
    world.run_while(lambda: not script.of(0)[-1].said, 5)
    slow_api(cluster, "Produce", 5.0)  # the second attempt is in flight when the record expires
    with pytest.raises(KafkaTimeoutError) as caught:
        expired.result(timeout=5)
    assert numbers(cluster) == [0]  # the record is written, though it expired for the caller
    slow_api(cluster, "Produce", 0.0)
    producer.send("t", value(1), partition=0).result(timeout=5)
    assert numbers(cluster) == [0, 1]
    assert "it may have been written" in str(caught.value)
