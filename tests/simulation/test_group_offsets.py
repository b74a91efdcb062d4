"""Committed offsets that a producer requests, and the Spark sink's transactions that use them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pyarrow as pa
import pytest
from tests.simulation.transactional import P0, PROTOCOLS, Scene, send

from odradek.api.prepared_transactions import PreparedTransactions
from odradek.api.producer import Producer
from odradek.clients.consumer.records import OffsetAndMetadata
from odradek.common.errors import KafkaTimeoutError
from odradek.common.types import TopicPartition
from odradek.spark.options.option_table import STREAM
from odradek.spark.sink.batch_commit import commit_batch
from odradek.spark.sink.exactly_once import TransactionalTask
from odradek.spark.sink.sink_clients import ProducerCache
from odradek.spark.sink.sink_errors import ReplayError, SinkWriteError
from odradek.spark.sink.sink_messages import SinkCommit, SinkTask
from odradek.spark.sink.sink_options import parse_sink_options
from odradek.spark.sink.sink_schema import SinkColumns


@PROTOCOLS
def test_committed_offsets_waits_for_open_transactions_and_returns_all_topics(version: int) -> None:
    scene = Scene(version)
    scene.cluster.create_topic("s", partitions=1)
    first = scene.producer()
    assert first.committed_offsets("g") == {}
    marker = OffsetAndMetadata(7, "what the application wants to find again")
    with first.transaction():
        send(first, range(3))
        offsets: dict[TopicPartition, int | OffsetAndMetadata]
        offsets = {P0: marker, TopicPartition("s", 0): 5}
        first.send_offsets_to_transaction(offsets, "g")
    first.begin_transaction()
    first.send(*("t", b"9"), partition=0)
    first.send_offsets_to_transaction({P0: 8}, "g")
    plain = scene.uninitialised(transactional_id=None)
    with pytest.raises(KafkaTimeoutError, match="committed offsets of group 'g'"):
        plain.committed_offsets("g", timeout=2)
    second = scene.producer()  # init_transactions() aborts the first producer's transaction
    wanted = {P0: marker, TopicPartition("s", 0): OffsetAndMetadata(5)}
    assert second.committed_offsets("g") == wanted == plain.committed_offsets("g")
    assert scene.visible() == [0, 1, 2]


class Sink:
    """Task attempts of one sink partition, each with its own producer."""

    def __init__(self, scene: Scene) -> None:
        self.scene = scene
        self.options = parse_sink_options(
            {"kafka.bootstrap.servers": "unused:1", "topic": "t", "delivery": "exactly_once"},
            STREAM,
        )

    def now(self) -> float:
        return self.scene.world.now

    def pause(self, seconds: float) -> None:
        raise AssertionError("nothing pauses here")

    def make(self, config: Mapping[str, Any]) -> Producer:
        given = {**config, "bootstrap.servers": self.scene.cluster.bootstrap_servers}
        return self.scene.client(Producer, "sink", **given)

    def attempt(self, batch: int) -> TransactionalTask:
        columns, task = SinkColumns(("value",), "t"), SinkTask(0, 0, batch, "query", "run")
        return TransactionalTask(
            *(self.options, columns, task),
            clients=ProducerCache(self.make),
            prepared=PreparedTransactions,
            clock=self,
        )

    def write(self, batch: int, *numbers: int) -> SinkCommit:
        """Prepare and commit a batch of one task."""
        message = self.attempt(batch).write(rows(*numbers))
        commit_batch(
            *(self.options, [message]),
            batch=batch,
            make=self.make,
            prepared=PreparedTransactions,
            clock=self,
        )
        return message


def rows(*numbers: int) -> Any:
    data = [b"%d" % n for n in numbers]
    return iter([pa.RecordBatch.from_pydict({"value": [value]}) for value in data])


@PROTOCOLS
def test_the_spark_sink_writes_once_if_task_attempts_run_concurrently(version: int) -> None:
    sink = Sink(Scene(version))
    assert not sink.write(0, 1, 2, 3).skipped
    assert sink.write(0, 3, 1, 2).skipped

    def overtaken() -> Any:
        """Yield rows of the first attempt; a second attempt writes them all meanwhile."""
        yield from rows(4)
        assert not sink.write(1, 4, 5).skipped
        yield from rows(5)

    with pytest.raises(SinkWriteError, match="Another attempt of this task"):
        sink.attempt(1).write(overtaken())
    assert sink.write(1, 5, 4).skipped
    with pytest.raises(ReplayError, match="was already written with 2 rows"):
        sink.write(1, 4, 6)
    with pytest.raises(ReplayError, match="batch numbers must increase"):
        sink.write(0, 1, 2, 3)
    assert sink.write(2).rows == 0
    assert sink.write(3, 7).rows == 1
    assert sink.scene.visible() == [1, 2, 3, 4, 5, 7]
