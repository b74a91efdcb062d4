"""Records that a broker refuses (KIP-467), and the content of their errors (R-RT-2)."""

from __future__ import annotations

from functools import partial

import pyarrow as pa
import pytest
from tests.simulation.produce_script import Scripted, leader_of, numbers, value

from odradek.common.errors import KafkaTimeoutError
from odradek.common.errors.kafka import (
    InvalidRecordError,
    InvalidTimestampError,
    NotEnoughReplicasError,
)
from odradek.common.types import TopicPartition
from odradek.protocol.messages.produce import BatchIndexAndErrorMessage as Said
from odradek.protocol.messages.produce import PartitionProduceResponse
from odradek.runtime.hosts.record_future import RecordFuture


@pytest.mark.parametrize("bad", [{0}, {3, 4}, {1, 5, 9}, {9}, set(range(10))])
@pytest.mark.parametrize("behind", [0, 3])
def test_refused_records_fail_and_others_of_their_batch_are_written(
    bad: set[int], behind: int, scripted: Scripted
) -> None:
    world, cluster, producer, _ = scripted(14, **{"batch.size": 10_000})
    cluster.log("t", 0).compacted = True
    producer.send("t", b"000", b"k", partition=0).result(timeout=5)
    world.change_link(latency=0.05)
    futures = [
        producer.send("t", b"%03d" % n, None if n in bad else b"k", partition=0) for n in range(10)
    ]
    told: list[int] = []

    def note(n: int, _: RecordFuture) -> None:
        told.append(n)

    for n, future in enumerate(futures):
        future.add_done_callback(partial(note, n))
    world.advance(0.01)
    for n in range(10, 10 + behind):
        futures.append(producer.send("t", b"%03d" % n, b"k", partition=0))
        world.advance(0.01)
    producer.flush(timeout=20)
    good = [n for n in range(10 + behind) if n not in bad]
    assert numbers(cluster) == [0, *good]
    for n, future in enumerate(futures):
        error = future.exception(timeout=0)
        assert isinstance(error, InvalidRecordError) if n in bad else error is None, (n, error)
    assert (
        [futures[n].result(timeout=0).offset for n in good]
        == [row[0] for row in cluster.records("t", 0)][-len(good) :]
        if good
        else True
    )
    assert sorted(told) == list(range(10))
    assert producer._engine.accumulator.used == 0


def test_the_error_of_many_records_keeps_one_traceback_each(scripted: Scripted) -> None:
    """Records share an error; `result()` of a record must not extend the traceback of others."""
    _, cluster, producer, _ = scripted(16, **{"batch.size": 10_000})
    cluster.log("t", 0).compacted = True
    futures = [producer.send("t", b"%03d" % n, partition=0) for n in range(5)]
    producer.flush(timeout=20)
    lengths = []
    for future in futures:
        with pytest.raises(InvalidRecordError) as caught:
            future.result(timeout=0)
        lengths.append(len(caught.traceback))
    assert lengths == lengths[:1] * 5


def test_send_arrow_reports_each_refused_row(scripted: Scripted) -> None:
    _, cluster, producer, _ = scripted(15, **{"batch.size": 10_000})
    cluster.log("t", 0).compacted = True
    bad = {0, 17, 18, 50, 99}
    table = pa.table(
        {
            "key": pa.array([None if n in bad else b"k" for n in range(100)], pa.binary()),
            "value": [b"%03d" % n for n in range(100)],
            "partition": pa.array([n % 2 for n in range(100)], pa.int32()),
        }
    )
    future = producer.send_arrow("t", table)
    column = future.errors(timeout=20)
    assert column is not None
    marked = {n for n, text in enumerate(column.to_pylist()) if text is not None}
    assert marked == {n for n in bad if n % 2 == 0}
    assert "InvalidRecordError" in column.to_pylist()[50]
    assert numbers(cluster, 0) == [n for n in range(0, 100, 2) if n not in bad]
    assert numbers(cluster, 1) == list(range(1, 100, 2))
    assert sum(r.records for r in future.acknowledged()) == 100 - len(marked)


def test_each_refused_record_has_its_own_error(scripted: Scripted) -> None:
    world, cluster, producer, _ = scripted(16, **{"batch.size": 10_000})
    cluster.go_silent(leader_of(cluster).id)
    futures = [producer.send("t", b"%03d" % n, partition=0) for n in range(4)]
    world.advance(0.01)
    sender = producer._engine.sender
    (batch,) = sender.queues[TopicPartition("t", 0)].in_flight
    answer = PartitionProduceResponse(
        0, 32, -1, record_errors=[Said(1, "too old"), Said(2, None)], error_message="some"
    )
    sender.batch_completion.settle(batch, answer, None)
    first, second = (futures[n].exception(timeout=0) for n in (1, 2))
    assert isinstance(first, InvalidTimestampError)
    assert "too old" in str(first)
    assert "some" in str(second)
    assert not futures[0].done()
    with pytest.raises(KafkaTimeoutError):
        producer.close(timeout=0)


def test_the_error_of_a_delivery_timeout_lists_the_brokers_errors(scripted: Scripted) -> None:
    world, cluster, producer, _ = scripted(
        17, **{"delivery.timeout.ms": 6000, "request.timeout.ms": 1000}
    )
    cluster.min_insync_replicas = 4
    future = producer.send("t", value(0), partition=0)
    world.advance(3.0)
    assert "NOT_ENOUGH_REPLICAS" in str(producer.explain())
    with pytest.raises(KafkaTimeoutError, match="NOT_ENOUGH_REPLICAS") as flushed:
        producer.flush(timeout=0.5)
    assert isinstance(flushed.value.__cause__, NotEnoughReplicasError)
    with pytest.raises(KafkaTimeoutError, match="NOT_ENOUGH_REPLICAS"):
        future.result(timeout=0.5)
    error = future.exception(timeout=10)
    assert isinstance(error, KafkaTimeoutError)
    (found,) = [a for a in error.attempts if "NOT_ENOUGH_REPLICAS" in a.error]
    assert found.address == leader_of(cluster).address
    assert "t-0" in found.what
    assert world.now - found.at < 2.0
    assert isinstance(error.__cause__, NotEnoughReplicasError)
