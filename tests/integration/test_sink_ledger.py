"""Test the ledger of Spark's exactly-once sink with a real broker, without Spark."""

from __future__ import annotations

import time
from typing import Any

import pyarrow as pa
import pytest
from tests.interop.other_client import read_all

from odradek.api.prepared_transactions import PreparedTransactions
from odradek.spark.options.option_table import STREAM
from odradek.spark.sink.batch_commit import abort_batch, commit_batch
from odradek.spark.sink.exactly_once import TransactionalTask
from odradek.spark.sink.sink_clients import ProducerCache, make_producer
from odradek.spark.sink.sink_driver import DriverLedger
from odradek.spark.sink.sink_messages import SinkCommit, SinkTask
from odradek.spark.sink.sink_options import parse_sink_options
from odradek.spark.sink.sink_schema import SinkColumns
from odradek.testing import LocalCluster


class RealClock:
    now = staticmethod(time.monotonic)
    pause = staticmethod(time.sleep)


def test_a_driver_rereads_the_ledger_only_after_another_driver_wrote(
    cluster: LocalCluster, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Check that a real broker's producer epochs are those that the last decision predicted."""
    cluster.create_topic(topic, partitions=2)
    servers = {"kafka.bootstrap.servers": cluster.bootstrap_servers}
    options = parse_sink_options(
        {**servers, "topic": topic, "delivery": "exactly_once", "transactionalIdPrefix": topic},
        STREAM,
    )
    given: Any = {"make": make_producer, "prepared": PreparedTransactions, "clock": RealClock}
    worker = ProducerCache(make_producer)
    again, certain = list[int](), DriverLedger._certain

    def task(batch: int, run: str) -> SinkCommit:
        rows = pa.RecordBatch.from_pydict({"value": [str(batch)]})
        return TransactionalTask(
            *(options, SinkColumns(("value",), topic), SinkTask(0, 0, batch, "q", run)),
            clients=worker,
            prepared=PreparedTransactions,
            clock=RealClock,
        ).write(iter([rows]))

    def counted(self: DriverLedger, group: str, *, stable: bool) -> Any:
        again.append(batch)
        return certain(self, group, stable=stable)

    monkeypatch.setattr(DriverLedger, "_certain", counted)
    for batch in range(3):
        commit_batch(options, [task(batch, "first")], batch=batch, **given)
    batch = 3
    abort_batch(options, [task(batch, "first")], batch=batch, **given)
    for batch in (3, 4):
        commit_batch(options, [task(batch, "second")], batch=batch, **given)
    assert again == [3]
    commit_batch(options, [task(batch, "third")], batch=batch, **given)
    found = read_all(cluster.bootstrap_servers, topic, 2)
    values = [row.value for rows in found.values() for row in rows]
    assert (len(values), set(values)) == (5, {b"0", b"1", b"2", b"3", b"4"})
    producer, _ = worker.checkout(options.producer_config("any"))
    worker.drop(producer)
