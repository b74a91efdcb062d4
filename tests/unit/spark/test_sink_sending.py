"""How a task sends rows: memory, timeouts, errors that name rows, the cache of producers."""

from __future__ import annotations

import logging
from typing import Any

import pyarrow as pa
import pytest
from tests.unit.spark.memory_producer import MemoryLog, MemoryProducer, Sent

from odradek.common.errors import KafkaError, KafkaTimeoutError
from odradek.spark.checkpoint_errors import OutageError
from odradek.spark.sink.sink_clients import MAX_PRODUCERS, ProducerCache
from odradek.spark.sink.sink_errors import SinkRowError, SinkWriteError
from odradek.spark.sink.sink_schema import SinkColumns
from odradek.spark.sink.sink_sending import Patience, RowSender


def rows(*values: str) -> pa.RecordBatch:
    return pa.RecordBatch.from_pydict({"value": values})


class SlowProducer(MemoryProducer):
    """A producer that acknowledges a record only when its future is waited for."""

    def __init__(self, log: MemoryLog) -> None:
        super().__init__(log, None)
        self.open: list[Any] = []
        self.most = 0
        self.error: BaseException | None = None

    def send_arrow(self, topic: str, data: Any) -> Sent:
        sent: Any = super().send_arrow(topic, data)
        sent._error = self.error
        sent.done = lambda: sent not in self.open
        sent.exception = lambda timeout: self._acknowledge(sent)
        self.open.append(sent)
        self.most = max(self.most, len(self.open))
        return sent  # type: ignore[no-any-return]

    def _acknowledge(self, sent: Any) -> BaseException | None:
        self.open.remove(sent)
        return sent._error  # type: ignore[no-any-return]


def test_the_bytes_that_await_acknowledgement_are_limited(clock: Any) -> None:
    log = MemoryLog(clock)
    producer: Any = SlowProducer(log)
    size = rows("x" * 100).nbytes
    patience = Patience(60, clock, producer.explain)
    sender = RowSender(producer, SinkColumns(("value",), "t"), patience, window=3 * size)
    for n in range(20):
        sender.send(rows(f"{n:0100}"))
    assert producer.most == 3
    sender.send(rows(*(f"{n:0100}" for n in range(20, 40))))  # one batch larger than the limit
    sender.finish()
    assert (sender.rows, producer.open) == (40, [])
    assert [int(v) for v in log.values()] == list(range(40))
    assert log.steps.count("cluster") == log.steps.count("topic") == 1


def test_the_error_for_unwritten_rows_contains_their_number_and_the_first_row(clock: Any) -> None:
    producer: Any = SlowProducer(MemoryLog(clock))
    patience = Patience(60, clock, producer.explain)
    sender = RowSender(producer, SinkColumns(("value",), "t"), patience, window=1 << 20)
    sender.send(rows("a", "b"))
    producer.error = KafkaTimeoutError("delivery.timeout.ms")
    sender.send(rows("c", "d", "e"))
    with pytest.raises(SinkWriteError, match=r"1 row for topic 't'.*first row 4 of this task"):
        sender.finish()


def test_waiting_is_logged_every_thirty_seconds_until_the_timeout(
    clock: Any, caplog: pytest.LogCaptureFixture
) -> None:
    def never(seconds: float) -> None:
        clock.at += seconds
        raise KafkaTimeoutError("nobody answers")

    patience = Patience(100, clock, lambda: "the explanation")
    with (
        caplog.at_level(logging.WARNING, "odradek.spark"),
        pytest.raises(
            OutageError, match=r"(?s)timed out after 100 s waiting for acks.*the explanation"
        ),
    ):
        patience.wait(never, "acks")
    assert [r.message.split(".")[0] for r in caplog.records] == [
        f"acks: waiting for {n} s now, for 100 s at most" for n in (30, 60, 90)
    ]


def test_a_process_keeps_a_producer_for_each_configuration(clock: Any) -> None:
    log, pid = MemoryLog(clock), [1]
    cache = ProducerCache(log.make, lambda: pid[0])
    one, used = cache.checkout({"a": "1"})
    assert not used
    assert cache.checkout({"a": "1"}) == (one, True)
    assert cache.checkout({"a": "1"}, fresh=True) != (one, True)
    assert log.closed == [0.0]
    ended = cache.checkout({"a": "1"})[0]
    ended.ended = KafkaError("another cluster answered")  # type: ignore[misc]
    assert cache.checkout({"a": "1"})[0] is not ended
    for n in range(5):
        cache.checkout({"a": str(n)})
    assert len(cache) == MAX_PRODUCERS
    pid[0] = 2  # after a fork, the parent's producers are dropped, not closed
    closed = len(log.closed)
    assert cache.checkout({"a": "4"})[1] is False
    assert (len(cache), len(log.closed)) == (1, closed)


def test_an_invalid_topic_name_is_reported_with_its_row(clock: Any) -> None:
    log = MemoryLog(clock)
    producer: Any = SlowProducer(log)
    patience = Patience(60, clock, producer.explain)
    sender = RowSender(producer, SinkColumns(("value",), None), patience, window=1 << 20)
    sender.send(pa.RecordBatch.from_pydict({"topic": ["t", "t"], "value": ["a", "b"]}))
    named = pa.RecordBatch.from_pydict({"topic": ["t", "a b"], "value": ["c", "d"]})
    with pytest.raises(
        SinkRowError, match="row 3 of this task has 'a b' in column topic"
    ) as caught:
        sender.send(named)
    assert caught.value.row == 3
