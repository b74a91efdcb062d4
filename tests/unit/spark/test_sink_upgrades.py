"""Exactly-once queries that an earlier release began, continued from its stored state."""

from __future__ import annotations

import json
import struct
from base64 import b64encode
from collections.abc import Sequence

import pyarrow as pa
import pytest
from tests.unit.spark.memory_producer import MemoryLog
from tests.unit.spark.test_exactly_once import T0, commit, options, run_batch, write

from odradek.clients.consumer.records import OffsetAndMetadata
from odradek.spark.sink.exactly_once import TransactionalTask
from odradek.spark.sink.ledger import Marker
from odradek.spark.sink.sink_clients import ProducerCache
from odradek.spark.sink.sink_errors import ReplayError
from odradek.spark.sink.sink_messages import SinkCommit, SinkTask
from odradek.spark.sink.sink_schema import SinkColumns

Row = tuple[str | None, str | None]
ROWS: list[list[Row]] = [
    [("k1", "a"), (None, "b"), ("k3", None), ("ü", "ein längerer Wert, mit mehr als acht Bytes")],
    [],
    [("x", "c")],
]
END = ',"run":"run-of-0.2","writer":"\'query\' with transactionalIdPrefix \'odradek\'"}'
MARKERS = {
    0: '{"v":1,"rows":4,"digest":"8446e0a0ac0d364f"' + END,
    2: '{"v":1,"rows":1,"digest":"b82993efd27a80e2"' + END,
}
"""Markers that tasks of release 0.2.0 (9acf96b8) committed for batch 3 of `ROWS`."""


@pytest.fixture
def begun(log: MemoryLog) -> MemoryLog:
    """Return the log after release 0.2 wrote batch 3, which Spark doesn't know is finished."""
    for partition, text in MARKERS.items():
        log.offsets[f"odradek-query-sink-{partition}"] = {T0: OffsetAndMetadata(3, text)}
    log.refuse = "a value that is too large"
    return log


def task(log: MemoryLog, rows: Sequence[Row], partition: int, batch: int = 3) -> SinkCommit:
    """Run a task of the current release that writes keys and values."""
    columns = {"key": [key for key, _ in rows], "value": [value for _, value in rows]}
    kinds = pa.schema({"key": pa.string(), "value": pa.string()})
    return TransactionalTask(
        *(options(), SinkColumns(("key", "value"), "t")),
        SinkTask(partition, 0, batch, "query", "run of this release"),
        clients=ProducerCache(log.make),
        prepared=log.prepared,
        clock=log.clock,
    ).write(iter([pa.RecordBatch.from_pydict(columns, kinds)]))


def test_a_batch_written_by_release_0_2_is_skipped_when_repeated(begun: MemoryLog) -> None:
    messages = [task(begun, rows, p) for p, rows in enumerate(ROWS)]
    assert [m.skipped for m in messages] == [True, False, True]
    commit(begun, messages, batch=3)
    assert begun.values() == []
    for batch in (4, 5):
        commit(begun, [task(begun, [("k", f"{batch}")], 0, batch)], batch=batch)
    assert begun.values() == ["4", "5"]
    assert begun.pending == {}


def test_a_batch_partly_written_by_release_0_2_is_completed(begun: MemoryLog) -> None:
    del begun.offsets["odradek-query-sink-0"]
    commit(begun, [task(begun, rows, p) for p, rows in enumerate(ROWS)], batch=3)
    assert begun.values() == [value for _, value in ROWS[0]]


def test_a_batch_with_other_rows_than_release_0_2_wrote_is_rejected(begun: MemoryLog) -> None:
    with pytest.raises(ReplayError, match="was already written with 4 rows"):
        task(begun, [*ROWS[0][1:], ("k1", "A")], 0)
    with pytest.raises(ReplayError, match="was already written by other tasks"):
        commit(begun, [task(begun, ROWS[0], 0)], batch=3)
    assert begun.values() == []


def test_a_decision_to_commit_stored_by_an_earlier_release_is_completed(log: MemoryLog) -> None:
    """The transactional ids in that format end with a counter, not with a ticket."""
    producer = log.make({"transactional.id": "odradek-query-sink-0", "transaction.timeout.ms": 9e5})
    producer.init_transactions()
    producer.begin_transaction()
    producer.send_arrow("t", pa.RecordBatch.from_pydict({"value": ["a"]}))
    transaction = log.prepared(producer).prepare(1.0)
    done = write(log, ["a"], batch=9, query="other")
    marker = Marker(0, 1, done.digest, "run", None, transaction[1:3]).stored()
    producer.send_offsets_to_transaction({T0: marker}, "odradek-query-sink-0")
    entry = struct.pack(">Iqh?QQ", 0, *transaction[1:], 1, done.digest)
    head = {"v": 1, "state": "decided", "rows": 1, "digest": f"{done.digest:016x}", "hash": 1}
    more = {"run": "run", "writer": None, "parts": 1, "next": None, "n": "x"}
    text = json.dumps({**head, **more, "e": b64encode(entry).decode()})
    log.offsets["odradek-query-sink-ledger"] = {T0: OffsetAndMetadata(0, text)}
    again = [write(log, ["a"], run="later")]
    commit(log, again)
    assert log.values() == ["a"]
    run_batch(log, ["b"], batch=1, run="later")
    assert log.values() == ["a", "b"]
