"""Spark queries with `read_committed` whose position is after the last stable offset (R-ID-6).

A query that read all records, or a user who specifies offsets, may have set this position. Nothing
is lost, so the query waits for the end of the transaction.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from tests.simulation.test_spark_driver import Driver
from tests.simulation.test_spark_log_changes import Query, log, wrote

from odradek.simulation.brokers.broker_faults import unclean_election
from odradek.spark.checkpoint_errors import DataLossError, NoProgressError
from odradek.spark.options.source_options import BATCH
from odradek.testing.simulated import KafkaSimulation

COMMITTED = {"kafka.isolation.level": "read_committed"}


class Transaction:
    """Offsets 0 to 9 are committed, and 30 more records are in an open transaction."""

    def __init__(self, simulation: KafkaSimulation) -> None:
        self.simulation = simulation
        wrote(simulation, "old", 10)
        self.producer: Any = simulation.producer(
            {"transactional.id": "x", "transaction.timeout.ms": 600_000}
        )
        self.producer.init_transactions()
        self.producer.begin_transaction()
        for n in range(30):
            self.producer.send("t", b"open %d" % n)
        self.producer.flush(10)

    def end(self, *, commits: bool = True) -> None:
        if commits:
            self.producer.commit_transaction()
        else:
            self.producer.abort_transaction()
        self.simulation.advance(1.0)


@pytest.fixture
def transaction() -> Iterator[Transaction]:
    with KafkaSimulation(brokers=3) as simulation:
        simulation.create_topic("t", partitions=1)
        yield Transaction(simulation)


@pytest.mark.parametrize("frozen", [False, True])
@pytest.mark.parametrize("commits", [False, True])
@pytest.mark.parametrize("fails", ["true", "false"])
def test_a_query_whose_position_is_after_the_last_stable_offset_waits(
    transaction: Transaction, caplog: Any, fails: str, commits: bool, frozen: bool
) -> None:
    simulation = transaction.simulation
    query = Query(simulation, failOnDataLoss=fails)
    assert len(query.batch()) == 40
    query.restart(**COMMITTED)
    if frozen:
        query.tracker.freeze()
    begun = simulation.now
    for _ in range(3):
        assert query.batch() == []
    assert simulation.now - begun < 5
    assert "t-0: offset 40 is after the last stable offset 10" in caplog.text
    assert caplog.text.count("last stable offset") == 1
    assert "failOnDataLoss" not in caplog.text
    transaction.end(commits=commits)
    wrote(simulation, "new", 5)
    if frozen:
        query.restart()
    assert query.batch() == log(simulation)[-5:]
    assert query.batch() == []


@pytest.mark.parametrize("fails", ["true", "false"])
def test_a_journalled_batch_waits_for_the_end_of_the_transaction(
    transaction: Transaction, caplog: Any, fails: str
) -> None:
    simulation = transaction.simulation
    query = Query(simulation, failOnDataLoss=fails, **{"kafkaConsumer.pollTimeoutMs": "5000"})
    end = query.journal()
    query.restart(**COMMITTED)
    with pytest.raises(NoProgressError, match=r"at offset 10 \(of 0 to 40\)"):
        query.finish(end)
    transaction.end()
    assert query.finish(end) == log(simulation)[:40]
    assert "failOnDataLoss" not in caplog.text


@pytest.mark.parametrize("fails", ["true", "false"])
def test_specified_offsets_may_be_in_an_open_transaction(
    transaction: Transaction, caplog: Any, fails: str
) -> None:
    simulation = transaction.simulation
    given = {"startingOffsets": '{"t":{"0":25}}', "failOnDataLoss": fails, **COMMITTED}
    query = Query(simulation, **given)
    assert query.batch() == []
    batch = Driver(simulation).tracker(BATCH, **given)
    assert batch.plan_batch().ranges == []
    limited = Driver(simulation).tracker(BATCH, **given, endingOffsets='{"t":{"0":30}}')
    assert [(r.start, r.until) for r in limited.plan_batch().ranges] == [(25, 30)]
    transaction.end()
    assert query.batch() == log(simulation)[25:40]
    assert "failOnDataLoss" not in caplog.text


def test_a_position_after_the_log_end_is_a_loss(transaction: Transaction) -> None:
    simulation = transaction.simulation
    query = Query(simulation)
    assert len(query.batch()) == 40
    query.offset["o"]["t"]["0"] = 41
    query.restart(**COMMITTED)
    with pytest.raises(DataLossError, match="t-0: the next offset to read is 41, .* ends at 40"):
        query.batch()


def test_a_query_does_not_wait_for_an_open_transaction_of_a_recreated_topic() -> None:
    """The old position is between the new topic's last stable offset and its log end offset."""
    with KafkaSimulation(brokers=3) as simulation:
        simulation.create_topic("t", partitions=1)
        query = Query(simulation, failOnDataLoss="false", **COMMITTED)
        wrote(simulation, "first", 30)
        assert len(query.batch()) == 30
        simulation.cluster.delete_topic("t")
        simulation.create_topic("t", partitions=1)
        transaction = Transaction(simulation)
        query.worker = query.new_worker()
        assert query.batch() == log(simulation)[:10]
        assert query.batch() == []
        transaction.end()
        assert query.batch() == log(simulation)[10:40]


def test_a_query_does_not_wait_for_an_open_transaction_of_a_diverged_log() -> None:
    with KafkaSimulation(brokers=3) as simulation:
        simulation.create_topic("t", partitions=1)
        query = Query(simulation, failOnDataLoss="false", **COMMITTED)
        wrote(simulation, "first", 30)
        assert len(query.batch()) == 30
        unclean_election(simulation.cluster, "t", 0, 25)
        transaction = Transaction(simulation)
        read = [*query.batch(), *query.batch()]
        stable = len(log(simulation)) - 30
        assert read == log(simulation)[5:stable]
        transaction.end()
        assert query.batch() == log(simulation)[stable:]
