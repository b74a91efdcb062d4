"""Spark's sink: transactions that one process prepares and another one commits or aborts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

import pyarrow as pa
import pytest
from tests.simulation.produce_script import every_broker
from tests.simulation.transactional import PROTOCOLS, Scene, send

from odradek.api.prepared_transactions import PreparedTransactions
from odradek.api.producer import Producer
from odradek.clients.admin.transactions import OVER
from odradek.clients.producer.transaction_state import PreparedTransaction
from odradek.common.errors import IllegalStateError
from odradek.common.errors.kafka import (
    InvalidTxnStateError,
    ProducerFencedError,
    TransactionalIdNotFoundError,
)
from odradek.simulation import World
from odradek.spark.checkpoint_errors import MissingTopicError
from odradek.spark.options.option_table import BATCH
from odradek.spark.sink.batch_commit import abort_batch, commit_batch
from odradek.spark.sink.exactly_once import TransactionalTask
from odradek.spark.sink.sink_clients import ProducerCache
from odradek.spark.sink.sink_driver import CONTACT_S
from odradek.spark.sink.sink_messages import SinkCommit, SinkTask
from odradek.spark.sink.sink_options import SinkOptions, parse_sink_options
from odradek.spark.sink.sink_schema import SinkColumns
from odradek.spark.sink.sink_sending import TOPIC_PATIENCE
from odradek.testing.simulated import KafkaSimulation


class Clock:
    """The virtual time of a `World` or a `KafkaSimulation`."""

    def __init__(self, world: World | KafkaSimulation) -> None:
        self._world = world

    def now(self) -> float:
        return self._world.now

    def pause(self, seconds: float) -> None:
        self._world.advance(seconds)


class Job:
    """A batch of a job: its tasks, each in its own process, and its driver."""

    def __init__(self, version: int = 2, seed: int = 1) -> None:
        self.scene = Scene(version, seed)
        self.clock = Clock(self.scene.world)
        self._processes = 0

    @property
    def options(self) -> SinkOptions:
        servers = self.scene.cluster.bootstrap_servers
        given = {"kafka.bootstrap.servers": servers, "topic": "t", "jobId": "job"}
        return parse_sink_options({**given, "delivery": "exactly_once"}, BATCH)

    def producer(self, config: Mapping[str, Any]) -> Producer:
        self._processes += 1
        return self.scene.client(Producer, f"process-{self._processes}", **config)

    def other(self) -> PreparedTransactions:
        """Return the client of another process that has prepared no transaction."""
        return PreparedTransactions(self.producer({}))

    def task(
        self,
        partition: int,
        numbers: Sequence[int],
        batch: int = 0,
        worker: ProducerCache | None = None,
        topics: Sequence[str] = (),
    ) -> SinkCommit:
        """Run a task, in its own process if there is no `worker`; rows may name `topics`."""
        values = {"value": [str(n) for n in numbers]}
        rows = pa.RecordBatch.from_pydict({**values, "topic": topics} if topics else values)
        columns = SinkColumns(("value",), None if topics else "t")
        return TransactionalTask(
            *(self.options, columns, SinkTask(partition, 0, batch, "job")),
            clients=self.worker() if worker is None else worker,
            prepared=PreparedTransactions,
            clock=self.clock,
        ).write(iter([rows]))

    def worker(self) -> ProducerCache:
        """Return the clients of a worker process, which runs one task after another."""
        return ProducerCache(self.producer)

    def commit(self, messages: Sequence[SinkCommit | None], batch: int = 0) -> None:
        given: Any = {"make": self.producer, "prepared": PreparedTransactions, "clock": self.clock}
        commit_batch(self.options, messages, batch=batch, **given)

    def abort(self, messages: Sequence[SinkCommit | None], batch: int = 0) -> None:
        given: Any = {"make": self.producer, "prepared": PreparedTransactions, "clock": self.clock}
        abort_batch(self.options, messages, batch=batch, **given)

    def prepared(self) -> PreparedTransaction:
        """Return a task's transaction, whose process has closed its producer."""
        found = self.task(0, [0, 1, 2]).transaction
        assert found is not None
        return found


@PROTOCOLS
def test_tasks_prepare_and_only_the_driver_commits(version: int) -> None:
    job = Job(version)
    for batch in range(3):
        messages = [
            job.task(p, range(4 * batch + 2 * p, 4 * batch + 2 * p + 2), batch) for p in (0, 1)
        ]
        assert job.scene.visible() == list(range(4 * batch))
        job.commit(messages, batch)
        assert job.scene.visible() == list(range(4 * batch + 4))
        again = [
            job.task(p, range(4 * batch, 4 * batch + 4) if p == 1 else [], batch) for p in (0, 1)
        ]
        assert [m.skipped for m in again] == [False, True]
        job.commit(again, batch)
        assert job.scene.visible() == list(range(4 * batch + 4))


@PROTOCOLS
def test_tasks_of_one_worker_have_their_own_transactions(version: int) -> None:
    """Two tasks of one worker use the same connections."""
    job, seen = Job(version), list[Any]()
    worker = job.worker()
    for batch in range(3):
        messages = []
        for p in (0, 1, 2):
            messages.append(job.task(p, [3 * batch + p], batch, worker))
            producer, used = worker.checkout(job.options.producer_config("any"))
            assert used
            seen.append(set(producer._engine.network.connections.values()))
        ids = {m.transaction[:2] for m in messages if m.transaction is not None}
        assert len(ids) == 3
        assert job.scene.visible() == list(range(3 * batch))
        job.commit(messages, batch)
        assert job.scene.visible() == list(range(3 * batch + 3))
    assert set.union(*seen) == seen[-1], "none was opened for a task and closed"
    assert len(seen[-1]) <= 2 * len(job.scene.cluster.brokers) + 1


@PROTOCOLS
def test_a_topic_that_is_deleted_between_tasks_is_reported_soon(version: int) -> None:
    """The worker's producer knows the topic from the previous task."""
    job = Job(version)
    worker = job.worker()
    job.commit([job.task(0, [0], worker=worker)])
    job.scene.cluster.delete_topic("t")
    begin = job.clock.now()
    with pytest.raises(MissingTopicError, match="topic 't' doesn't exist"):
        job.task(0, [1], 1, worker)
    assert job.clock.now() - begin < 4 * TOPIC_PATIENCE


@PROTOCOLS
def test_a_worker_that_ends_leaves_prepared_transactions_open(version: int) -> None:
    job = Job(version)
    worker = job.worker()
    messages = [job.task(p, [p], worker=worker) for p in (0, 1)]
    producer, _ = worker.checkout(job.options.producer_config("any"))
    producer.close(30.0)
    job.commit(messages)
    assert job.scene.visible() == [0, 1]


@PROTOCOLS
def test_a_task_is_not_fenced_by_an_attempt_of_another_worker(version: int) -> None:
    job = Job(version)
    first, second = job.worker(), job.worker()
    job.task(0, [7], worker=first)
    messages = [job.task(0, [0], worker=second), job.task(1, [1], worker=first)]
    job.commit(messages)
    assert job.scene.visible() == [0, 1]
    messages = [job.task(p, [2 + p], 1, first) for p in (0, 1)]
    job.commit(messages, 1)
    assert job.scene.visible() == [0, 1, 2, 3]


@PROTOCOLS
def test_a_producer_keeps_its_id_until_its_transaction_is_prepared(version: int) -> None:
    job = Job(version)
    producer = job.scene.producer(transactional_id="one")
    transactions = PreparedTransactions(producer)
    producer.begin_transaction()
    send(producer, range(1))
    with pytest.raises(IllegalStateError, match="isn't prepared"):
        transactions.use("two")
    one = transactions.prepare(30.0)
    transactions.use("two")
    with pytest.raises(IllegalStateError, match="init_transactions"):
        producer.begin_transaction()
    producer.init_transactions(30.0)
    producer.begin_transaction()
    send(producer, range(1, 2))
    producer.commit_transaction(30.0)
    assert job.scene.visible() in ([], [1]), "one that is open is before it in the log"
    assert job.other().end([one], 30.0, committed=True) == {"one": None}
    assert job.scene.visible() == [0, 1]


@PROTOCOLS
@pytest.mark.parametrize("committed", [True, False])
def test_a_transaction_can_be_ended_repeatedly_by_other_processes(
    version: int, committed: bool
) -> None:
    job = Job(version)
    one = job.prepared()
    assert one.version_2 is (version == 2)
    job.scene.world.advance(60.0)
    for _ in range(3):  # like retries of other processes after lost responses
        assert job.other().end([one], 30.0, committed=committed) == {one.transactional_id: None}
    assert job.scene.visible() == ([0, 1, 2] if committed else [])
    error = job.other().end([one], 30.0, committed=not committed)[one.transactional_id]
    assert isinstance(error, InvalidTxnStateError)
    assert job.scene.visible() == ([0, 1, 2] if committed else [])
    marker = job.other().offsets(["odradek-job-sink-0"], 30.0)["odradek-job-sink-0"]
    assert len(marker) == committed


@PROTOCOLS
def test_ending_a_fenced_or_timed_out_transaction_reports_its_loss(version: int) -> None:
    job = Job(version)
    one = job.prepared()
    found = job.other().describe([one.transactional_id], 30.0)[one.transactional_id]
    assert (found.state, found.producer_id, found.producer_epoch) == ("Ongoing", *one[1:3])
    job.other().fence([one.transactional_id], 30.0)
    error = job.other().end([one], 30.0, committed=True)[one.transactional_id]
    assert isinstance(error, ProducerFencedError)
    two = job.prepared()
    job.scene.world.advance(1000.0)
    error = job.other().end([two], 30.0, committed=True)[two.transactional_id]
    assert isinstance(error, OVER)
    assert job.scene.visible() == []
    with pytest.raises(TransactionalIdNotFoundError):
        job.other().describe(["unknown"], 30.0)


@PROTOCOLS
def test_a_transaction_ends_although_coordinators_crash(version: int) -> None:
    job = Job(version)
    messages = [job.task(p, [p]) for p in range(4)]
    scene = job.scene
    for number in scene.cluster.brokers:
        at = scene.world.now + 0.05 * number
        scene.world.at(at, partial(scene.cluster.crash, number))
        scene.world.at(at + 4.0, partial(scene.cluster.restart, number))
    job.commit(messages)
    assert scene.visible() == [0, 1, 2, 3]


class Failed(Job):
    """The state after Spark has killed task 1 of two in the middle of its transaction."""

    def __init__(self, version: int = 2) -> None:
        super().__init__(version)
        self.done = self.task(0, range(3))
        self.killed = self.scene.producer(transactional_id="odradek-job-sink-1")
        self.killed.begin_transaction()
        send(self.killed, range(3))
        self.killed.flush()
        with self.producer({}) as other:
            send(other, range(3, 6))


@PROTOCOLS
def test_rows_after_a_failed_batch_are_visible_immediately(version: int) -> None:
    job = Failed(version)
    world = job.scene.world
    assert job.scene.visible() == []
    begin = world.now
    job.abort([job.done, None])
    assert job.scene.visible() == [3, 4, 5]
    assert world.now - begin < 2.0
    with pytest.raises(ProducerFencedError):
        job.killed.commit_transaction()
    assert job.scene.visible() == [3, 4, 5]


class RowsNameTopics(Job):
    """A job whose options name no topic."""

    @property
    def options(self) -> SinkOptions:
        servers = self.scene.cluster.bootstrap_servers
        given = {"kafka.bootstrap.servers": servers, "jobId": "job", "delivery": "exactly_once"}
        return parse_sink_options(given, BATCH)


def test_a_second_abort_leaves_no_transaction_open_if_a_topic_was_deleted() -> None:
    """The driver can't ask the ledger's coordinator to accept offsets of that topic."""
    job, topics = RowsNameTopics(), ("t", "live")
    job.scene.cluster.create_topic("live", partitions=1)
    job.commit([job.task(0, [0, 1], topics=topics)])
    job.abort([job.task(0, [2, 3], 1, topics=topics), None], 1)
    again = job.task(0, [2, 3], 1, topics=topics)
    job.scene.cluster.delete_topic("t")
    job.abort([again, None], 1)
    assert again.transaction is not None
    assert job.other().ongoing(again.transaction.transactional_id, 5) == []


def test_the_driver_does_not_wait_long_without_brokers(
    caplog: pytest.LogCaptureFixture,
) -> None:
    job = Failed()
    every_broker(job.scene.cluster, "crash")
    begin = job.scene.world.now
    job.abort([job.done, None])
    assert job.scene.world.now - begin < CONTACT_S + 1.0
    assert "may stay hidden" in caplog.text
