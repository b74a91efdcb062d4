"""The sink's methods that Spark calls, without a JVM: pickling, late connections, task ids."""

from __future__ import annotations

import logging
import pickle
from typing import Any

import pytest
from pyspark import TaskContext
from pyspark.sql.types import BinaryType, StructType

from odradek.common.errors import ConfigurationError
from odradek.spark.driver.source import KafkaDataSource
from odradek.spark.sink.sink_errors import SinkContextError
from odradek.spark.sink.sink_messages import (
    BATCH_ID,
    QUERY_ID,
    SinkCommit,
    SinkTask,
    batch_task,
    stream_task,
)
from odradek.spark.sink.sink_options import parse_sink_options

VALUE = StructType().add("value", BinaryType())
OPTIONS = {"kafka.bootstrap.servers": "localhost:1", "topic": "t"}


def test_creating_and_pickling_a_sinks_writers_creates_no_client(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def forbidden(*_: object, **__: object) -> None:
        raise AssertionError("a client was made")

    monkeypatch.setattr("odradek.spark.sink.sink_clients.ProducerCache.checkout", forbidden)
    sink = KafkaDataSource(OPTIONS)
    for make in (sink.writer, sink.streamWriter):
        assert pickle.loads(pickle.dumps(make(VALUE, overwrite=False)))  # noqa: S301 (our own bytes)
    with pytest.raises(ConfigurationError, match="unknown option 'subscribe' of the sink"):
        KafkaDataSource({**OPTIONS, "subscribe": "s"}).writer(VALUE, overwrite=False)
    with pytest.raises(ConfigurationError, match=r'\.mode\("append"\)'):
        sink.writer(VALUE, overwrite=True)


class Context:
    def __init__(self, **properties: str) -> None:
        self._properties = {k.replace("_", "."): v for k, v in properties.items()}

    def partitionId(self) -> int:  # noqa: N802
        return 3

    def attemptNumber(self) -> int:  # noqa: N802
        return 1

    def getLocalProperty(self, name: str) -> str | None:  # noqa: N802
        return self._properties.get(name)


def test_a_task_gets_its_batch_number_and_query_id_from_sparks_local_properties(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    context: Any = Context()
    context._properties = {BATCH_ID: "12", QUERY_ID: "q", "spark.jobGroup.id": "r"}
    monkeypatch.setattr(TaskContext, "get", lambda: context)
    assert stream_task() == SinkTask(3, 1, 12, "q", "r")
    assert batch_task() == SinkTask(3, 1)
    for job, run in (("q", "r"), ("other", None)):  # in foreachBatch, jobId is the query's id
        given = {**OPTIONS, "delivery": "exactly_once", "jobId": job, "batchId": "7"}
        assert batch_task(parse_sink_options(given, "batch")) == SinkTask(3, 1, 7, job, run)
    del context._properties[BATCH_ID]
    with pytest.raises(SinkContextError, match=r"streaming\.sql\.batchId: None"):
        stream_task()
    monkeypatch.setattr(TaskContext, "get", lambda: None)
    with pytest.raises(SinkContextError, match="outside of a Spark task"):
        batch_task()


def test_the_driver_logs_how_many_rows_were_written(caplog: pytest.LogCaptureFixture) -> None:
    writer: Any = KafkaDataSource(OPTIONS).streamWriter(VALUE, overwrite=False)
    with caplog.at_level(logging.INFO, "odradek.spark"):
        writer.commit([SinkCommit(0, 5, 0), SinkCommit(1, 7, 2)], 4)
        writer.abort([SinkCommit(0, 5, 0), None], 5)
    assert "batch 4: 12 rows written by 2 tasks" in caplog.text
    assert "batch 5 failed; the rows of 1 of 2 tasks" in caplog.text


@pytest.mark.parametrize("kind", ["writer", "streamWriter"])
def test_transactions_of_a_failed_batch_are_aborted_only_with_exactly_once_delivery(
    monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    ended: list[object] = []
    monkeypatch.setattr(
        "odradek.spark.sink.writers.abort_batch", lambda *args, **_: ended.append(args[1])
    )
    given = {"delivery": "exactly_once", **({"jobId": "job"} if kind == "writer" else {})}
    more = () if kind == "writer" else (3,)
    for options in (OPTIONS, {**OPTIONS, **given}):
        writer: Any = getattr(KafkaDataSource(options), kind)(VALUE, overwrite=False)
        writer.abort([SinkCommit(0, 5, 0), None], *more)
    assert ended == [[SinkCommit(0, 5, 0), None]]
